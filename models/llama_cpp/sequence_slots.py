"""Manages the sequences of llama.cpp's context: some are resident in it, others wait in RAM (preempted). The context
grows with them. When it is full, the least recently used sequence is preempted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from localctx.errors import ModelError, OutOfKVMemory
from localctx.kv.keepers.full import Full
from localctx.kv.keepers.keeper import Keeper
from localctx.models.llama_cpp.context import LlamaContext, StateRefused
from localctx.models.llama_cpp.options import CELLS, ContextOptions, MemoryKind

SMALLEST = 2048  # tokens of the first context, if model and budget allow


class SequenceMark(NamedTuple):
    """A length in tokens to which a sequence can return, although it cannot be trimmed to any length. ``state`` holds
    the sliding windows and recurrent states as they were at that length.
    """

    length: int
    state: np.ndarray


@dataclass(eq=False)
class NativeSequence:
    """One sequence of ``length`` tokens in llama.cpp; ``expected`` is its final length. A resident sequence has the
    native ``id``. A preempted sequence has its state in ``preempted``, and an empty sequence may have neither. ``used``
    is the clock value of the last use. ``lost`` is True if an interrupted batch left the memory of the sequence in an
    unknown state. ``mark`` is a length to which the sequence can return if it cannot be trimmed. Forks of a sequence
    have the same ``family`` and may share memory cells.

    ``keeper`` is the eviction policy. ``dropped`` is the number of tokens that were evicted after the sinks. ``gap`` is
    the number of positions by which later tokens must still move before the next tokens are computed. ``shares`` is
    True if other sequences of the family may have the same cells.
    """

    length: int = 0
    expected: int = 0
    id: int | None = None
    preempted: np.ndarray | None = None
    used: int = 0
    lost: bool = False
    mark: SequenceMark | None = None
    family: object = field(default_factory=object)
    keeper: Keeper = field(default_factory=Full)
    dropped: int = 0
    gap: int = 0
    shares: bool = False

    @property
    def held(self) -> int:
        """The number of tokens that are not evicted."""
        return self.length - self.dropped

    def position(self, length: int) -> int:
        """Returns the native position that follows the first ``length`` tokens of the sequence. ``length`` must include
        all evicted tokens.
        """
        return length - self.dropped + self.gap


class RetainedSequence(NamedTuple):
    """A sequence that is no longer in use, kept in memory for later sequences with the same prefix. ``ends`` maps the
    names of its prefixes to their lengths in tokens; the last one is the whole sequence.
    """

    ends: Mapping[bytes, int]
    sequence: NativeSequence


class SequenceSlots:
    """The sequences of one native context: resident, preempted or retained. ``make_context`` makes a context of a given
    size. ``max_cells`` is the maximum size of the context in tokens, which changes with free memory. Use it from one
    thread at a time.
    """

    def __init__(
        self, make_context: Callable[[ContextOptions], LlamaContext], options: ContextOptions, kind: MemoryKind
    ) -> None:
        self._make_context, self._options, self._kind = make_context, options, kind
        self.max_cells = options.cells
        self._context: LlamaContext | None = None
        self._resident = dict[int, NativeSequence]()
        self._retained: RetainedSequence | None = None
        self._clock = 0

    @property
    def cells(self) -> int:
        """The current capacity of the native context in tokens; 0 if there is none."""
        return self._context.cells if self._context else 0

    @property
    def held(self) -> int:
        """The number of tokens of all resident sequences. Tokens that several sequences share count for each
        sequence.
        """
        return sum(sequence.held for sequence in self._resident.values())

    def retain(self, ends: Mapping[bytes, int], sequence: NativeSequence) -> None:
        """Keep a resident ``sequence`` that is no longer in use, until another sequence is prefilled or retained, or
        memory is needed. ``ends`` maps the names of its prefixes to their lengths in tokens. Only one sequence is
        retained, because llama.cpp's attention scans everything that is resident.
        """
        self.forget()
        self._retained = RetainedSequence(ends, sequence)

    def find_retained(self, name: bytes) -> tuple[NativeSequence, int] | None:
        """Returns the retained sequence, and the length in tokens of its prefix ``name``. Returns None if no retained
        sequence has that prefix, or if it cannot be trimmed to it.
        """
        if not self._retained or name not in self._retained.ends:
            return None
        ends, sequence = self._retained
        return (sequence, ends[name]) if self._kind.rewinds or ends[name] == sequence.length else None

    def forget(self) -> bool:
        """Release the memory of the retained sequence. Returns False if there is none."""
        if not self._retained:
            return False
        self.discard(self._retained.sequence)
        self._retained = None
        return True

    def reserve(self, tokens: int) -> None:
        """Grow the context for ``tokens`` more tokens, as far as ``max_cells`` allows."""
        if tokens + self.held > self.cells:
            self._grow(tokens + self.held)

    def release(self) -> None:
        """Free the native context. Resident sequences are preempted and resume in a new context when used."""
        self.forget()
        for sequence in list(self._resident.values()):
            self._preempt(sequence)
        if self._context:
            self._context.close()
            self._context = None

    @property
    def native(self) -> LlamaContext:
        """The native context, created when first needed."""
        if self._context is None:
            self._grow(SMALLEST)
        assert self._context
        return self._context

    def make_resident(self, sequences: Sequence[NativeSequence]) -> None:
        """Give each of ``sequences`` a native id and restore its preempted state. Raises OutOfKVMemory, and ModelError
        for a lost sequence.
        """
        if new := [s for s in sequences if s.id is None and s.preempted is None]:
            self.forget()
            self.reserve(sum(s.expected for s in new))
        for sequence in sequences:
            if sequence.lost:
                raise ModelError("llama.cpp was interrupted, and lost the text that it had read", "ask again")
            sequence.used = self.tick()
            if sequence.id is None:
                sequence.id = self.take_id(sequence, sequences)
                if sequence.preempted is not None:
                    state, sequence.preempted = sequence.preempted, None
                    self._resume(sequence, state, sequences)
        if any(sequence.id is None for sequence in sequences):  # the context grew for a later one
            self.make_resident(sequences)

    def isolate(self, sequence: NativeSequence) -> None:
        """Preempt all sequences that share no cells with ``sequence``. llama.cpp's attention scans every cell of the
        context, so a prefill chunk is faster without other sequences. Preempting costs only a copy to RAM.
        """
        if self._retained and self._retained.sequence.family is not sequence.family:
            self.forget()
        for other in list(self._resident.values()):
            if other.family is not sequence.family:
                self._preempt(other)

    def _resume(self, sequence: NativeSequence, state: np.ndarray, keep: Sequence[NativeSequence]) -> None:
        """Restore the ``state`` of a preempted sequence. Raises OutOfKVMemory, after which the sequence is preempted
        again.
        """
        while not self._restored(sequence, state):
            self._give_back(sequence)
            sequence.preempted = state
            self.make_room(sum(s.held for s in keep), keep)
            sequence.id, sequence.preempted = self.take_id(sequence, keep), None
        sequence.shares = False
        self.cut(sequence, sequence.length)

    def _restored(self, sequence: NativeSequence, state: np.ndarray) -> bool:
        """Try to restore ``state`` into a resident sequence. Returns False if the context has no room for it."""
        try:
            self.native.set_state(native_id(sequence), state)
        except StateRefused:
            return False
        return True

    def separate(self, sequences: Sequence[NativeSequence], keep: Sequence[NativeSequence]) -> None:
        """Move resident ``sequences`` that may share memory cells with forks to cells of their own. Sequences in
        ``keep`` stay resident.
        """
        for sequence in sequences:
            if sequence.shares:
                self._preempt(sequence)
                self.make_resident(keep)

    def take_id(self, sequence: NativeSequence, keep: Iterable[NativeSequence]) -> int:
        """Returns a native id for ``sequence``. If no id is free, the retained sequence gives up its id, or else the
        least recently used sequence that is not in ``keep`` is preempted.
        """
        native = self.native
        free = next((i for i in range(native.scratch) if i not in self._resident), None)
        kept = set(map(id, keep))
        if free is None and self._retained and id(self._retained.sequence) not in kept:
            self.forget()
            return self.take_id(sequence, keep)
        if free is None:
            oldest = min((s for s in self._resident.values() if id(s) not in kept), key=lambda s: s.used)
            free = self._preempt(oldest)
        self._resident[free] = sequence
        return free

    def make_room(self, need: int, keep: Sequence[NativeSequence]) -> None:
        """Make room in a full context for sequences that have ``need`` tokens in all. Release the retained sequence,
        grow the context, or preempt a sequence that is not in ``keep``. Raises OutOfKVMemory if none of these is
        possible.
        """
        if self.forget():
            return
        kept = set(map(id, keep))
        others = [sequence for sequence in self._resident.values() if id(sequence) not in kept]
        grows = self.cells < self.max_cells
        if others and not (grows and max(need, self.held) > self.cells):  # memory of sliding windows does not grow
            self._preempt(min(others, key=lambda sequence: sequence.used))
        elif grows:
            self._grow(max(need, self.cells + 1))
        else:
            raise OutOfKVMemory({"device": self.cells}, need, f"llama.cpp's context has {self.cells:,} tokens")

    def _grow(self, tokens: int) -> None:
        """Make a larger context for ``tokens`` tokens, at least twice the current size if that is allowed. Resident
        sequences are preempted.
        """
        cells = min(max(tokens, 2 * self.cells, SMALLEST), max(self.max_cells, CELLS))
        cells = -(-cells // CELLS) * CELLS
        if cells <= self.cells:
            return
        self.release()
        self._context = self._make_context(replace(self._options, cells=cells))

    def _preempt(self, sequence: NativeSequence) -> int:
        """Move a resident sequence to RAM. Returns its former id."""
        assert self._context
        assert sequence.id is not None
        if sequence.length:
            sequence.preempted = self._context.state(sequence.id)
        return self._give_back(sequence)

    def _give_back(self, sequence: NativeSequence) -> int:
        assert sequence.id is not None
        assert self._context
        self._context.remove(sequence.id)
        del self._resident[sequence.id]
        free, sequence.id = sequence.id, None
        return free

    def discard(self, sequence: NativeSequence) -> None:
        """Release all memory of a sequence, resident or preempted."""
        if sequence.id is not None:
            self._give_back(sequence)
        sequence.preempted = None

    def tick(self) -> int:
        """Advance the clock that orders the uses of sequences, and return its new value."""
        self._clock += 1
        return self._clock

    def cut(self, sequence: NativeSequence, length: int) -> None:
        """Trim the memory of a resident sequence to ``length`` tokens. If that is impossible, release its memory and
        mark it as ``lost``.
        """
        native = self.native
        position = sequence.position(length)
        if native.positions(native_id(sequence))[1] == position - 1:
            return
        if self._kind.rewinds:
            native.remove(native_id(sequence), position, -1)
        else:
            self.discard(sequence)
            sequence.lost = True


def native_id(sequence: NativeSequence) -> int:
    """Returns the native id of a resident sequence."""
    assert sequence.id is not None, "the sequence is resident"
    return sequence.id
