"""Evicts tokens of a sequence in llama.cpp's memory as its keeper says (StreamingLLM, arXiv:2309.17453): positions are
those within what is left.

What is evicted is removed at once, so that its cells are free. What comes after it moves to the sinks only when the
next tokens are computed, because llama.cpp rotates moved keys when a batch begins: a state that is read before would
have the new positions and the old rotation.
"""

from collections.abc import Sequence

import numpy as np

from localctx.kv.eviction_log import EvictedRange
from localctx.models.llama_cpp.context import LlamaContext
from localctx.models.llama_cpp.native_sequences import NativeSequence, ResidentSequences, native_id
from localctx.shape import PAGE

_NO_MASS = np.empty(0)  # llama.cpp tells nothing of its attention


def surplus(sequence: NativeSequence) -> range:
    """Returns which of the tokens that a sequence holds its keeper evicts now; they follow its sinks."""
    pages = sequence.keeper.pages_to_evict(sequence.held // PAGE, _NO_MASS)
    if not pages:
        return range(0)
    assert pages == list(range(sequence.keeper.sink_pages, pages[-1] + 1)), "a window follows the sinks"
    return range(pages[0] * PAGE, (pages[-1] + 1) * PAGE)


def evict(residents: ResidentSequences, sequences: Sequence[NativeSequence]) -> None:
    """Remove from ``sequences`` what their keepers do not keep. Raises NoRoom where one has no room to be resident."""
    for sequence in sequences:
        if tokens := surplus(sequence):
            residents.make_resident([sequence])
            start, stop = (end + sequence.gap for end in (tokens.start, tokens.stop))
            removed = residents.native.remove(native_id(sequence), start, stop)
            assert removed, "only memory that can be cut gets such a keeper"
            sequence.dropped += len(tokens)
            sequence.gap += len(tokens)


def close_gaps(native: LlamaContext, sequences: Sequence[NativeSequence]) -> list[NativeSequence]:
    """Move what follows evicted tokens of resident sequences to the sinks; returns the sequences that changed. Their
    cells must be their own. Their keys are rotated when the next batch begins, and until then nothing may read them.
    """
    moved = [sequence for sequence in sequences if sequence.gap]
    for sequence in moved:
        native.shift(native_id(sequence), sequence.keeper.sink_pages * PAGE + sequence.gap, -sequence.gap)
        sequence.gap = 0
    return moved


def evicted_ranges(sequence: NativeSequence) -> list[EvictedRange]:
    """Returns the tokens that were evicted of a sequence."""
    start = sequence.keeper.sink_pages * PAGE
    return [EvictedRange(start, start + sequence.dropped)] if sequence.dropped else []
