"""BlockTable: the ids, addresses, kinds (ORDINARY or SINK) and positions of one sequence's sealed pages, in order."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from localctx.kv.backends.backend import PageAddresses
from localctx.kv.page_format import ORDINARY, SINK
from localctx.kv.pool import Pool
from localctx.shape import FULL, PAGE, SLACK_PAGES, SLIDING

RUN = 32  # pages decoded at a time: bounds the full-precision copy of history to 2,048 tokens
WIDE_RUN = 256  # for a GPU's flash attention, which stores no scores and is slow on short runs
ALL = slice(None)
T = TypeVar("T")


class PageParts(NamedTuple):
    """The ids of the two parts of one page. ``full`` is the part with the layers that attend to everything (or with all
    layers, if none has a sliding window). ``sliding`` is the part with the sliding-window layers; None once those
    layers no longer see the page. vLLM's hybrid KV cache manager groups layers in the same way.
    """

    full: int
    sliding: int | None = None

    @property
    def ids(self) -> list[int]:
        """The ids of the parts that are present."""
        return [page for page in self if page is not None]


@dataclass(frozen=True)
class PlacedPage:
    """One sealed page in a sequence: its ``parts``, the index ``token`` of its first token in the text, and the
    ``position`` of its first key.
    """

    parts: PageParts
    token: int
    position: int


class _Column:
    """Describes one part (FULL or SLIDING) of all pages, as arrays [pages]. The address of an absent part is 0."""

    def __init__(self, pool: Pool, ids: Sequence[int | None]) -> None:
        self._pool, self._ids = pool, ids
        self.ids = np.array([-1 if page is None else page for page in ids], np.int64)
        self.present = [page for page in ids if page is not None]
        self.kinds = pool.kinds([0 if page is None else page for page in ids])
        self.bases = np.array([0 if page is None else pool.payload(page).data_ptr() for page in ids], np.int64)

    @cached_property
    def on_device(self) -> np.ndarray:
        """True where the part is on the device or absent, [pages]."""
        return np.array([page is None or page in self._pool.device_tier for page in self._ids], bool)

    @cached_property
    def for_kernels(self) -> PageAddresses:
        return self._pool.backend.place(self.bases, self.kinds)


class _Columns:
    """The contents of the table as arrays [pages]. They are made again when the pool's version changes, because
    addresses change as pages move.
    """

    def __init__(self, pool: Pool, placed: Sequence[PlacedPage]) -> None:
        self.valid_for = pool.version, len(placed)
        self.by_part = [_Column(pool, [p.parts[part] for p in placed]) for part in (FULL, SLIDING)]
        self.ids = np.array([page for column in self.by_part for page in column.present], np.int64)
        self.positions = np.array([p.position for p in placed], np.int64)
        self.text_pages = np.array([p.token // PAGE for p in placed], np.int64)
        self.remembered: dict[Hashable, Any] = {}


class BlockTable:
    """The sealed pages of one sequence, in order. Pages are addressed by their index in the table. ``dtype`` is the
    precision in which the model computes.

    The table holds one reference to each part of a page. It also holds the ``originals``: the sink pages with their
    keys at the positions where they were first computed. Re-rotated sink pages are always made from these.
    """

    def __init__(self, pool: Pool, dtype: torch.dtype) -> None:
        self.pool, self.dtype = pool, dtype
        self.placed: list[PlacedPage] = []
        self.originals: list[PageParts] = []
        self._own_positions: list[np.ndarray | None] = [None] * len(pool.shape.layers)
        self._cached: _Columns | None = None

    def __len__(self) -> int:
        return len(self.placed)

    @property
    def pages(self) -> list[int]:
        """The ids of the FULL parts of all pages."""
        return [placed.parts.full for placed in self.placed]

    @property
    def ids(self) -> np.ndarray:
        """The ids of all parts (FULL and SLIDING) of all pages, int64."""
        return self._columns.ids

    @property
    def text_pages(self) -> np.ndarray:
        """The place of each page in the text, as the number of pages before it: [pages] int64. The place differs from
        the page's index in the table once pages were evicted.
        """
        return self._columns.text_pages

    def bases(self, part: int) -> np.ndarray:
        """Returns the address of one ``part`` (FULL or SLIDING) of each page, [pages] int64; 0 where the part is
        absent. At that address are the records of the part's layers, in order.
        """
        return self._columns.by_part[part].bases

    def kinds(self, part: int) -> np.ndarray:
        """Returns the kind of one ``part`` (FULL or SLIDING) of each page, [pages] uint8: ORDINARY (encoded by the
        codec) or SINK (in full precision).
        """
        return self._columns.by_part[part].kinds

    def for_kernels(self, layer: int) -> PageAddresses:
        """Returns the addresses and kinds of all pages for kernels that compute ``layer``. They belong to the part
        (FULL or SLIDING) that has this layer.
        """
        return self._column(layer).for_kernels

    def readable(self, indices: np.ndarray | slice = ALL) -> bool:
        """Returns True if the backend's kernels can read the pages at ``indices`` where they are now."""
        backend = self.pool.backend
        if backend.in_place or not backend.max_batch_tokens:
            return backend.in_place
        on_device = [column.on_device[indices] for column in self._columns.by_part]
        return backend.reads(np.concatenate(on_device), self.dtype)

    @property
    def readable_once_fetched(self) -> bool:
        """True if the backend's kernels can read the pages after they are fetched to the device."""
        return self.pool.backend.reads(np.ones(1, bool), self.dtype)

    def fetched(self, layer: int, indices: np.ndarray) -> tuple[PageAddresses, list[Tensor]]:
        """Fetch one ``layer`` of those pages at ``indices`` that are not on the device. Returns ``for_kernels`` with
        the addresses of the copies, and the tensors that hold the copies.

        Keep these tensors until the kernel is launched. The copies stay valid until pages of another layer are fetched.
        """
        column, holding = self._column(layer), list[Tensor]()
        bases, far = column.bases.copy(), indices[~column.on_device[indices]]
        for kind in (SINK, ORDINARY):
            some = far[column.kinds[far] == kind]
            if len(some):
                records, rows = self.pool.fetch_rows(column.ids[some].tolist(), layer)
                bases[some] = records.data_ptr() + rows * records.shape[1] - self.pool.format.offsets[kind, layer]
                holding.append(records)
        return self.pool.backend.place(bases, column.kinds), holding

    def remembered(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns the result of ``make``, which is called again only after pages of the table changed or moved."""
        known = self._columns.remembered
        if key not in known:
            known[key] = make()
        return known[key]

    def positions(self, layer: int) -> np.ndarray:
        """Returns the position of each page's first key in this layer, [pages] int64."""
        own = self._own_positions[layer]
        if own is None:
            return self._columns.positions
        return np.concatenate((own, self._columns.positions[len(own) :]))

    def token_positions(self, layer: int, first: int, stop: int) -> Tensor:
        """Returns the position of every key of the pages ``first..stop``, int64."""
        starts = torch.from_numpy(self.positions(layer)[first:stop]).to(self.pool.device)
        return (starts[:, None] + torch.arange(PAGE, device=starts.device)).flatten()

    def first_seen(self, layer: int, window: int, position: int) -> tuple[int, int]:
        """Returns the index of the first page that tokens from ``position`` on can see in a ``layer`` with a sliding
        ``window``, and how many of the first tokens of this page are hidden.

        Keys ``window`` or more positions back are hidden. So are sink pages whose SLIDING part was released before they
        moved into the window.
        """
        unseen = position + 1 - window  # that token sees nothing before this position
        starts = self.positions(layer)
        first = max(int(np.searchsorted(starts + PAGE, unseen, side="right")), self._sinks_without(layer))
        return first, max(0, unseen - int(starts[first])) if first < len(starts) else 0

    def runs(self, layer: int, first: int, max_pages: int, mixed: bool = False) -> Iterator[tuple[int, int]]:
        """Split the pages from ``first`` on into runs of at most ``max_pages`` pages, and yield each run as (start,
        stop). The pages of a run have one kind (ORDINARY or SINK) in this layer, unless ``mixed`` is True.
        """
        kinds = self._column(layer).kinds
        start = first
        for i in range(first + 1, len(kinds) + 1):
            if i == len(kinds) or i - start == max_pages or (kinds[i] != kinds[start] and not mixed):
                yield start, i
                start = i

    def reads_mixed(self, layer: int) -> bool:
        """Returns True if ``read`` accepts runs with both ORDINARY and SINK pages in this layer. That needs a backend
        that unpacks pages in place, and keys that are stored with the bias of k_proj.
        """
        backend = self.pool.backend
        return backend.mixes_kinds and backend.unpacks(self._column(layer).on_device) and not self.pool.unbiased(layer)

    def records(self, layer: int, first: int, stop: int) -> Tensor:
        """Returns the records of one ``layer`` of the pages ``first..stop``, which are all of one kind (ORDINARY or
        SINK): [pages, bytes of a record] uint8, on the device.
        """
        return self.pool.fetch(self._ids_of(layer, first, stop), layer)

    def read(self, layer: int, first: int, stop: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Decode one ``layer`` of the pages ``first..stop``. Returns keys and values [kv_heads, tokens, dim] in
        ``dtype``.
        """
        column, backend = self._column(layer), self.pool.backend
        kind, unbiased = column.kinds[first], self.pool.unbiased(layer)
        assert not unbiased or (column.kinds[first:stop] == kind).all(), "the bias is added to pages of one kind"
        wide = torch.float32 if unbiased else dtype
        if backend.unpacks(column.on_device[first:stop]):
            assert column.bases[first:stop].all(), "no layer sees these pages any longer"
            bases, kinds, _ = column.for_kernels
            k, v = backend.unpack(layer, PageAddresses(bases[first:stop], kinds[first:stop]), wide)
        else:
            k, v = backend.decode(layer, kind, self.records(layer, first, stop), wide)
        if kind == ORDINARY and unbiased:
            assert self.pool.rope
            k = k + self.pool.rope.bias_keys(layer, self.token_positions(layer, first, stop))
        return k.to(dtype), v.to(dtype)

    def touch(self, indices: np.ndarray | slice = ALL) -> None:
        """Mark the pages at ``indices`` as recently used, so that they move to lower tiers last. The SLIDING parts of
        all pages are marked too, because sliding-window layers need all of them.
        """
        ids, pages = self.ids, len(self)  # every page has its full part, and these come first
        self.pool.touch(np.concatenate((ids[:pages][indices].ravel(), ids[pages:])))

    # --- Changing the table

    def append(self, parts: PageParts, token: int, position: int) -> None:
        """Append a page, whose first token has the index ``token`` in the text and whose first key is at ``position``.
        The table takes over the references to its ``parts``.
        """
        self.placed.append(PlacedPage(parts, token, position))

    def release_unseen(self, position: int) -> None:
        """Release the SLIDING parts of pages that sliding-window layers no longer see from ``position`` on. The parts
        of the last ``SLACK_PAGES`` pages before the window are kept.
        """
        if not (window := self.pool.shape.window):
            return
        first, _ = self.first_seen(self._sliding_layer, window + SLACK_PAGES * PAGE, position)
        while first and (page := self.placed[first - 1].parts.sliding) is not None:
            first -= 1
            self.pool.release([page])
            self.placed[first] = replace(self.placed[first], parts=PageParts(self.placed[first].parts.full))
            self._cached = None

    def has_window(self, position: int, pages: int) -> bool:
        """Returns True if a sequence can continue at ``position``, after the first ``pages`` pages: the table still has
        every SLIDING part that sliding-window layers would see from there.
        """
        if not (window := self.pool.shape.window):
            return True
        first, _ = self.first_seen(self._sliding_layer, window, position)
        return all(placed.parts.sliding is not None for placed in self.placed[first:pages])

    def remove(self, indices: Sequence[int]) -> list[int]:
        """Remove the pages at ``indices`` from the table and release them. Returns the former indices of the pages that
        stay.
        """
        removed = set(indices)
        self.pool.release(page for i in indices for page in self.placed[i].parts.ids)
        stay = [i for i in range(len(self.placed)) if i not in removed]
        self.placed = [self.placed[i] for i in stay]
        for layer, own in enumerate(self._own_positions):
            if own is not None:
                self._own_positions[layer] = own[[i for i in stay if i < len(own)]]
        self._cached = None
        return stay

    def replace(
        self, first: int, stop: int, pages: list[PageParts], positions: list[np.ndarray | None]
    ) -> tuple[int, int]:
        """Replace the pages ``first..stop`` by ``pages``, which hold some of the same tokens, and release parts that
        are not in ``pages``. Returns the token range (start, stop) of the replaced pages.

        ``positions`` has an entry for each layer. It is None, or, for a layer whose positions now differ from the
        table's, the positions of the first keys of all pages.
        """
        start, end = self.placed[first].token, self.placed[stop - 1].token + PAGE
        stay = {page for parts in pages for page in parts.ids}
        self.pool.release(page for p in self.placed[first:stop] for page in p.parts.ids if page not in stay)
        at = self.placed[first].position
        self.placed[first:stop] = [PlacedPage(parts, start + i, at + i) for i, parts in enumerate(pages)]
        self._own_positions, self._cached = positions, None
        return start, end

    def move(self, index: int, parts: PageParts, position: int) -> None:
        """Replace the page at ``index`` by ``parts``, a copy with re-rotated keys whose first key is at ``position``.
        The table's references to the old parts pass to the caller.
        """
        self.placed[index] = PlacedPage(parts, self.placed[index].token, position)
        self._cached = None

    def move_to(self, pool: Pool, pages: list[PageParts], originals: list[PageParts]) -> None:
        """Release all pages, and continue with copies of them in another ``pool``. ``pages`` are the copies of the
        pages, and ``originals`` are the copies of the original sink pages.
        """
        self.pool.release(self._held)
        self.placed = [PlacedPage(new, p.token, p.position) for new, p in zip(pages, self.placed, strict=True)]
        self.pool, self.originals, self._cached = pool, originals, None

    def release_originals(self) -> None:
        """Release ``originals``, the sink pages as first computed."""
        self.pool.release(page for parts in self.originals for page in parts.ids)
        self.originals = []

    def fork(self) -> "BlockTable":
        """Returns a table of the same pages, and adds one reference to each."""
        twin = BlockTable(self.pool, self.dtype)
        for page in self._held:
            self.pool.references.share(page)
        twin.placed, twin.originals = list(self.placed), list(self.originals)
        twin._own_positions = list(self._own_positions)
        return twin

    @property
    def _held(self) -> list[int]:
        """The ids of all parts to which the table holds a reference."""
        return [page for parts in (*(p.parts for p in self.placed), *self.originals) for page in parts.ids]

    def _ids_of(self, layer: int, first: int, stop: int) -> list[int]:
        """Returns the ids of a layer's part of the pages ``first..stop``, which must all have this part."""
        ids = [placed.parts[self.pool.format.parts[layer]] for placed in self.placed[first:stop]]
        assert None not in ids, "no layer sees these pages any longer"
        return [page for page in ids if page is not None]

    @cached_property
    def _sliding_layer(self) -> int:
        """The first sliding layer. All sliding layers have the same positions."""
        return self.pool.shape.parts.index(SLIDING)

    def _sinks_without(self, layer: int) -> int:
        """Returns the number of moved sinks whose part for this layer had already been released."""
        part = self.pool.shape.parts[layer]
        return sum(original[part] is None for original in self.originals)

    def _column(self, layer: int) -> _Column:
        return self._columns.by_part[self.pool.format.parts[layer]]

    @property
    def _columns(self) -> _Columns:
        if self._cached is None or self._cached.valid_for != (self.pool.version, len(self.placed)):
            self._cached = _Columns(self.pool, self.placed)
        return self._cached
