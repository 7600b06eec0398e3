"""Rows: a few new tokens in a step, of one sequence or several, attended together in one call a layer."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from localctx.kernels.decode_batch_cpu import BatchOpenPages, BatchPages, attend_rows
from localctx.kernels.decode_cpu import SPLIT
from localctx.kv.attention import bias_scores, choose, selects
from localctx.kv.cache import Cache, first_seen
from localctx.kv.graph_inputs import CapturableBatch
from localctx.shape import PAGE

BITS = {torch.float32: 32, torch.bfloat16: 16}


MAX_DECODE_TOKENS = 16  # new tokens of a sequence that are rows; more are a chunk


def fits_rows(cache: Cache, tokens: int) -> bool:
    """Whether so many more tokens of this sequence just look at pages, on a processor that reads them in place.

    They must not fill a page, but for a single one; where a query selects, it is alone.
    """
    keeper = cache.keeper
    judged = keeper.weighs or (keeper.compresses and cache.phase == "asking")
    few = tokens == 1 or (tokens <= MAX_DECODE_TOKENS and cache.tail + tokens < PAGE and not chooses(cache))
    if cache.pool.gpu:
        few = tokens == 1 and not chooses(cache)
    return few and cache.in_place() and cache.dtype in BITS and not judged


def most_rows(cache: Cache) -> int:
    """How many tokens may come at once, of which all but the first can be taken back (``Cache.trim``), as if none had.

    1 where a page would be filled, or they would not be computed as each by itself.
    """
    most = (
        min(MAX_DECODE_TOKENS, PAGE - 1 - cache.tail) if cache.dtype == torch.float32 else 1
    )  # only that is computed row by row
    return most if most > 1 and fits_rows(cache, most) else 1


def chooses(cache: Cache) -> bool:
    """Whether queries select pages now: such a sequence has rows of its own."""
    count = len(cache.placed_pages)
    return cache.phase != "reading" and cache.keeper.selected(count) < count


def make_rows(feeds: Sequence[tuple[Cache, int]]) -> "DecodeBatch":
    """Rows as their pool is read."""
    gpu = feeds[0][0].pool.gpu
    return gpu.TritonDecodeBatch(feeds) if gpu else DecodeBatch(feeds)


def split(starts: np.ndarray, seen: Sequence[tuple[int, int]], most: int) -> np.ndarray:
    """The pages of n rows, which begin at ``starts`` [n + 1], in parts of at most ``most``: [S, 4] for the kernels.

    ``seen`` says of each row from which page on it sees, and without how many tokens of that.
    """
    parts = [
        (row, at, min(stop, at + most), skip if at == start + first else 0)
        for row, (start, stop, (first, skip)) in enumerate(zip(starts, starts[1:], seen, strict=False))
        for at in range(start + first, stop, most)
    ]
    return np.array(parts, np.int64).reshape(-1, 4)


class DecodeBatch:
    """New tokens of sequences of one model in one codec, all of which have begun a step of as many: (cache, tokens)."""

    most = SPLIT

    def __init__(self, feeds: Sequence[tuple[Cache, int]]) -> None:
        each = [(cache, i) for cache, tokens in feeds for i in range(tokens)]
        self._caches, self._pool = [cache for cache, _ in each], each[0][0].pool
        self._later = [i for _, i in each]  # how far behind the first new token of its sequence a row is
        counts = [len(cache.placed_pages) for cache in self._caches]
        self._starts = np.cumsum([0, *counts])
        where = [cache.bases() for cache in self._caches]
        self._bases, self._kinds = (np.concatenate(parts) for parts in zip(*where, strict=True))
        tails = {id(cache): cache.tail_addresses() for cache, _ in feeds}
        self._tails = np.stack([tails[id(cache)] for cache in self._caches], 1)  # [layers, n, 2]
        self._filled = np.array([cache.tail + i for cache, i in each], np.int64)
        self._nothing = np.zeros(len(each), np.int64)
        self._parts = split(self._starts, [(0, 0)] * len(each), self.most)
        self._watched = any(cache.attention_mass is not None for cache in self._caches)
        self._got = np.zeros(len(self._bases))

    def attend(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        scale: float,
        *,
        window: int | None = None,
        softcap: float = 0,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """``attend_cache`` for each row: q [Hq, n, D] and the new k, v [H, n, D], which are put into the caches.

        Returns [Hq, n, Dv].
        """
        layout, pool = self._pool.layouts[layer], self._pool
        chosen = self._chosen(layer, q, window)
        pages = self._pages(layer, window) if chosen is None else self._pages_at(layer, chosen)
        tails = BatchOpenPages(self._tails[layer], BITS[self._caches[0].dtype], self._filled, self._hidden(window))
        asking, keys, values = (x.transpose(0, 1).float().contiguous() for x in (q, k, v))
        watched, extra = self._watches(layer, window), self._extra(layer, asking, scale, chosen)
        out, got = attend_rows(
            asking.numpy(),
            keys.numpy(),
            values.numpy(),
            pages,
            tails,
            layout,
            scale,
            softcap=softcap,
            sinks=None if sinks is None else sinks.float().numpy(),
            extra=None if extra is None else extra.numpy(),
            rotated=pool.rotated,
            masses=watched,
        )
        if watched:
            sharp = np.square(got, dtype=np.float64)  # as attention looks, a head that looks hard says more
            heads = 1 if chosen is None else len(chosen)
            self._hear(sharp.reshape(heads, len(sharp) // heads, sharp.shape[1]).sum(1), chosen)
        self._seal(layer, k, v)
        return torch.from_numpy(out).to(q.dtype).transpose(0, 1)

    def tell(self) -> None:
        """Tell the caches that are watched what their pages got in this step."""
        for cache, start, stop in zip(self._caches, self._starts, self._starts[1:], strict=False):
            if cache.attention_mass is not None:
                cache.add_attention(np.arange(stop - start), self._got[start:stop])

    def steady(self) -> CapturableBatch | None:
        """This step as one that others can repeat; None where a step is only itself."""
        return None

    def _seal(self, layer: int, k: Tensor, v: Tensor) -> None:
        for i in np.flatnonzero(self._filled == PAGE - 1).tolist():  # it is alone, and fills a page
            self._caches[i].extend(layer, k[:, i : i + 1], v[:, i : i + 1])

    def _watches(self, layer: int, window: int | None) -> bool:
        return self._watched and window is None and layer >= len(self._pool.shape.layers) // 2

    @cached_property
    def _addresses(self) -> np.ndarray:
        """Where records lie, [layers, pages]."""
        return np.ascontiguousarray((self._bases[:, None] + self._pool.offsets[self._kinds, :-1]).T)

    def _pages(self, layer: int, window: int | None) -> BatchPages:
        return BatchPages(self._parts_of(layer, window), self._addresses[layer : layer + 1], self._kinds[None])

    def _parts_of(self, layer: int, window: int | None) -> np.ndarray:
        """All pages that there are, as far as the window reaches."""
        if window is None:
            return self._parts
        rows = zip(self._caches, self._later, strict=True)
        return split(self._starts, [first_seen(cache, layer, window, later) for cache, later in rows], self.most)

    def _chosen(self, layer: int, q: Tensor, window: int | None) -> np.ndarray | None:
        """The places of the pages that the only row's query selects, [H, m]; None where it looks at all."""
        if not selects(self._caches[0], layer, window):
            return None
        cache = self._caches[0]
        assert len(self._caches) == 1, "who selects is alone"
        chosen = choose(cache, layer, q[:, 0]).numpy()
        cache.touch(chosen)
        return chosen

    def _pages_at(self, layer: int, chosen: np.ndarray) -> BatchPages:
        return BatchPages(self._selected, self._addresses[layer][chosen], self._kinds[chosen])

    @cached_property
    def _selected(self) -> np.ndarray:
        """The parts of the pages that the only row selects, which are as many in every layer."""
        count = self._caches[0].keeper.selected(len(self._caches[0].placed_pages))
        return split(np.array([0, count]), [(0, 0)], self.most)

    def _hear(self, got: np.ndarray, chosen: np.ndarray | None) -> None:
        """What pages got in a layer, [1, pages] or [H, chosen]."""
        if chosen is None:
            self._got += got[0]
        else:
            np.add.at(self._got, chosen, got)

    def _hidden(self, window: int | None) -> np.ndarray:
        """How many tokens of each open page lie before the window."""
        return self._nothing if window is None else np.maximum(0, self._filled + 1 - window)

    def _extra(self, layer: int, q: Tensor, scale: float, chosen: np.ndarray | None = None) -> Tensor | None:
        """What k_proj's bias, which records are kept without, adds to the scores [Hq, pages * 64]."""
        if not self._pool.unbiased(layer):
            return None
        scores = [bias_scores(cache, layer, q[i]) for i, cache in enumerate(self._caches)]
        found = torch.cat(scores, 1).mul_(scale)
        if chosen is None:
            return found
        at = torch.from_numpy(chosen).repeat_interleave(len(found) // len(chosen), 0)
        return found.unflatten(1, (-1, PAGE)).take_along_dim(at[..., None], 1).flatten(1)
