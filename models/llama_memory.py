"""LlamaMemory: the sequences of one model, codec and RoPE scaling. Those that are computed now are resident in a native
context, which grows with them; where it has no room, the one used longest ago is preempted: its state waits in RAM.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from localctx.errors import Cancelled, NoRoom
from localctx.models.llama_context import LlamaContext, NoCells, Row, StateRefused
from localctx.models.llama_options import CELLS, MAX_OUTPUTS, ContextOptions, MemoryKind
from localctx.shape import PAGE

SMALLEST = 2048  # tokens of the first context, if the model and the budget allow them


@dataclass(eq=False)
class NativeSequence:
    """One sequence of ``length`` tokens, which is ``expected`` to get so many. It is resident under the native ``id``,
    or its state is ``preempted``; neither while it is empty. ``used`` counts up with its use. ``lost``: an interrupted
    batch left its memory in an unknown state.
    """

    length: int = 0
    expected: int = 0
    id: int | None = None
    preempted: np.ndarray | None = None
    used: int = 0
    lost: bool = False


class LlamaMemory:
    """``make_context`` makes a native context. ``max_cells`` is the most tokens that it may have, which changes with
    the memory that is free; ``page_bytes`` are those of PAGE tokens. Any thread may call; one at a time is served.
    """

    def __init__(
        self,
        make_context: Callable[[ContextOptions], LlamaContext],
        options: ContextOptions,
        kind: MemoryKind,
        page_bytes: int,
    ) -> None:
        self._make_context, self.options, self.kind, self.page_bytes = make_context, options, kind, page_bytes
        self._make_context, self.options, self.kind = make_context, options, kind
        self.max_cells = options.cells
        self._context: LlamaContext | None = None
        self._resident = dict[int, NativeSequence]()
        self._clock = 0
        self._lock = threading.RLock()

    # --- What there is

    device_limit = None  # sequences are preempted by themselves

    @property
    def codec(self) -> str:
        """The codec of keys and values."""
        return self.options.kv

    @property
    def rope(self) -> object:
        """See ``SequenceMemory``: a pass computes sequences of one memory."""
        return self

    @property
    def bytes_of_page(self) -> int:
        """See ``SequenceMemory``."""
        return self.page_bytes

    def nbytes(self) -> dict[str, int]:
        """See ``SequenceMemory``: resident sequences, by their length, and those in RAM."""
        with self._lock:
            held = sum(sequence.length for sequence in self._resident.values())
        return {"device": held * self.page_bytes // PAGE}

    def bytes_needed(self, requests: Sequence[tuple[Any, int]]) -> int:
        """See ``SequenceMemory``."""
        return 0

    @property
    def cells(self) -> int:
        """The tokens that the native context has room for now; 0 before there is one."""
        return self._context.cells if self._context else 0

    @property
    def can_shift(self) -> bool:
        """True if positions can be moved."""
        return self._native.can_shift

    def reserve(self, tokens: int) -> None:
        """Make the context large enough for ``tokens`` more, as far as ``max_cells`` allows."""
        with self._lock:
            held = sum(sequence.length for sequence in self._resident.values())
            if tokens + held > self.cells:
                self._grow(tokens + held)

    def close(self) -> None:
        """Free the native context. Sequences are lost."""
        with self._lock:
            for sequence in self._resident.values():
                sequence.id, sequence.lost = None, True
            self._resident = {}
            if self._context:
                self._context.close()
                self._context = None

    # --- Computing

    def forward(
        self,
        sequences: Sequence[NativeSequence],
        tokens: Sequence[Sequence[int]],
        num_logits: Sequence[int],
        cancelled: Callable[[], bool],
    ) -> list[Tensor]:
        """Append ``tokens`` to each of ``sequences``; returns the logits of the last ``num_logits`` of each.

        On any exception they are as before, except that one whose memory cannot be cut is then ``lost``. Raises
        Cancelled, NoRoom.
        """
        most, done = self.options.sequences - 1, list[Tensor]()
        with self._lock:
            before = [sequence.length for sequence in sequences]
            try:
                for at in range(0, len(sequences), most):
                    part = slice(at, at + most)
                    done += self._forward(sequences[part], tokens[part], num_logits[part], cancelled)
            except BaseException:
                for sequence, length in zip(sequences, before, strict=True):
                    self._roll_back(sequence, length)
                raise
        return done

    def _forward(
        self,
        sequences: Sequence[NativeSequence],
        tokens: Sequence[Sequence[int]],
        num_logits: Sequence[int],
        cancelled: Callable[[], bool],
    ) -> list[Tensor]:
        """``forward`` for sequences that are resident together."""
        self._make_resident(sequences)
        logits: list[list[Tensor]] = [[] for _ in sequences]
        for batch in _batches([len(t) for t in tokens], num_logits, self.options.batch):
            if cancelled():
                raise Cancelled
            outputs = self._decode(batch, sequences, tokens, cancelled)
            for (i, start, stop, _), own in zip(batch, outputs, strict=True):
                sequences[i].length += stop - start
                logits[i].append(own)
        return [torch.cat(own) for own in logits]

    def _decode(
        self,
        batch: Sequence["Piece"],
        sequences: Sequence[NativeSequence],
        tokens: Sequence[Sequence[int]],
        cancelled: Callable[[], bool],
    ) -> list[Tensor]:
        """Compute one native batch; room is made for it as long as that is possible."""
        while True:
            rows = [
                Row(_id(sequences[i]), sequences[i].length, tokens[i][start:stop], wanted)
                for i, start, stop, wanted in batch
            ]
            try:
                return self._native.decode(rows, cancelled)
            except NoCells:
                need = sum(s.length for s in sequences) + sum(len(row.tokens) for row in rows)
                self._make_room(need, sequences)
                self._make_resident(sequences)

    def _roll_back(self, sequence: NativeSequence, length: int) -> None:
        sequence.length = length
        if sequence.id is None:
            return
        self._cut(sequence, length)

    def _cut(self, sequence: NativeSequence, length: int) -> None:
        """Remove what the memory of a resident sequence has beyond ``length``, or else give the sequence up."""
        native = self._native
        if native.positions(_id(sequence))[1] == length - 1:
            return
        if self.kind.rewinds:
            native.remove(_id(sequence), length, -1)
        else:
            self._discard(sequence)
            sequence.lost = True

    # --- Changing sequences

    def fork(self, sequence: NativeSequence) -> NativeSequence:
        """Returns another sequence with the same past. Keys and values are shared."""
        with self._lock:
            twin = NativeSequence(sequence.length, 0, None, sequence.preempted, self._tick(), sequence.lost)
            if sequence.id is not None:
                twin.id = self._take_id(twin, keep=[sequence])
                if sequence.id is None:  # it gave its place
                    raise AssertionError("a sequence that is kept stays resident")
                self._native.copy(sequence.id, twin.id)
            return twin

    def can_trim(self, sequence: NativeSequence, length: int) -> bool:
        """True if the sequence can be cut to ``length`` tokens: see ``MemoryKind``."""
        if length in (0, sequence.length) or self.kind.rewinds:
            return True
        if self.kind.recurrent or not self.kind.windows:
            return False
        with self._lock:
            self._make_resident([sequence])
            first = self._native.positions(_id(sequence))[0]
        return first <= max(0, length - self.kind.windows)

    def trim(self, sequence: NativeSequence, length: int) -> None:
        """Keep the first ``length`` tokens, which ``can_trim`` allowed."""
        with self._lock:
            if length == 0:
                self._discard(sequence)
                sequence.length, sequence.lost = 0, False
            elif length < sequence.length:
                self._make_resident([sequence])
                assert self._native.remove(_id(sequence), length, -1), "can_trim is asked before"
                sequence.length = length

    def drop(self, sequence: NativeSequence) -> None:
        """Release everything that the sequence takes."""
        with self._lock:
            self._discard(sequence)
            sequence.length = 0

    # --- Snapshots

    def snapshot(self, sequence: NativeSequence, start: int) -> np.ndarray:
        """Returns the state of the tokens from ``start`` to the sequence's end, with the recurrent states there."""
        with self._lock:
            self._make_resident([sequence])
            native = self._native
            native.copy(_id(sequence), native.scratch, start, sequence.length)
            try:
                return native.state(native.scratch)
            finally:
                native.remove(native.scratch)

    def append(self, sequence: NativeSequence, stop: int, state: np.ndarray) -> None:
        """Append what ``snapshot`` returned for the tokens from the sequence's end to ``stop``.

        The native memory is asked afterwards what it holds. Raises StateRefused, with the sequence empty; NoRoom.
        """
        with self._lock:
            start = sequence.length
            self._make_resident([sequence])
            self._set_state(state, stop, [sequence])
            native = self._native
            if native.positions(native.scratch)[1] == stop - 1:
                native.copy(native.scratch, _id(sequence), start, stop)
            native.remove(native.scratch)
            sequence.length = native.positions(_id(sequence))[1] + 1
            if sequence.length != stop:
                self._discard(sequence)
                sequence.length = 0
                raise StateRefused(f"it holds no tokens {start:,} to {stop:,}")

    def _set_state(self, state: np.ndarray, cells: int, keep: Sequence[NativeSequence]) -> None:
        """Put a state into the scratch sequence. Where there is no room for it, room is made once."""
        try:
            self._native.set_state(self._native.scratch, state)
        except StateRefused:
            self._make_room(cells, keep)
            self._make_resident(keep)
            self._native.set_state(self._native.scratch, state)

    # --- Who is resident

    @property
    def _native(self) -> LlamaContext:
        if self._context is None:
            self._grow(SMALLEST)
        assert self._context
        return self._context

    def _make_resident(self, sequences: Sequence[NativeSequence]) -> None:
        if new := sum(s.expected for s in sequences if s.id is None and s.preempted is None):
            self.reserve(new)
        for sequence in sequences:
            assert not sequence.lost, "a sequence whose batch was interrupted is not used again"
            sequence.used = self._tick()
            if sequence.id is None:
                sequence.id = self._take_id(sequence, sequences)
                if sequence.preempted is not None:
                    state, sequence.preempted = sequence.preempted, None
                    self._resume(sequence, state, sequences)

    def _resume(self, sequence: NativeSequence, state: np.ndarray, keep: Sequence[NativeSequence]) -> None:
        try:
            self._native.set_state(_id(sequence), state)
        except StateRefused:
            self._give_back(sequence)
            sequence.preempted = state
            self._make_room(sum(s.length for s in keep), keep)
            sequence.id, sequence.preempted = self._take_id(sequence, keep), None
            self._native.set_state(sequence.id, state)
        self._cut(sequence, sequence.length)

    def _take_id(self, sequence: NativeSequence, keep: Iterable[NativeSequence]) -> int:
        """Returns a native id for ``sequence``; the resident one that was used longest ago gives its own if need be."""
        native = self._native
        free = next((i for i in range(native.scratch) if i not in self._resident), None)
        if free is None:
            kept = set(map(id, keep))
            oldest = min((s for s in self._resident.values() if id(s) not in kept), key=lambda s: s.used)
            free = self._preempt(oldest)
        self._resident[free] = sequence
        return free

    def _make_room(self, need: int, keep: Sequence[NativeSequence]) -> None:
        """Make room after the context had none: let it grow, or else preempt a sequence not in ``keep``. Raises NoRoom
        where neither is possible.
        """
        if self.cells < self.max_cells:
            self._grow(max(need, self.cells + 1))
            return
        kept = set(map(id, keep))
        others = [sequence for sequence in self._resident.values() if id(sequence) not in kept]
        if not others:
            raise NoRoom({"device": self.cells}, need, f"llama.cpp's context has {self.cells:,} tokens")
        self._preempt(min(others, key=lambda sequence: sequence.used))

    def _grow(self, tokens: int) -> None:
        """Make a context for ``tokens``, or twice the present one; everything resident is preempted."""
        cells = min(max(tokens, 2 * self.cells, SMALLEST), max(self.max_cells, CELLS))
        cells = -(-cells // CELLS) * CELLS
        if cells <= self.cells:
            return
        for sequence in list(self._resident.values()):
            self._preempt(sequence)
        if self._context:
            self._context.close()
            self._context = None
        self._context = self._make_context(replace(self.options, cells=cells))

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

    def _discard(self, sequence: NativeSequence) -> None:
        if sequence.id is not None:
            self._give_back(sequence)
        sequence.preempted = None

    def _tick(self) -> int:
        self._clock += 1
        return self._clock


def _id(sequence: NativeSequence) -> int:
    assert sequence.id is not None, "the sequence is resident"
    return sequence.id


Piece = tuple[int, int, int, int]
"""Tokens ``start..stop`` of sequence ``i``, and how many of the last of them have logits that are wanted."""


def _batches(counts: Sequence[int], num_logits: Sequence[int], size: int) -> list[list[Piece]]:
    """Distributes sequences of ``counts`` tokens over native batches of at most ``size`` tokens and MAX_OUTPUTS
    outputs. A sequence is cut where it has more tokens, or more wanted logits, than there is room for.
    """
    batches, tokens, outputs = list[list[Piece]]([[]]), 0, 0
    for i, (count, wanted) in enumerate(zip(counts, num_logits, strict=True)):
        at = 0
        while at < count:
            room = min(size - tokens, count - at)
            silent = max(0, count - wanted - at)  # tokens before those whose logits are wanted
            take = room if room <= silent else min(room, silent + MAX_OUTPUTS - outputs)
            if take <= 0:
                batches.append([])
                tokens = outputs = 0
                continue
            with_logits = max(0, take - silent)
            batches[-1].append((i, at, at + take, with_logits))
            at, tokens, outputs = at + take, tokens + take, outputs + with_logits
    return [batch for batch in batches if batch]
