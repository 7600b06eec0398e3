"""Which sequences are resident in llama.cpp's context, and which wait in RAM. The context grows with them; where
it has no room, the sequence that was used longest ago is preempted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from localctx.errors import ModelError, NoRoom
from localctx.kv.keepers.full import Full
from localctx.kv.keepers.keeper import Keeper
from localctx.models.llama_cpp.context import LlamaContext, StateRefused
from localctx.models.llama_cpp.options import CELLS, ContextOptions, MemoryKind

SMALLEST = 2048  # tokens of the first context, if the model and the budget allow them


class SequenceMark(NamedTuple):
    """The first ``length`` tokens of a sequence, with the state there of what cannot be cut."""

    length: int
    state: np.ndarray


@dataclass(eq=False)
class NativeSequence:
    """One sequence of ``length`` tokens, which is ``expected`` to get so many. It is resident under the native ``id``,
    or its state is ``preempted``; neither while it is empty. ``used`` counts up with its use. ``lost``: an interrupted
    batch left its memory in an unknown state. ``mark`` is where it can go back to, if it cannot be cut. Forks of one
    sequence have one ``family``: they share cells.

    ``keeper`` evicts: ``dropped`` tokens after its sinks were. The positions after them have still to move by ``gap``
    (see ``sink_windows``). ``shares``: others of its family may have the same cells.
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
        """The tokens whose keys and values there are."""
        return self.length - self.dropped

    def position(self, length: int) -> int:
        """The native position after the first ``length`` tokens, none of which are evicted later than there."""
        return length - self.dropped + self.gap


class RetainedSequence(NamedTuple):
    """A sequence that nothing uses now, kept for what begins like it. ``ends`` are the names of its beginnings that are
    stored, with the token where each ends; the last is that of the whole.
    """

    ends: Mapping[bytes, int]
    sequence: NativeSequence


class ResidentSequences:
    """``make_context`` makes a native context of some size; ``max_cells`` is the most tokens that it may have, which
    changes with the memory that is free. One thread at a time.
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
        """The tokens that the native context has room for now; 0 before there is one."""
        return self._context.cells if self._context else 0

    @property
    def held(self) -> int:
        """The tokens of all resident sequences; what they share counts for each."""
        return sum(sequence.held for sequence in self._resident.values())

    def retain(self, ends: Mapping[bytes, int], sequence: NativeSequence) -> None:
        """Keep a resident ``sequence`` until another one begins. Only one: whatever is resident, llama.cpp's attention
        goes over it.
        """
        self.forget()
        self._retained = RetainedSequence(ends, sequence)

    def find_retained(self, name: bytes) -> tuple[NativeSequence, int] | None:
        """Returns the retained sequence, if it begins with what is stored under ``name``, and where that ends."""
        if not self._retained or name not in self._retained.ends:
            return None
        ends, sequence = self._retained
        return (sequence, ends[name]) if self._kind.rewinds or ends[name] == sequence.length else None

    def forget(self) -> bool:
        """Release the retained sequence; False if there is none."""
        if not self._retained:
            return False
        self.discard(self._retained.sequence)
        self._retained = None
        return True

    def reserve(self, tokens: int) -> None:
        """Make the context large enough for ``tokens`` more, as far as ``max_cells`` allows."""
        if tokens + self.held > self.cells:
            self._grow(tokens + self.held)

    def release(self) -> None:
        """Free the native context. What was resident is preempted, and goes on in another context when it is used."""
        self.forget()
        for sequence in list(self._resident.values()):
            self._preempt(sequence)
        if self._context:
            self._context.close()
            self._context = None

    @property
    def native(self) -> LlamaContext:
        """The native context, made when it is first needed."""
        if self._context is None:
            self._grow(SMALLEST)
        assert self._context
        return self._context

    def make_resident(self, sequences: Sequence[NativeSequence]) -> None:
        """Give each of ``sequences`` a native id, and the state that it was preempted with. Raises NoRoom;
        ModelError for one that is lost.
        """
        if new := [s for s in sequences if s.id is None and s.preempted is None]:
            self.forget()
            self.reserve(sum(s.expected for s in new))
        for sequence in sequences:
            if sequence.lost:
                raise ModelError("llama.cpp was interrupted, and lost what it had read", "ask again")
            sequence.used = self.tick()
            if sequence.id is None:
                sequence.id = self.take_id(sequence, sequences)
                if sequence.preempted is not None:
                    state, sequence.preempted = sequence.preempted, None
                    self._resume(sequence, state, sequences)
        if any(sequence.id is None for sequence in sequences):  # the context has grown for a later one
            self.make_resident(sequences)

    def isolate(self, sequence: NativeSequence) -> None:
        """Preempt what shares no cells with ``sequence``. llama.cpp's attention goes over every cell of the context: a
        chunk of a prompt is computed sooner without those of others, which cost no more than a copy in RAM.
        """
        if self._retained and self._retained.sequence.family is not sequence.family:
            self.forget()
        for other in list(self._resident.values()):
            if other.family is not sequence.family:
                self._preempt(other)

    def _resume(self, sequence: NativeSequence, state: np.ndarray, keep: Sequence[NativeSequence]) -> None:
        """Give a sequence the state that it was preempted with. Raises NoRoom, with the sequence preempted again."""
        while not self._restored(sequence, state):
            self._give_back(sequence)
            sequence.preempted = state
            self.make_room(sum(s.held for s in keep), keep)
            sequence.id, sequence.preempted = self.take_id(sequence, keep), None
        sequence.shares = False
        self.cut(sequence, sequence.length)

    def _restored(self, sequence: NativeSequence, state: np.ndarray) -> bool:
        """Put a state into a resident sequence; False if the context has no room for it."""
        try:
            self.native.set_state(native_id(sequence), state)
        except StateRefused:
            return False
        return True

    def separate(self, sequences: Sequence[NativeSequence], keep: Sequence[NativeSequence]) -> None:
        """Give resident ``sequences`` cells of their own, beside those in ``keep``, where forks may have the same."""
        for sequence in sequences:
            if sequence.shares:
                self._preempt(sequence)
                self.make_resident(keep)

    def take_id(self, sequence: NativeSequence, keep: Iterable[NativeSequence]) -> int:
        """Returns a native id for ``sequence``; the resident one that was used longest ago gives its own if need be."""
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
        """Make room after the context had none: let it grow, or else preempt a sequence not in ``keep``. Raises NoRoom
        where neither is possible.
        """
        if self.forget():
            return
        kept = set(map(id, keep))
        others = [sequence for sequence in self._resident.values() if id(sequence) not in kept]
        grows = self.cells < self.max_cells
        if others and not (grows and max(need, self.held) > self.cells):  # sliding windows do not grow
            self._preempt(min(others, key=lambda sequence: sequence.used))
        elif grows:
            self._grow(max(need, self.cells + 1))
        else:
            raise NoRoom({"device": self.cells}, need, f"llama.cpp's context has {self.cells:,} tokens")

    def _grow(self, tokens: int) -> None:
        """Make a context for ``tokens``, or twice the present one; everything resident is preempted."""
        cells = min(max(tokens, 2 * self.cells, SMALLEST), max(self.max_cells, CELLS))
        cells = -(-cells // CELLS) * CELLS
        if cells <= self.cells:
            return
        self.release()
        self._context = self._make_context(replace(self._options, cells=cells))

    def _preempt(self, sequence: NativeSequence) -> int:
        """Move a resident sequence to RAM; returns the id that it had."""
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
        """Release what a sequence takes, wherever it is."""
        if sequence.id is not None:
            self._give_back(sequence)
        sequence.preempted = None

    def tick(self) -> int:
        """The next number of the clock by which sequences are used."""
        self._clock += 1
        return self._clock

    def cut(self, sequence: NativeSequence, length: int) -> None:
        """Remove what the memory of a resident sequence has beyond ``length``, or else give the sequence up."""
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
    """The id of a resident sequence."""
    assert sequence.id is not None, "the sequence is resident"
    return sequence.id
