"""A pool's work in a GPU's memory by Triton's kernels. Imported only where these run: ``pool.gpu`` is this module."""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from localctx.kernels import attention_triton, pages_triton
from localctx.kernels.pages_triton import best_scores
from localctx.kernels.sketch import Sketch
from localctx.kv.cache import Cache
from localctx.kv.decode_batch import DecodeBatch, split
from localctx.kv.graph_inputs import CapturableBatch, GraphInputs, pad_to_power_of_two
from localctx.kv.pool import Pool
from localctx.shape import PAGE, KVShape

__all__ = ["TritonDecodeBatch", "attend", "best_scores", "describe", "make_sketch", "seal"]


def describe(pool: Pool) -> list[pages_triton.TritonLayerLayout]:
    """The records of both kinds of each layer, from their page's address on.

    Pools of one shape and codec share them, and they stay: captured graphs look at them when their pool has gone.
    """
    key = pool.shape, pool.codec, pool.device
    if key not in _described:
        _described[key] = [*_describe(pool)]
    return _described[key]


_described = dict[tuple[KVShape, str, torch.device], list[pages_triton.TritonLayerLayout]]()


def _describe(pool: Pool) -> Iterator[pages_triton.TritonLayerLayout]:
    for layer, (heads, k_dim, v_dim, table) in enumerate(pool.layouts):
        offsets = torch.from_numpy(table[:, 2:] + pool.offsets[:, layer, None])
        bits = tuple((int(k), int(v)) for k, v in table[:, :2])
        yield pages_triton.TritonLayerLayout(heads, k_dim, v_dim, bits, offsets.to(pool.device))


def seal(pool: Pool, layer: int, pages: Sequence[int], kind: int, k: Tensor, v: Tensor) -> None:
    """Encode k and v [kv_heads, pages * 64, dim] into one layer of new pages of this kind."""
    at = torch.tensor([pool.payload(page).data_ptr() for page in pages], device=pool.device)
    pages_triton.seal(k, v, at, pool.described[layer], kind, pool.rotated)


def make_sketch(cache: Cache, layer: int, start: int, stop: int) -> Sketch:
    """The sketch of the pages at places ``start..stop``."""
    bases, kinds = cache.on_device()
    return pages_triton.make_sketch(bases[start:stop], kinds[start:stop], cache.pool.described[layer])


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

    The first ``skip`` tokens of each first page are not seen; the rest is as in
    ``attention_triton.attend_pages``, which returns out [Hq, T, Dv], lse [Hq, T] and, where asked for, each page's own
    lse [Hq, T * n].
    """
    tokens, (bases, kinds) = q.shape[1], cache.on_device()
    parts = split(np.arange(tokens + 1) * (places.shape[-1] // tokens), [(0, skip)] * tokens, attention_triton.SPLIT)
    pages = attention_triton.make_pages(parts, tokens, bases[places], kinds[places])
    layout, rotated = cache.pool.described[layer], cache.pool.rotated
    out, lse, each = attention_triton.attend_pages(
        q.transpose(0, 1), pages, layout, scale, softcap=softcap, extra=extra, rotated=rotated, masses=masses
    )
    return out.transpose(0, 1), lse.T, each


class TritonDecodeBatch(DecodeBatch):
    """Rows whose pages lie in a GPU's memory, where kernels read them, and what they are told of them in ``tables``."""

    most = attention_triton.SPLIT
    _told: GraphInputs | None = None

    @property
    def tables(self) -> GraphInputs:
        """``arrays`` on the device: tables of this step alone, where no others were set."""
        if self._told is None:
            self._told = GraphInputs(self.arrays, self._pool.device)
        return self._told

    @tables.setter
    def tables(self, tables: GraphInputs) -> None:
        self._told = tables

    def steady(self) -> CapturableBatch | None:
        """See ``DecodeBatch``. None where a page is filled, or attention reads something in the processor's memory."""
        layers = range(len(self._pool.shape.layers))
        alone = (self._filled == PAGE - 1).any() or any(self._pool.unbiased(layer) for layer in layers)
        return None if alone else self

    @property
    def likeness(self) -> object:
        """See ``CapturableBatch``."""
        return self._pool.codec, len(self._caches), self._watched, tuple(self._asks[0])

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """See ``CapturableBatch``. ``got`` is what attention tells."""
        told = {
            "bases": pad_to_power_of_two(self._bases),
            "kinds": pad_to_power_of_two(self._kinds),
            "got": pad_to_power_of_two(np.zeros(len(self._bases))),
        }
        for i, (parts, hidden) in enumerate(self._asks[1]):
            bounds = attention_triton.bounds_of(parts, len(self._caches))
            told |= {f"parts {i}": pad_to_power_of_two(parts), f"bounds {i}": bounds, f"hidden {i}": hidden}
        return told | {"tails": self._tails, "filled": self._filled}

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
        """See ``DecodeBatch``."""
        told, i = self.tables, self._asks[0][layer]
        assert window == self._pool.shape.layers[layer].window
        pages = attention_triton.TritonPages(told[f"parts {i}"], told[f"bounds {i}"], told["bases"], told["kinds"])
        tails = attention_triton.TritonOpenPages(told["tails"][layer], told["filled"], told[f"hidden {i}"])
        asking, keys, values = (x.transpose(0, 1) for x in (q, k, v))
        extra = self._extra(layer, asking.float(), scale)
        out, got = attention_triton.attend_rows(
            asking,
            keys,
            values,
            pages,
            tails,
            self._pool.described[layer],
            scale,
            softcap=softcap,
            sinks=sinks,
            extra=None if extra is None else pad(extra, (0, PAGE * len(told["bases"]) - extra.shape[1])),
            rotated=self._pool.rotated,
            masses=self._watches(layer, window),
        )
        if got is not None:
            told["got"].add_(got.double().square().sum(0))
        self._seal(layer, k, v)
        return out.transpose(0, 1)

    def tell(self) -> None:
        """See ``DecodeBatch``."""
        if not self._watched:
            return
        self._got = self.tables["got"][: len(self._bases)].cpu().numpy()
        super().tell()

    @cached_property
    def _asks(self) -> tuple[list[int], list[tuple[np.ndarray, np.ndarray]]]:
        """What layers see of the pages, and how many tokens of the open ones they do not: which of them each layer
        asks for, most alike, and these.
        """
        which, found = list[int](), dict[bytes, tuple[int, tuple[np.ndarray, np.ndarray]]]()
        for layer, shape in enumerate(self._pool.shape.layers):
            ask = self._parts_of(layer, shape.window), self._hidden(shape.window)
            which.append(found.setdefault(ask[0].tobytes() + ask[1].tobytes(), (len(found), ask))[0])
        return which, [ask for _, ask in found.values()]
