"""Cache: one sequence as ordered sealed pages and an open, full-precision tail.

A step appends the same tokens to every layer, layer by layer: ``begin``, ``extend`` for each layer, then ``commit``.
``rollback`` instead of ``commit`` leaves the sequence as it was before ``begin``.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from localctx.kv.tiers import Pool
from localctx.shape import PAGE


@dataclass
class _Layer:
    """The tail (k and v [kv_heads, 64, dim], the first ``length % 64`` valid) and the sealed records' addresses."""

    k: Tensor
    v: Tensor
    addresses: np.ndarray
    next_tail: tuple[Tensor, Tensor] | None = None


class Cache:
    """What a model remembers of one sequence. ``length`` counts the committed tokens."""

    keeper = "full"

    def __init__(self, pool: Pool, dtype: torch.dtype) -> None:
        self.pool, self.dtype = pool, dtype
        self.length = 0
        self.pages: list[int] = []
        self._pending: list[int] = []
        self._step = 0
        self._layers = [self._empty_layer(i) for i in range(len(pool.codecs))]

    @property
    def tail(self) -> int:
        """Tokens in the open page."""
        return self.length % PAGE

    @property
    def position(self) -> int:
        """The position of the next token."""
        return self.length

    def begin(self, tokens: int) -> None:
        """Start a step of ``tokens`` tokens."""
        assert not self._step, "a step is open"
        assert tokens > 0
        self._step = tokens
        self._pending = [self.pool.table.new() for _ in range((self.tail + tokens) // PAGE)]

    def extend(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Append this step's k [kv_heads, T, k_dim] and v [kv_heads, T, v_dim] to one layer; seals what is full."""
        assert k.shape[1] == self._step, "extend wants the tokens that begin announced"
        state, n, end = self._layers[layer], self.tail, self.tail + self._step
        if not self._pending:
            state.k[:, n:end], state.v[:, n:end] = k, v
            return
        k, v = torch.cat((state.k[:, :n], k), 1), torch.cat((state.v[:, :n], v), 1)
        full = len(self._pending) * PAGE
        records = self.pool.codecs[layer].encode(k[:, :full].contiguous(), v[:, :full].contiguous())
        self._append(layer, self._pending, records)
        fresh = self._empty_tail(layer)
        for buffer, rest in zip(fresh, (k[:, full:], v[:, full:]), strict=True):
            buffer[:, : end - full] = rest
        state.next_tail = fresh

    def commit(self) -> None:
        """Make the step part of the sequence."""
        for state in self._layers:
            if state.next_tail:
                (state.k, state.v), state.next_tail = state.next_tail, None
        self.pages += self._pending
        self.length += self._step
        self._pending, self._step = [], 0

    def rollback(self) -> None:
        """Forget the open step, if there is one."""
        for state in self._layers:
            state.next_tail = None
        self.pool.release(self._pending)
        self._pending, self._step = [], 0

    def adopt(self, payloads: list[np.ndarray]) -> None:
        """Take stored pages (mapped bytes, in order) as the sequence's next pages. The tail must be empty."""
        assert self.tail == 0
        assert not self._step
        for payload in payloads:
            page = self.pool.adopt(payload)
            self._append_records(page)
            self.length += PAGE

    def addresses(self, layer: int, first: int = 0) -> np.ndarray:
        """Where the records of sealed pages ``first..`` of a layer lie, int64."""
        return self._layers[layer].addresses[first : len(self.pages)]

    def records(self, layer: int, first: int, stop: int) -> Tensor:
        """The records of pages ``first..stop`` of a layer, stacked: [pages, total] uint8."""
        return torch.stack([self.pool.record(p, layer) for p in self.pages[first:stop]])

    def open_tail(self, layer: int) -> tuple[Tensor, Tensor]:
        """The committed tokens of the open page: k [kv_heads, tail, k_dim], v [kv_heads, tail, v_dim]."""
        state = self._layers[layer]
        return state.k[:, : self.tail], state.v[:, : self.tail]

    def fork(self) -> "Cache":
        """Another sequence with the same past. Sealed pages are shared; only the open page is copied."""
        assert not self._step
        twin = Cache(self.pool, self.dtype)
        twin.length, twin.pages = self.length, [self.pool.table.share(p) for p in self.pages]
        for mine, its in zip(self._layers, twin._layers, strict=True):
            its.k, its.v, its.addresses = mine.k.clone(), mine.v.clone(), mine.addresses.copy()
        return twin

    def trim(self, length: int) -> None:
        """Keep the first ``length`` tokens. Cutting inside a sealed page reopens it at its codec's precision."""
        assert 0 <= length <= self.length
        assert not self._step
        keep = length // PAGE
        if keep < len(self.pages):
            if length % PAGE:
                self._reopen(keep)
            self.pool.release(self.pages[keep:])
            del self.pages[keep:]
        self.length = length

    def drop(self) -> None:
        """Give back every page."""
        self.rollback()
        self.trim(0)

    def _reopen(self, page: int) -> None:
        for layer, (state, codec) in enumerate(zip(self._layers, self.pool.codecs, strict=True)):
            k, v = codec.decode(self.records(layer, page, page + 1), self.dtype)
            state.k, state.v = k.contiguous(), v.contiguous()

    def _append_records(self, page: int) -> None:
        for layer, record in enumerate(self.pool.records(page)):
            self._place(layer, len(self.pages), record)
        self.pages.append(page)

    def _append(self, layer: int, pages: list[int], records: Tensor) -> None:
        for i, (page, record) in enumerate(zip(pages, records, strict=True)):
            self.pool.seal(page, record)
            self._place(layer, len(self.pages) + i, record)

    def _place(self, layer: int, index: int, record: Tensor) -> None:
        state = self._layers[layer]
        if index >= len(state.addresses):
            state.addresses = np.resize(state.addresses, max(64, 2 * len(state.addresses)))
        state.addresses[index] = record.data_ptr()

    def _empty_tail(self, layer: int) -> tuple[Tensor, Tensor]:
        s = self.pool.shape.layers[layer]
        new = (torch.zeros(s.kv_heads, PAGE, d, dtype=self.dtype, device=self.pool.device) for d in (s.k_dim, s.v_dim))
        return next(new), next(new)

    def _empty_layer(self, layer: int) -> _Layer:
        return _Layer(*self._empty_tail(layer), np.zeros(0, np.int64))
