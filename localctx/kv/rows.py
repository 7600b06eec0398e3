"""Rows: sequences that take one token each in a step, attended together in one call a layer."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from localctx.kernels.cpu import SPLIT
from localctx.kernels.rows import Pages, Tails, attend_rows
from localctx.kv.cache import Cache, first_seen
from localctx.kv.pool import ORDINARY
from localctx.shape import PAGE

BITS = {torch.float32: 32, torch.bfloat16: 16}


def fits_a_row(cache: Cache) -> bool:
    """Whether one more token of this sequence just looks at all there is, on a processor that reads it in place."""
    keeper, count = cache.keeper, len(cache.places)
    judged = keeper.weighs or (keeper.compresses and cache.phase == "asking")
    all_seen = cache.phase == "reading" or keeper.selected(count) >= count
    return cache.pool.in_place and cache.dtype in BITS and all_seen and not judged


class Rows:
    """``caches`` of one model in one codec, all of which have begun a step of one token."""

    def __init__(self, caches: Sequence[Cache]) -> None:
        self._caches, self._pool = caches, caches[0].pool
        counts = [len(cache.places) for cache in caches]
        self._starts = np.cumsum([0, *counts])
        where = [cache.bases() for cache in caches]
        self._bases, self._kinds = (np.concatenate(parts) for parts in zip(*where, strict=True))
        self._tails = np.stack([cache.tail_addresses() for cache in caches], 1)  # [layers, n, 2]
        self._filled = np.array([cache.tail for cache in caches], np.int64)
        self._writes = self._filled < PAGE - 1  # the others seal a page
        self._parts = self._split([(0, 0)] * len(caches))
        self._watched = any(cache.looks is not None for cache in caches)
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
        addresses, kinds = self._bases + pool.offsets[self._kinds, layer], self._kinds
        pages = Pages(self._parts_of(layer, window), *(np.repeat(a[None], layout.heads, 0) for a in (addresses, kinds)))
        tails = Tails(self._tails[layer], BITS[self._caches[0].dtype], self._filled, self._hidden(window), self._writes)
        asking, keys, values = (x.transpose(0, 1).float().contiguous() for x in (q, k, v))
        watched = self._watched and window is None and layer >= len(pool.shape.layers) // 2
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
            extra=self._extra(layer, asking, scale),
            rotated=pool.rotated,
            masses=watched,
        )
        if watched:
            self._got += np.square(got, dtype=np.float64).sum(0)  # as attention looks, a head that looks hard says more
        for i in np.flatnonzero(~self._writes).tolist():
            self._caches[i].extend(layer, k[:, i : i + 1], v[:, i : i + 1])
        return torch.from_numpy(out).to(q.dtype).transpose(0, 1)

    def tell(self) -> None:
        """Tell the caches that are watched what their pages got in this step."""
        for cache, start, stop in zip(self._caches, self._starts, self._starts[1:], strict=False):
            if cache.looks is not None:
                cache.look(np.arange(stop - start), self._got[start:stop])

    def _split(self, seen: Sequence[tuple[int, int]]) -> np.ndarray:
        """The pages of all rows in parts of at most SPLIT, of each row from ``first`` and without ``skip`` tokens."""
        parts = [
            (row, at, min(stop, at + SPLIT), skip if at == start + first else 0)
            for row, (start, stop, (first, skip)) in enumerate(zip(self._starts, self._starts[1:], seen, strict=False))
            for at in range(start + first, stop, SPLIT)
        ]
        return np.array(parts, np.int64).reshape(-1, 4)

    def _parts_of(self, layer: int, window: int | None) -> np.ndarray:
        if window is None:
            return self._parts
        return self._split([first_seen(cache, layer, window) for cache in self._caches])

    def _hidden(self, window: int | None) -> np.ndarray:
        """How many tokens of each open page lie before the window."""
        hidden = [max(0, cache.tail + 1 - window) if window else 0 for cache in self._caches]
        return np.array(hidden, np.int64)

    def _extra(self, layer: int, q: Tensor, scale: float) -> np.ndarray | None:
        """What k_proj's bias, which records are kept without, adds to the scores [Hq, pages * 64]."""
        if not self._pool.unbiased(layer):
            return None
        assert self._pool.rope
        scores = [
            self._pool.rope.bias_scores(layer, q[i], cache.token_positions(layer, 0, len(cache.places)))
            for i, cache in enumerate(self._caches)
        ]
        ordinary = np.repeat(self._kinds == ORDINARY, PAGE)
        return torch.cat(scores, 1).mul_(scale).numpy() * ordinary.astype(np.float32)
