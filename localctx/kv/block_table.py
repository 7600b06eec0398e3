"""BlockTable: the sealed pages of one sequence, in order: their ids, addresses, kinds and positions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from localctx.kv.backend import PageAddresses
from localctx.kv.page_format import ORDINARY
from localctx.kv.pool import Pool
from localctx.shape import PAGE

RUN = 32  # pages decoded at a time: bounds the full-precision copy of history to 2,048 tokens
ALL = slice(None)


@dataclass(frozen=True)
class PlacedPage:
    """One sealed page in a sequence: its id, its first token's number in the text, and its first key's position."""

    page: int
    token: int
    position: int


class _Columns:
    """The table as arrays [pages]. Rebuilt when the pool's version changes, since addresses change as pages move."""

    def __init__(self, pool: Pool, placed: Sequence[PlacedPage]) -> None:
        ids = [p.page for p in placed]
        self.valid_for, self._pool = (pool.version, len(placed)), pool
        self.ids, self.kinds = np.array(ids, np.int64), pool.kinds(ids)
        self.bases = np.array([pool.payload(page).data_ptr() for page in ids], np.int64)
        self.positions = np.array([p.position for p in placed], np.int64)
        self.text_pages = np.array([p.token // PAGE for p in placed], np.int64)

    @cached_property
    def on_device(self) -> np.ndarray:
        return np.array([page in self._pool.device_tier for page in self.ids.tolist()], bool)

    @cached_property
    def for_kernels(self) -> PageAddresses:
        return self._pool.backend.place(self.bases, self.kinds)


class BlockTable:
    """The sealed pages of a sequence whose model computes in ``dtype``. The table holds one reference to each page, and
    to each of ``originals``: sink pages as they were first computed, which re-rotated ones are made from.

    Pages are addressed by their index in the table.
    """

    def __init__(self, pool: Pool, dtype: torch.dtype) -> None:
        self.pool, self.dtype = pool, dtype
        self.placed: list[PlacedPage] = []
        self.originals: list[int] = []
        self._own_positions: list[np.ndarray | None] = [None] * len(pool.shape.layers)
        self._cached: _Columns | None = None

    def __len__(self) -> int:
        return len(self.placed)

    @property
    def pages(self) -> list[int]:
        """The ids of the pages."""
        return [placed.page for placed in self.placed]

    @property
    def ids(self) -> np.ndarray:
        """The ids of the pages, int64."""
        return self._columns.ids

    @property
    def bases(self) -> np.ndarray:
        """The addresses of the pages, int64: every layer's record in order."""
        return self._columns.bases

    @property
    def kinds(self) -> np.ndarray:
        """The kinds of the pages, uint8."""
        return self._columns.kinds

    @property
    def text_pages(self) -> np.ndarray:
        """Which page of the text each page begins in, int64."""
        return self._columns.text_pages

    @property
    def for_kernels(self) -> PageAddresses:
        """Addresses and kinds as the backend's kernels take them."""
        return self._columns.for_kernels

    def readable(self, indices: np.ndarray | slice = ALL) -> bool:
        """True if the backend's kernels read the pages at ``indices`` where they are now."""
        backend = self.pool.backend
        if backend.in_place or not backend.max_batch_tokens:
            return backend.in_place
        return backend.reads(self._columns.on_device[indices], self.dtype)

    def addresses(self, layer: int) -> tuple[np.ndarray, np.ndarray]:
        """The addresses of the records of a layer (int64), and each page's kind (uint8)."""
        return self.bases + self.pool.format.offsets[self.kinds, layer], self.kinds

    def positions(self, layer: int) -> np.ndarray:
        """The position of each page's first key in this layer, int64."""
        own = self._own_positions[layer]
        if own is None:
            return self._columns.positions
        return np.concatenate((own, self._columns.positions[len(own) :]))

    def token_positions(self, layer: int, first: int, stop: int) -> Tensor:
        """The position of every key of the pages ``first..stop``, int64."""
        starts = torch.from_numpy(self.positions(layer)[first:stop]).to(self.pool.device)
        return (starts[:, None] + torch.arange(PAGE, device=starts.device)).flatten()

    def first_seen(self, layer: int, window: int, position: int) -> tuple[int, int]:
        """The first page that the token at ``position`` or a later one sees, where keys ``window`` or more positions
        back are hidden, and how many of that page's first tokens none of them sees.
        """
        unseen = position + 1 - window  # that token sees nothing before this position
        starts = self.positions(layer)
        first = int(np.searchsorted(starts + PAGE, unseen, side="right"))
        return first, max(0, unseen - int(starts[first])) if first < len(starts) else 0

    def runs(self, first: int, max_pages: int) -> Iterator[tuple[int, int]]:
        """The pages ``first..`` in runs of at most ``max_pages`` pages of one kind: (start, stop)."""
        kinds = self.kinds
        start = first
        for i in range(first + 1, len(kinds) + 1):
            if i == len(kinds) or i - start == max_pages or kinds[i] != kinds[start]:
                yield start, i
                start = i

    def records(self, layer: int, first: int, stop: int) -> Tensor:
        """The records of the pages ``first..stop``, which are of one kind: [pages, total] uint8, on the device."""
        return self.pool.fetch(self.pages[first:stop], layer)

    def read(self, layer: int, first: int, stop: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The keys and values [kv_heads, tokens, dim] of the pages ``first..stop``, which are of one kind, decoded."""
        kind = self.pool.kinds(self.pages[first : first + 1])[0]
        if self.pool.in_place:
            k, v = self.pool.backend.unpack(layer, PageAddresses(self.bases[first:stop], self.kinds[first:stop]))
        else:
            k, v = self.pool.codec_of(layer, kind).decode(self.records(layer, first, stop), torch.float32)
        if kind == ORDINARY and self.pool.unbiased(layer):
            assert self.pool.rope
            k = k + self.pool.rope.bias_keys(layer, self.token_positions(layer, first, stop))
        return k.to(dtype), v.to(dtype)

    def touch(self, indices: np.ndarray | slice = ALL) -> None:
        """Mark the pages at ``indices`` as needed now: they move to lower tiers last."""
        self.pool.touch(self.ids[indices])

    # --- Changing the table

    def append(self, page: int, token: int, position: int) -> None:
        """Add a page at the end; its reference passes to the table."""
        self.placed.append(PlacedPage(page, token, position))

    def remove(self, indices: Sequence[int]) -> list[int]:
        """Release the pages at ``indices``; returns the indices of those that stay."""
        removed = set(indices)
        self.pool.release(self.placed[i].page for i in indices)
        stay = [i for i in range(len(self.placed)) if i not in removed]
        self.placed = [self.placed[i] for i in stay]
        for layer, own in enumerate(self._own_positions):
            if own is not None:
                self._own_positions[layer] = own[[i for i in stay if i < len(own)]]
        self._cached = None
        return stay

    def replace(self, first: int, stop: int, pages: list[int], positions: list[np.ndarray | None]) -> tuple[int, int]:
        """Release the pages ``first..stop`` and put ``pages`` in their stead, which hold some of their tokens; returns
        the range of the text that they were.

        ``positions`` has, for each layer whose positions are its own from here on, those of all pages' first keys.
        """
        start, end = self.placed[first].token, self.placed[stop - 1].token + PAGE
        self.pool.release(p.page for p in self.placed[first:stop])
        at = self.placed[first].position
        self.placed[first:stop] = [PlacedPage(page, start + i, at + i) for i, page in enumerate(pages)]
        self._own_positions, self._cached = positions, None
        return start, end

    def move(self, index: int, page: int, position: int) -> None:
        """Put ``page``, a re-rotated copy, at ``index``. The reference to the page before it stays with the caller."""
        self.placed[index] = PlacedPage(page, self.placed[index].token, position)
        self._cached = None

    def move_to(self, pool: Pool, pages: list[int], originals: list[int]) -> None:
        """Release all pages and go on in ``pool``, where ``pages`` and ``originals`` are copies of them."""
        self.pool.release([*self.pages, *self.originals])
        self.placed = [PlacedPage(new, p.token, p.position) for new, p in zip(pages, self.placed, strict=True)]
        self.pool, self.originals, self._cached = pool, originals, None

    def release_originals(self) -> None:
        """Release ``originals``."""
        self.pool.release(self.originals)
        self.originals = []

    def fork(self) -> "BlockTable":
        """A table of the same pages, which then have one more reference each."""
        twin = BlockTable(self.pool, self.dtype)
        for page in (*self.pages, *self.originals):
            self.pool.references.share(page)
        twin.placed, twin.originals = list(self.placed), list(self.originals)
        twin._own_positions = list(self._own_positions)
        return twin

    @property
    def _columns(self) -> _Columns:
        if self._cached is None or self._cached.valid_for != (self.pool.version, len(self.placed)):
            self._cached = _Columns(self.pool, self.placed)
        return self._cached
