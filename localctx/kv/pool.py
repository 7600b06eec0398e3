"""Pool: holds the sealed pages of all open sequences of one model in one codec, and knows the references to each page
and the tier of each page.

If the device is full, a new page makes the least recently used pages move to a lower tier: from the device to the host,
and from the host to the disk.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import astuple
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from localctx.budget import TierLimits
from localctx.errors import OutOfKVMemory
from localctx.kernels.device import has_triton
from localctx.kv.backends.backend import Backend, TorchBackend
from localctx.kv.backends.numba_backend import NumbaBackend
from localctx.kv.codecs import Codec
from localctx.kv.page_format import ORDINARY, SINK, PageFormat
from localctx.kv.pages import PageReferences
from localctx.kv.prefetch import CudaStreams, FetchedRecords, Prefetcher
from localctx.kv.rotary import Rope
from localctx.kv.staging import copy_staged
from localctx.kv.tiers import DiskTier, MemoryTier, StoredBytes, StoredCopies, Tier, as_tensor
from localctx.shape import FORMATS, FULL, PAGE, KVShape


class Pool:
    """Holds sealed pages by id, in tiers: device, host and disk. ``limits`` bound each tier (None: pages are only on
    the device, without a limit). ``spill`` is the folder of the disk tier (None: the system's folder for temporary
    files).

    If ``in_place``, attention reads records where they are, in any tier. Otherwise ``fetch`` brings them to the device.
    ``triton`` says whether to use the ``TritonBackend`` if it has kernels for the codec (None: on GPUs that run them).
    ``prefill_loss`` is the share of attention (0 to 1) that a query of a prompt may lose to skipped pages.
    """

    def __init__(
        self,
        shape: KVShape,
        codec: str,
        device: torch.device | str = "cpu",
        rope: Rope | None = None,
        limits: TierLimits | None = None,
        spill: Path | None = None,
        in_place: bool | None = None,
        triton: bool | None = None,
        prefill_loss: float = 0,
    ) -> None:
        self.shape, self.codec, self.device, self.rope = shape, codec, torch.device(device), rope
        self.spill, self.format, self.prefill_loss = spill, PageFormat(shape, codec), prefill_loss
        in_place = self.device.type == "cpu" if in_place is None else in_place
        triton = has_triton(self.device) if triton is None else triton
        self._kernels = in_place, triton
        self.backend = make_backend(self.format, self.device, *self._kernels)
        self.references = PageReferences()
        pinned = self.device.type == "cuda"
        self.device_tier = MemoryTier("device", self.device, limits.device if limits else None)
        self.host_tier = MemoryTier("host", torch.device("cpu"), limits.host if limits else 0, pinned=pinned)
        self.disk_tier = DiskTier(spill, limits.disk if limits else 0)
        self.tiers: tuple[Tier, ...] = (self.device_tier, self.host_tier, self.disk_tier)
        streams = CudaStreams(self.device) if self.device.type == "cuda" else None
        self._prefetcher = Prefetcher(self, shape.parts, streams)
        self.give_up: Callable[[Pool], bool] = lambda pool: (
            False
        )  # releases one page that is only held for later prompts
        self.clock = self.version = 0  # steps and page moves so far; a block table of an older version is stale
        self._where: dict[int, Tier] = {}
        self._stored = StoredCopies()
        self._open: set[int] = set()
        self._kinds = np.zeros(64, np.uint8)
        self._used = np.zeros(64, np.int64)
        self._sizes = np.zeros(64, np.int64)  # bytes; 0 for pages read in the store's mapping
        self._addresses = np.zeros(64, np.int64)
        self._on_disk = np.zeros(64, bool)

    def __contains__(self, page: int) -> bool:
        return page in self._where

    @property
    def in_place(self) -> bool:
        """True if attention reads records where they are, in any tier."""
        return self.backend.in_place

    def with_codec(self, codec: str) -> "Pool":
        """Returns an empty pool with another ``codec``, for the same model and device and with the same limits."""
        return Pool(
            self.shape, codec, self.device, self.rope, self.limits, self.spill, *self._kernels, self.prefill_loss
        )

    @property
    def limits(self) -> TierLimits:
        """The current limits of each tier."""
        return TierLimits(*(tier.limit for tier in self.tiers))

    def new(self, kind: int, part: int = FULL) -> int:
        """Allocate one ``part`` (FULL or SLIDING) of a new page of this ``kind`` (ORDINARY or SINK), to be filled layer
        by layer. Returns an id for this part. Raises OutOfKVMemory.
        """
        nbytes = self.format.page_bytes(kind, part)
        while self._spare() < nbytes and self.give_up(self):
            pass
        if self._spare() < nbytes:
            raise OutOfKVMemory(self.nbytes(), nbytes)
        self.make_room(nbytes)
        page = self._enter(kind, nbytes)
        try:
            self.device_tier.new(page, nbytes)
        except BaseException:  # memory ran out
            self.references.release(page)
            raise
        self._put_in(self.device_tier, page)
        self._open.add(page)
        return page

    def kind_at(self, index: int) -> int:
        """Returns the kind of the ``index``-th page of a sequence: SINK (in full precision) for the first pages if the
        codec quantizes, else ORDINARY.
        """
        return self.format.kind_at(index)

    def page_bytes(self, index: int, part: int = FULL) -> int:
        """Returns the size in bytes of one ``part`` (FULL or SLIDING) of the ``index``-th page of a sequence."""
        return self.format.page_bytes(self.kind_at(index), part)

    def seal(self, layer: int, pages: Sequence[int], k: Tensor, v: Tensor, position: int) -> None:
        """Encode one layer of new ``pages`` from k and v [kv_heads, pages * 64, dim]. The first key of the first page
        is at ``position``.
        """
        kinds = self._kinds[list(pages)]
        for kind in (SINK, ORDINARY):
            of_kind = np.flatnonzero(kinds == kind)
            if not len(of_kind):
                continue
            first, stop = int(of_kind[0]), int(of_kind[-1]) + 1  # sinks come first: each kind is one run
            some_k, some_v = (x[:, first * PAGE : stop * PAGE] for x in (k, v))
            if kind == ORDINARY and self.unbiased(layer):
                assert self.rope
                at = torch.arange(position + first * PAGE, position + stop * PAGE, device=k.device)
                some_k = some_k - self.rope.bias_keys(layer, at).to(k.dtype)
            self.backend.seal(layer, kind, [self.payload(page) for page in pages[first:stop]], some_k, some_v)

    @torch.inference_mode()  # pages sealed in inference mode may only be written in it
    def fill(self, page: int, layer: int, record: Tensor) -> None:
        """Copy ``record``, the encoded record of one layer, into a new page."""
        self.record(page, layer).copy_(record)

    def close(self, pages: Iterable[int]) -> None:
        """Mark new pages as sealed: every layer is filled, and the pages may move to other tiers."""
        self._open.difference_update(pages)
        with suppress(OutOfKVMemory):  # a step may exceed the limit; a page without room now raises at the next one
            self.make_room(0)

    def adopt(self, payload: np.ndarray, kind: int) -> int:
        """Add a page from the store. ``payload`` is its mapped, verified bytes, and ``kind`` its kind (ORDINARY or
        SINK). Returns an id for the page.

        The bytes are read in place, or copied to the device while the device has room.
        """
        limit = self.device_tier.limit
        if self.in_place or (limit is not None and self.device_tier.nbytes + len(payload) > limit):
            page = self._enter(kind, 0)
            self.disk_tier.map_stored(page, payload)
            self._put_in(self.disk_tier, page)
        else:
            page = self._enter(kind, len(payload))
            self.device_tier.put(page, as_tensor(payload))
            self._put_in(self.device_tier, page)
            self._stored.add(page, lambda: payload, len(payload))
        return page

    def add_stored_copy(self, page: int, stored: StoredBytes) -> None:
        """Record that the store holds a copy of ``page``; ``stored`` is a function that returns its bytes. When the
        page must leave memory, it then need not be written to disk.

        If the page was already spilled, its place in the spill file is freed at once. Ids of released pages are
        ignored.
        """
        if page in self._where and self._sizes[page]:
            self._stored.add(page, stored, int(self._sizes[page]))
            if self._where[page] is self.disk_tier:
                self._map_stored(page)

    def tier_of(self, page: int) -> str:
        """Returns the name of the tier that holds a page: ``device``, ``host`` or ``disk``."""
        return self._where[page].name

    def payload(self, page: int) -> Tensor:
        """Returns the bytes of one part of a page, in the tier where it is. They are the records of the part's layers,
        in order.
        """
        return self._where[page].get(page)

    def record(self, page: int, layer: int) -> Tensor:
        """Returns the record of one layer of a page (uint8), in the tier where it is."""
        return self.payload(page)[self.format.record_span(self._kinds[page], layer)]

    def record_bytes(self, page: int, layer: int) -> int:
        """Returns the size in bytes of one layer's record of a page."""
        span = self.format.record_span(self._kinds[page], layer)
        return span.stop - span.start

    def fetch(self, pages: Sequence[int], layer: int) -> Tensor:
        """Returns the records of one layer of ``pages``, on the device: [pages, bytes of a record] uint8. All pages are
        of one kind (ORDINARY or SINK). The records stay valid until records of another layer are fetched.
        """
        return self._prefetcher.take(pages, layer)

    def fetch_rows(self, pages: Sequence[int], layer: int) -> FetchedRecords:
        """Fetch the records of one layer of ``pages`` like ``fetch``, but in any order. The result says which row has
        the record of each page.
        """
        return self._prefetcher.fetch(pages, layer)

    def copy_records(self, pages: Sequence[int], layer: int, out: Tensor, rows: Sequence[int]) -> None:
        """Copy the records of one layer of ``pages`` to the rows ``rows`` of ``out`` [any, bytes of a record] on a GPU,
        in the current stream. All pages are of one kind (ORDINARY or SINK).
        """
        ids, to = np.array(pages, np.int64), np.array(rows, np.int64)
        far = self._on_disk[ids]
        near, offset = ids[~far], self.format.offsets[self._kinds[ids[0]], layer]
        if self.backend.gathers and len(near):
            self.backend.gather(self._addresses[near] + offset, out, to[~far])
        else:
            for page, row in zip(near.tolist(), to[~far].tolist(), strict=True):
                out[row].copy_(self.record(page, layer), non_blocking=True)
        copy_staged([self.record(page, layer) for page in ids[far].tolist()], out, to[far])

    def kinds(self, pages: Sequence[int]) -> np.ndarray:
        """Returns the kind of each page (ORDINARY or SINK), uint8."""
        return self._kinds[list(pages)]

    def codec_of(self, layer: int, kind: int) -> Codec:
        """Returns the codec of one layer of a page of this ``kind`` (ORDINARY or SINK)."""
        return self.format.codecs[kind][layer]

    def unbiased(self, layer: int) -> bool:
        """Returns True if ORDINARY pages store keys of this layer without the bias of k_proj, because the bias has
        outliers that spoil quantization.
        """
        return FORMATS[self.codec].scaled and self.rope is not None and self.rope.has_bias(layer)

    @property
    def has_unbiased(self) -> bool:
        """True if the keys of any layer are stored without the bias of k_proj (see ``unbiased``)."""
        return any(map(self.unbiased, range(len(self.shape.layers))))

    def touch(self, pages: np.ndarray) -> None:
        """Mark these pages as recently used, so that they move to lower tiers last."""
        self._used[pages] = self.clock

    def bytes_of(self, pages: np.ndarray) -> int:
        """Returns the size in bytes of these pages in all tiers. A page that is read from the store's files counts as
        0.
        """
        return int(self._sizes[pages].sum())

    @property
    def device_limit(self) -> int | None:
        return self.device_tier.limit

    @property
    def bytes_of_page(self) -> int:
        return self.shape.page_bytes(self.codec)

    def bytes_needed(self, requests: Sequence[tuple[Any, int]]) -> int:
        """Returns the size in bytes that all ``requests`` need together. A request is (cache, number of more tokens).
        Pages that several caches share count once.
        """
        pages = np.concatenate([cache.table.ids for cache, _ in requests])
        repeated = self.bytes_of(pages) - self.bytes_of(np.unique(pages))
        return sum(cache.bytes_with(tokens) for cache, tokens in requests) - repeated

    def allow(self, limits: TierLimits, caps: TierLimits, unused: int = 0) -> None:
        """Set the limit of each tier: the bytes that it holds plus ``limits``, but at most ``caps``. None means no
        limit. ``unused`` is the number of bytes on the device that could be released; they count as not held.
        """
        for tier, more, cap in zip(self.tiers, astuple(limits), astuple(caps), strict=True):
            held = tier.nbytes - (unused if tier is self.device_tier else 0)
            bounds = [n for n in (None if more is None else more + held, cap) if n is not None]
            tier.limit = min(bounds, default=None)

    def release(self, pages: Iterable[int]) -> None:
        """Drop one reference to each page. A page without references is removed."""
        for page in pages:
            if self.references.release(page):
                self._open.discard(page)
                self._stored.discard(page)
                self._where.pop(page).drop(page)
                self.version += 1

    def make_room(self, nbytes: int) -> None:
        """Move pages to lower tiers until the device has room for ``nbytes`` bytes. Raises OutOfKVMemory; no page is
        lost.
        """
        self._room(0, nbytes)

    def trim(self) -> None:
        """Return memory to the system that no page uses."""
        self.device_tier.trim()
        self.host_tier.trim()
        self._prefetcher.clear()

    def give_up_all(self) -> bool:
        """Release all pages that no sequence uses and that are held only for later prompts. Returns False if there were
        none.
        """
        count = sum(iter(lambda: self.give_up(self), False))
        self.trim()
        return count > 0

    def shrink(self) -> int:
        """Limit the device, permanently, to half of the bytes that it holds now. Returns the number of pages that moved
        to lower tiers.
        """
        before, self.device_tier.limit = len(self.device_tier), self.device_tier.nbytes // 2
        with suppress(OutOfKVMemory):
            self.make_room(0)
        self.trim()
        return before - len(self.device_tier)

    def counts(self, pages: Iterable[int] | None = None) -> dict[str, int]:
        """Returns the number of ``pages`` (None: all pages) in each tier, by the name of the tier."""
        where = self._where.values() if pages is None else (self._where[page] for page in pages)
        found = Counter(tier.name for tier in where)
        return {tier.name: found[tier.name] for tier in self.tiers}

    def nbytes(self, pages: Iterable[int] | None = None) -> dict[str, int]:
        """Returns the size in bytes of ``pages`` (None: all pages) in each tier, by the name of the tier. A page that
        is read from the store's files counts as 0.
        """
        if pages is None:
            return {tier.name: tier.nbytes for tier in self.tiers}
        found = dict.fromkeys((tier.name for tier in self.tiers), 0)
        for page in pages:
            found[self.tier_of(page)] += int(self._sizes[page])
        return found

    @property
    def mapped_bytes(self) -> int:
        """The size in bytes of the pages that are read from the store's mapped files."""
        return self.disk_tier.mapped_bytes

    def _spare(self) -> float:
        """Returns the number of bytes that new pages could still take, if other pages move to lower tiers or are
        replaced by their stored copies.
        """
        free = sum(inf if tier.limit is None else max(0, tier.limit - tier.nbytes) for tier in self.tiers)
        return free + self._stored.nbytes

    def _room(self, level: int, nbytes: int) -> None:
        """Move pages of the tier at ``level`` to lower tiers until it has room for ``nbytes`` bytes. Raises
        OutOfKVMemory.
        """
        tier = self.tiers[level]
        while tier.limit is not None and tier.nbytes + nbytes > tier.limit:
            if self.give_up(self):
                continue
            victim = self._least_needed(tier)
            if level + 1 == len(self.tiers) or (victim is None and not tier.nbytes and not self._below(level, nbytes)):
                raise OutOfKVMemory(self.nbytes(), nbytes)
            if victim is None:
                return  # every page here is being filled: this step may exceed the limit, the next pushes them down
            try:
                self._move_down(victim, level)
            except OutOfKVMemory:
                if (victim := self._least_needed(tier, stored=True)) is None or not self._map_stored(victim):
                    raise

    def _move_down(self, page: int, level: int) -> None:
        """Move a page from the tier at ``level`` to the next lower tier that is large enough. If that is the disk, and
        the store has a copy of the page, the page is replaced by this copy instead.

        If attention reads pages in place, the copy replaces host memory too, which would be no faster than the store's
        mapped file. Raises OutOfKVMemory.
        """
        payload = self.payload(page)
        below = self._below(level, len(payload))
        if (self.in_place or not below or self.tiers[below] is self.disk_tier) and self._map_stored(page):
            return
        if not below:
            raise OutOfKVMemory(self.nbytes(), len(payload))
        self._room(below, len(payload))
        try:
            self.tiers[below].put(page, payload)
        except (OSError, MemoryError, RuntimeError) as e:  # a full disk, or memory that cannot be had or pinned
            raise OutOfKVMemory(self.nbytes(), len(payload), str(e)) from e
        self._put_in(self.tiers[below], page)
        self.tiers[level].drop(page)
        self.version += 1

    def _map_stored(self, page: int) -> bool:
        """Replace a page's memory or spill slot by the mapped copy in the store. Returns False if the store has no
        verified copy.
        """
        if (payload := self._stored.take(page)) is None:
            return False
        self._where[page].drop(page)
        self.disk_tier.map_stored(page, payload)
        self._put_in(self.disk_tier, page)
        self._sizes[page] = 0
        self.version += 1
        return True

    def _below(self, level: int, nbytes: int) -> int:
        """Returns the next level (index of a tier) below ``level`` whose limit has room for a page of ``nbytes`` bytes,
        or 0.
        """
        limits = [tier.limit for tier in self.tiers]
        return next((i for i, n in enumerate(limits) if i > level and (n is None or n >= nbytes)), 0)

    def _least_needed(self, tier: Tier, stored: bool = False) -> int | None:
        """Returns the least recently used page of ``tier``, or None. If ``stored``, only pages that the store also has
        are considered.
        """
        pages = [p for p in tier if p not in self._open and (p in self._stored or not stored)]
        return min(pages, key=lambda p: (self._used[p], p), default=None)

    def _put_in(self, tier: Tier, page: int) -> None:
        """Record that ``tier`` now holds the page."""
        self._where[page] = tier
        self._addresses[page], self._on_disk[page] = tier.get(page).data_ptr(), tier is self.disk_tier

    def _enter(self, kind: int, nbytes: int) -> int:
        page = self.references.new()
        if page >= len(self._kinds):
            self._kinds, self._on_disk = np.resize(self._kinds, 2 * page), np.resize(self._on_disk, 2 * page)
            self._used, self._sizes = np.resize(self._used, 2 * page), np.resize(self._sizes, 2 * page)
            self._addresses = np.resize(self._addresses, 2 * page)
        self._kinds[page], self._used[page], self._sizes[page] = kind, self.clock, nbytes
        return page


def make_backend(page_format: PageFormat, device: torch.device, in_place: bool, triton: bool) -> Backend:
    """Returns the backend for pages of this format on ``device``. If ``in_place``, attention reads records where they
    are, in any tier. If ``triton``, the TritonBackend is used if it has kernels for the codec.
    """
    if triton and FORMATS[page_format.codec].on_triton:
        from localctx.kv.backends.triton_backend import TritonBackend  # which imports Triton

        return TritonBackend(page_format, device)
    return NumbaBackend(page_format, device) if in_place else TorchBackend(page_format, device)
