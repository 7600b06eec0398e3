"""LlamaCache: the cache of one sequence; llama.cpp holds its keys, values and states."""

from collections.abc import Mapping, Sequence

import numpy as np

from localctx.kv.eviction_log import EvictedRange
from localctx.kv.keepers.keeper import Keeper, Phase
from localctx.kv.pages import Activation
from localctx.models.llama_cpp.memory import LlamaMemory
from localctx.models.llama_cpp.sequence_slots import NativeSequence
from localctx.models.llama_cpp.sink_windows import evicted_ranges


class LlamaCache:
    """The cache of one sequence, with the methods of ``localctx.kv.sequence_cache.SequenceCache``. llama.cpp holds its
    keys, values and recurrent states; ``memory`` manages them.

    Some sequences cannot be trimmed to any length (``MemoryKind``). Such a sequence can at least return to its mark,
    which is set at the end of the documents or of the last chat turn.
    """

    activation: Activation | None = None
    joins_chunks = False
    attention_mass: np.ndarray | None = None  # llama.cpp does not report attention

    def __init__(self, memory: LlamaMemory, sequence: NativeSequence) -> None:
        self.memory, self.sequence = memory, sequence

    @property
    def keeper(self) -> Keeper:
        """The eviction policy."""
        return self.sequence.keeper

    @property
    def pool(self) -> LlamaMemory:
        return self.memory

    @property
    def length(self) -> int:
        """The number of committed tokens."""
        return self.sequence.length

    @property
    def exact(self) -> bool:
        """True if nothing was evicted, and no interrupted batch left the sequence in an unknown state."""
        return not (self.sequence.lost or self.sequence.dropped)

    @property
    def evicted(self) -> Sequence[EvictedRange]:
        return evicted_ranges(self.sequence)

    @property
    def dropped(self) -> int:
        return self.sequence.dropped

    def enter_phase(self, phase: Phase) -> None:
        """Do nothing: no keeper here depends on the phase."""

    def finish_prefill(self) -> None:
        """Do nothing: no keeper here compresses a prompt."""

    def record_attention(self) -> None:
        """Do nothing: there is no attention to record."""

    def mark(self) -> None:
        """Save a mark at the current length, to which ``trim`` can always return."""
        self.memory.mark(self.sequence)

    def trimmable(self, length: int) -> int:
        if self.memory.can_trim(self.sequence, length):
            return length
        mark = self.sequence.mark
        return mark.length if mark and mark.length <= length else 0

    def trim(self, length: int) -> None:
        assert 0 <= length <= self.length
        assert self.memory.can_trim(self.sequence, length), "trimmable is asked before"
        self.memory.trim(self.sequence, length)

    def fork(self, keeper: Keeper | None = None, *, recording: bool = True) -> "LlamaCache":
        twin = LlamaCache(self.memory, self.memory.fork(self.sequence))
        twin.sequence.keeper = keeper or self.keeper
        twin.joins_chunks = self.joins_chunks
        return twin

    def snapshot(self, start: int) -> np.ndarray:
        """Returns a snapshot as bytes: the keys and values of the tokens from ``start`` to the end, and the recurrent
        states after the last token. Raises StateRefused, OutOfKVMemory.
        """
        return self.memory.snapshot(self.sequence, start)

    def append(self, stop: int, state: np.ndarray) -> None:
        """Append to this sequence the snapshot ``state``, which has the tokens from this sequence's end to ``stop``.
        Raises StateRefused, after which the sequence is empty, and OutOfKVMemory.
        """
        self.memory.append(self.sequence, stop, state)

    def begin_with(self, name: bytes) -> bool:
        """Fill this empty cache with a prefix that ``retain`` kept in memory under ``name``. Returns False if that
        prefix is no longer in memory.
        """
        if not (sequence := self.memory.fork_retained(name)):
            return False
        sequence.keeper = self.keeper
        self.sequence = sequence
        return True

    def retain(self, ends: Mapping[bytes, int]) -> None:
        """Keep prefixes of this sequence in memory for later sequences, while there is room. ``ends`` maps the name of
        each prefix to its length in tokens; the last prefix is the longest.
        """
        self.memory.retain(self.sequence, ends, max(ends.values()))

    def drop(self) -> None:
        """Release all memory of the sequence."""
        self.memory.drop(self.sequence)
