"""A pool's work in a GPU's memory by Triton's kernels. Imported only where these run: ``pool.gpu`` is this module."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from localctx.kernels import gpu, gpu_pages
from localctx.kernels.gpu_pages import best_scores
from localctx.kernels.sketch import Sketch
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.kv.rows import Rows, split

__all__ = ["RowsOnGpu", "attend", "best_scores", "describe", "make_sketch", "seal"]


def describe(pool: Pool, layer: int) -> gpu_pages.Layout:
    """The records of both kinds of one layer, from their page's address on."""
    heads, k_dim, v_dim, table = pool.layouts[layer]
    offsets = torch.from_numpy(table[:, 2:] + pool.offsets[:, layer, None])
    bits = tuple((int(k), int(v)) for k, v in table[:, :2])
    return gpu_pages.Layout(heads, k_dim, v_dim, bits, offsets.to(pool.device))


def seal(pool: Pool, layer: int, pages: Sequence[int], kind: int, k: Tensor, v: Tensor) -> None:
    """Encode k and v [kv_heads, pages * 64, dim] into one layer of new pages of this kind."""
    at = torch.tensor([pool.payload(page).data_ptr() for page in pages], device=pool.device)
    gpu_pages.seal(k, v, at, pool.described[layer], kind, pool.rotated)


def make_sketch(cache: Cache, layer: int, start: int, stop: int) -> Sketch:
    """The sketch of the pages at places ``start..stop``."""
    bases, kinds = cache.on_device()
    return gpu_pages.make_sketch(bases[start:stop], kinds[start:stop], cache.pool.described[layer])


def attend(
    cache: Cache,
    layer: int,
    q: Tensor,
    places: Tensor,
    scale: float,
    *,
    skip: int = 0,
    softcap: float = 0,
    extra: Tensor | None = None,
    masses: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Each of the tokens q [Hq, T, D] over its own sealed pages: ``places`` [T * n], or [H, T * n] by KV head.

    The first ``skip`` tokens of each first page are not seen; the rest is as in ``gpu.attend_pages``, which returns
    out [Hq, T, Dv], lse [Hq, T] and, where asked for, each page's own lse [Hq, T * n].
    """
    tokens, (bases, kinds) = q.shape[1], cache.on_device()
    parts = split(np.arange(tokens + 1) * (places.shape[-1] // tokens), [(0, skip)] * tokens, gpu.SPLIT)
    pages = gpu.make_pages(parts, tokens, bases[places], kinds[places])
    layout, rotated = cache.pool.described[layer], cache.pool.rotated
    out, lse, each = gpu.attend_pages(
        q.transpose(0, 1), pages, layout, scale, softcap=softcap, extra=extra, rotated=rotated, masses=masses
    )
    return out.transpose(0, 1), lse.T, each


class RowsOnGpu(Rows):
    """Rows whose pages lie in a GPU's memory, where kernels read them."""

    most = gpu.SPLIT

    def __init__(self, feeds: Sequence[tuple[Cache, int]]) -> None:
        super().__init__(feeds)
        where = [cache.on_device() for cache in self._caches]
        self._where = [torch.cat(parts) for parts in zip(*where, strict=True)]
        self._tails_there, self._filled_there = self._put(self._tails), self._put(self._filled)
        self._asked: dict[bytes, tuple[gpu.Pages, Tensor]] = {}
        self._given = torch.zeros(len(self._got), dtype=torch.float64, device=self._pool.device)

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
        """See ``Rows``."""
        pages, hidden = self._ask(window, layer)
        tails = gpu.Tails(self._tails_there[layer], self._filled_there, hidden)
        asking, keys, values = (x.transpose(0, 1) for x in (q, k, v))
        out, got = gpu.attend_rows(
            asking,
            keys,
            values,
            pages,
            tails,
            self._pool.described[layer],
            scale,
            softcap=softcap,
            sinks=sinks,
            extra=self._extra(layer, asking.float(), scale),
            rotated=self._pool.rotated,
            masses=self._watches(layer, window),
        )
        if got is not None:
            self._given += got.double().square().sum(0)
        self._seal(layer, k, v)
        return out.transpose(0, 1)

    def tell(self) -> None:
        """See ``Rows``."""
        self._got = self._given.cpu().numpy()
        super().tell()

    def _ask(self, window: int | None, layer: int) -> tuple[gpu.Pages, Tensor]:
        """What a layer of this window sees of the pages, and how many tokens of the open ones it does not."""
        parts, hidden = self._parts_of(layer, window), self._hidden(window)
        key = parts.tobytes() + hidden.tobytes()
        if key not in self._asked:  # most layers ask alike
            self._asked[key] = gpu.make_pages(parts, len(self._caches), *self._where), self._put(hidden)
        return self._asked[key]

    def _put(self, x: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(x)).to(self._pool.device)
