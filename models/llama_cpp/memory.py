"""LlamaMemory: holds the llama.cpp sequences of one model, codec and RoPE scaling. It computes, forks and trims them,
and takes snapshots.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from localctx.errors import Cancelled
from localctx.kv.backends.backend import MAX_DECODE_TOKENS
from localctx.models.llama_cpp.batches import Piece, native_batches, passes
from localctx.models.llama_cpp.context import KVCacheFull, LlamaContext, Row, StateRefused
from localctx.models.llama_cpp.options import ContextOptions, MemoryKind
from localctx.models.llama_cpp.sequence_slots import NativeSequence, SequenceMark, SequenceSlots, native_id
from localctx.models.llama_cpp.sink_windows import close_gaps, evict, evicted_ranges
from localctx.shape import PAGE


class LlamaMemory:
    """Manages the sequences of one model, codec and RoPE scaling in llama.cpp. ``make_context`` makes a native context
    of a given size. ``page_bytes`` is the size in bytes of the KV of one page (PAGE tokens). Sequences are computed
    together while their KV takes at most ``device_limit`` bytes (None: no limit). Thread-safe.
    """

    def __init__(
        self,
        make_context: Callable[[ContextOptions], LlamaContext],
        options: ContextOptions,
        kind: MemoryKind,
        page_bytes: int,
        device_limit: int | None = None,
    ) -> None:
        self.options, self.kind, self.page_bytes, self.device_limit = options, kind, page_bytes, device_limit
        self._residents = SequenceSlots(make_context, options, kind)
        self._lock, self._alone = threading.RLock(), True

    # --- Sizes

    @property
    def codec(self) -> str:
        """The codec of keys and values."""
        return self.options.kv

    @property
    def rope(self) -> object:
        """This memory itself. The scheduler computes sequences with the same ``rope`` in one pass, so sequences of two
        memories are never in one pass.
        """
        return self

    @property
    def bytes_of_page(self) -> int:
        return self.page_bytes

    def nbytes(self) -> dict[str, int]:
        """Returns the size in bytes of the keys and values of all resident sequences, as ``{"device": size}``. Tokens
        that several sequences share count for each sequence. Preempted sequences, which wait in RAM, do not count.
        """
        return {"device": self._residents.held * self.page_bytes // PAGE}

    def bytes_needed(self, requests: Sequence[tuple[Any, int]]) -> int:
        longest, new = dict[int, int](), 0
        for cache, tokens in requests:
            family = id(cache.sequence.family)
            longest[family], new = max(cache.sequence.held, longest.get(family, 0)), new + tokens
        return (sum(longest.values()) + new) * self.page_bytes // PAGE

    @property
    def cells(self) -> int:
        """The current capacity of the native context in tokens; 0 if there is none."""
        return self._residents.cells

    def allow(self, cells: int) -> None:
        """Set the maximum size of the native context to ``cells`` tokens."""
        with self._lock:
            self._residents.max_cells = cells

    def release(self) -> None:
        """Free the native context until it is needed again. Its sequences move to RAM."""
        with self._lock:
            self._residents.release()

    @property
    def _native(self) -> LlamaContext:
        return self._residents.native

    # --- Computing

    def forward(
        self,
        sequences: Sequence[NativeSequence],
        tokens: Sequence[Sequence[int]],
        num_logits: Sequence[int],
        cancelled: Callable[[], bool],
    ) -> list[Tensor]:
        """Append tokens to several sequences: ``tokens[i]`` to ``sequences[i]``. Returns the logits of the last
        ``num_logits[i]`` tokens of each sequence.

        On any exception the sequences are as before, except those that cannot be trimmed: they become ``lost``, because
        their state in native memory is unknown. Raises Cancelled, OutOfKVMemory.
        """
        done = dict[int, Tensor]()
        with self._lock:
            before = [sequence.length for sequence in sequences]
            self._alone = len(sequences) == 1  # else cancelling one sequence could lose another: see ``_decode``
            stop = cancelled if self._alone or self.kind.rewinds else lambda: False  # the others could not be trimmed
            try:
                for part in passes([len(own) for own in tokens], self.options.sequences - 1):
                    own = [sequences[i] for i in part], [tokens[i] for i in part], [num_logits[i] for i in part]
                    done.update(zip(part, self._forward(*own, stop), strict=True))
                evict(self._residents, sequences)
            except BaseException:
                for sequence, length in zip(sequences, before, strict=True):
                    self._roll_back(sequence, length)
                raise
        return [done[i] for i in range(len(sequences))]

    def _forward(
        self,
        sequences: Sequence[NativeSequence],
        tokens: Sequence[Sequence[int]],
        num_logits: Sequence[int],
        cancelled: Callable[[], bool],
    ) -> list[Tensor]:
        """Run ``forward`` for sequences that can be resident together. A sequence with a prefill chunk is run alone."""
        if len(tokens[0]) > MAX_DECODE_TOKENS:
            self._residents.isolate(sequences[0])
        self._residents.make_resident(sequences)
        evict(self._residents, sequences)  # from restored sequences
        logits: list[list[Tensor]] = [[] for _ in sequences]
        for batch in native_batches([len(t) for t in tokens], num_logits, self.options.batch):
            if cancelled():
                raise Cancelled
            outputs = self._decode(batch, sequences, tokens, cancelled)
            for (i, start, stop, _), own in zip(batch, outputs, strict=True):
                sequences[i].length += stop - start
                logits[i].append(own)
        return [own[0] if len(own) == 1 else torch.cat(own) for own in logits]

    def _decode(
        self,
        batch: Sequence[Piece],
        sequences: Sequence[NativeSequence],
        tokens: Sequence[Sequence[int]],
        cancelled: Callable[[], bool],
    ) -> list[Tensor]:
        """Compute one native batch. While the context has no room for the batch, tries to make room. Raises
        OutOfKVMemory, Cancelled.
        """
        computed = [sequences[i] for i, *_ in batch]
        while True:
            self._residents.separate([s for s in computed if s.gap], sequences)
            moved = close_gaps(self._native, computed)  # must be directly before the batch
            rows = [
                Row(native_id(sequences[i]), sequences[i].held, tokens[i][start:stop], wanted)
                for i, start, stop, wanted in batch
            ]
            try:
                return self._native.decode(rows, cancelled if self._alone or not moved else lambda: False)
            except KVCacheFull:
                need = sum(s.held for s in sequences) + sum(len(row.tokens) for row in rows)
                self._residents.make_room(need, sequences)
                self._residents.make_resident(sequences)
            except BaseException:
                for sequence in moved:
                    sequence.lost = True  # keys may be re-rotated in only some layers
                raise

    def _roll_back(self, sequence: NativeSequence, length: int) -> None:
        sequence.length = length
        if sequence.lost:
            self._residents.discard(sequence)
        elif sequence.id is not None:
            self._residents.cut(sequence, length)

    # --- Changing sequences

    def fork(self, sequence: NativeSequence) -> NativeSequence:
        """Returns a fork of the sequence: a sequence with the same tokens, which shares keys and values and can be
        extended independently.
        """
        with self._lock:
            twin = replace(sequence, expected=0, id=None, used=self._residents.tick())
            if sequence.id is not None:
                twin.id = self._residents.take_id(twin, keep=[sequence])
                assert sequence.id is not None, "a sequence that is kept stays resident"
                self._native.copy(sequence.id, twin.id)
                sequence.shares = twin.shares = True
            return twin

    def mark(self, sequence: NativeSequence) -> None:
        """Save a mark at the current length, to which the sequence can return. Does nothing if the sequence can be
        trimmed anywhere.
        """
        if not self.kind.rewinds:
            with self._lock:
                self._residents.make_resident([sequence])
                sequence.mark = SequenceMark(sequence.length, self._native.state(native_id(sequence), partial=True))

    def can_trim(self, sequence: NativeSequence, length: int) -> bool:
        """Returns True if the sequence can be trimmed to ``length`` tokens. That depends on the model's sliding windows
        and recurrent states (``MemoryKind``). A sequence can always return to its mark, and never to a length inside
        its evicted range.
        """
        if any(0 < length < evicted.stop for evicted in evicted_ranges(sequence)):
            return False
        if length in (0, sequence.length) or self.kind.rewinds or (sequence.mark and sequence.mark.length == length):
            return True
        if self.kind.recurrent:
            return False
        with self._lock:
            self._residents.make_resident([sequence])
            first = self._native.positions(native_id(sequence))[0]
        return first <= max(0, length - self.kind.window)

    def trim(self, sequence: NativeSequence, length: int) -> None:
        """Trim the sequence to its first ``length`` tokens; ``can_trim`` must have returned True."""
        with self._lock:
            if length == 0:
                self.drop(sequence)
                sequence.lost, sequence.mark = False, None
            elif length < sequence.length:
                self._residents.make_resident([sequence])
                if sequence.mark and sequence.mark.length == length:
                    self._go_back(sequence, sequence.mark)
                position = sequence.position(length)
                removed = self._native.remove(native_id(sequence), position, -1)
                assert removed, "can_trim is asked before"
                assert self._native.positions(native_id(sequence))[1] == position - 1, "a mark is of its own sequence"
                sequence.length = length
                if sequence.mark and sequence.mark.length > length:
                    sequence.mark = None  # other text may follow

    def _go_back(self, sequence: NativeSequence, mark: SequenceMark) -> None:
        """Restore the state that was saved at ``mark``. Raises StateRefused, after which the sequence is lost."""
        try:
            self._native.set_state(native_id(sequence), mark.state, partial=True)
        except StateRefused:
            sequence.lost = True
            self.drop(sequence)
            raise

    def drop(self, sequence: NativeSequence) -> None:
        """Release all memory of the sequence."""
        with self._lock:
            self._residents.discard(sequence)
            sequence.length = sequence.dropped = sequence.gap = 0

    # --- Retained sequences

    def retain(self, sequence: NativeSequence, ends: Mapping[bytes, int], length: int) -> None:
        """Keep the first ``length`` tokens of a sequence in memory for later sequences, while there is room. ``ends``
        maps the names of prefixes to their lengths in tokens; the last prefix has ``length`` tokens. Does nothing if
        the sequence is not resident, if tokens were evicted, or if it cannot be trimmed to ``length``.
        """
        with self._lock:
            if sequence.id is None or sequence.lost or sequence.dropped or not self.can_trim(sequence, length):
                return
            twin = self.fork(sequence)
            self.trim(twin, length)
            self._residents.retain(ends, twin)

    def fork_retained(self, name: bytes) -> NativeSequence | None:
        """Returns a new sequence with the tokens of the prefix that ``retain`` kept under ``name``. Returns None if the
        prefix is no longer in memory, or if native memory has another number of tokens than it should.
        """
        with self._lock:
            if found := self._residents.find_retained(name):
                twin = self.fork(found[0])
                self.trim(twin, found[1])
                if self._native.positions(native_id(twin))[1] + 1 == twin.length:
                    return twin
                self.drop(twin)
            return None

    # --- Snapshots

    def snapshot(self, sequence: NativeSequence, start: int) -> np.ndarray:
        """Returns a snapshot as bytes: the keys and values of the tokens from ``start`` to the end of the sequence, and
        the recurrent states after the last token. Nothing may have been evicted. Raises StateRefused, OutOfKVMemory.
        """
        assert not sequence.dropped, "a snapshot is what its tokens say"
        with self._lock:
            self._residents.make_resident([sequence])
            native = self._native
            native.copy(native_id(sequence), native.scratch, start, sequence.length)
            try:
                return native.state(native.scratch)
            finally:
                native.remove(native.scratch)

    def append(self, sequence: NativeSequence, stop: int, state: np.ndarray) -> None:
        """Append to the sequence a ``snapshot`` of the tokens from the sequence's end to ``stop``.

        Checks afterwards that native memory has the right number of tokens. Raises StateRefused, after which the
        sequence is empty, and OutOfKVMemory.
        """
        with self._lock:
            start = sequence.length
            self._residents.make_resident([sequence])
            evict(self._residents, [sequence])
            assert sequence.gap == sequence.dropped, "snapshots have their own positions, and come first"
            self._set_state(state, stop - sequence.dropped, [sequence])
            native = self._native
            if native.positions(native.scratch)[1] == stop - 1:
                native.copy(native.scratch, native_id(sequence), start, stop)
            native.remove(native.scratch)
            sequence.length = native.positions(native_id(sequence))[1] + 1
            if sequence.length != stop:
                self.drop(sequence)
                raise StateRefused(f"it holds no tokens {start:,} to {stop:,}")

    def _set_state(self, state: np.ndarray, cells: int, keep: Sequence[NativeSequence]) -> None:
        """Restore a state into the scratch sequence, making room as long as that may help. Raises StateRefused,
        OutOfKVMemory.
        """
        while True:
            try:
                return self._native.set_state(self._native.scratch, state)
            except StateRefused:
                if self._residents.held == sum(s.held for s in keep) and self.cells > 2 * cells:
                    raise
                self._residents.make_room(cells, keep)
                self._residents.make_resident(keep)
