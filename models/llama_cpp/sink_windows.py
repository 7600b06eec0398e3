"""Evicts tokens of llama.cpp sequences as their keepers decide (StreamingLLM, arXiv:2309.17453). Positions count only
the remaining tokens.

Evicted tokens are removed at once, which frees their cells. Later tokens move to the sinks only when the next tokens
are computed, because llama.cpp re-rotates moved keys at the start of a batch. A state read before that would have new
positions but the old rotation.
"""

from collections.abc import Sequence

import numpy as np

from localctx.kv.eviction_log import EvictedRange
from localctx.models.llama_cpp.context import LlamaContext
from localctx.models.llama_cpp.sequence_slots import NativeSequence, SequenceSlots, native_id
from localctx.shape import PAGE

_NO_MASS = np.empty(0)  # llama.cpp does not report attention


def surplus(sequence: NativeSequence) -> range:
    """Returns the range of tokens that the sequence's keeper evicts now; it begins after the sinks. The range counts
    only tokens that were not evicted before.
    """
    pages = sequence.keeper.pages_to_evict(sequence.held // PAGE, _NO_MASS)
    if not pages:
        return range(0)
    assert pages == list(range(sequence.keeper.sink_pages, pages[-1] + 1)), "a window follows the sinks"
    return range(pages[0] * PAGE, (pages[-1] + 1) * PAGE)


def evict(residents: SequenceSlots, sequences: Sequence[NativeSequence]) -> None:
    """Remove from native memory the tokens that the keepers of ``sequences`` evict. ``residents`` manages the native
    context. Raises OutOfKVMemory if a sequence cannot be made resident.
    """
    for sequence in sequences:
        if tokens := surplus(sequence):
            residents.make_resident([sequence])
            start, stop = (end + sequence.gap for end in (tokens.start, tokens.stop))
            removed = residents.native.remove(native_id(sequence), start, stop)
            assert removed, "only memory that can be cut gets such a keeper"
            sequence.dropped += len(tokens)
            sequence.gap += len(tokens)


def close_gaps(native: LlamaContext, sequences: Sequence[NativeSequence]) -> list[NativeSequence]:
    """Close the gaps that eviction left in the positions of resident sequences: move later tokens forward, behind the
    sinks. Returns the changed sequences, which must not share cells with other sequences. The next batch re-rotates the
    moved keys; until then nothing may read them.
    """
    moved = [sequence for sequence in sequences if sequence.gap]
    for sequence in moved:
        native.shift(native_id(sequence), sequence.keeper.sink_pages * PAGE + sequence.gap, -sequence.gap)
        sequence.gap = 0
    return moved


def evicted_ranges(sequence: NativeSequence) -> list[EvictedRange]:
    """Returns the evicted ranges of a sequence."""
    start = sequence.keeper.sink_pages * PAGE
    return [EvictedRange(start, start + sequence.dropped)] if sequence.dropped else []
