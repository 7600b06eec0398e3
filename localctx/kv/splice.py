"""Blending: tokens that another sequence read are taken over at another place (EPIC, arXiv:2410.15332).

RoPE is relative, so keys are turned to where they come to lie. What their layers saw there stays in them: above the
first layer, keys and values are those of a text that stood alone.
"""

import torch
from torch import Tensor

from localctx.kv import rerotation
from localctx.kv.cache import RUN, Cache
from localctx.shape import PAGE


@torch.inference_mode()
def take_over(cache: Cache, source: Cache, start: int, stop: int) -> None:
    """Append tokens ``start..stop`` of ``source``, of the same model, to ``cache``; they are encoded anew, once.

    ``cache`` is not exact from then on. The pools may differ, in their codecs too. Raises NoRoom, and ModelError where
    keys cannot be turned, with the cache as it was.
    """
    cache.begin(stop - start)
    try:
        for layer in range(len(cache.pool.shape.layers)):
            k, v = as_if_next(cache, source, layer, start, stop)
            cache.extend(layer, k.to(cache.dtype), v.to(cache.dtype))
    except BaseException:
        cache.rollback()
        raise
    cache.commit()
    cache.exact = False


def as_if_next(cache: Cache, source: Cache, layer: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
    """Keys and values [kv_heads, tokens, dim] of a layer of ``source``, turned to follow what ``cache`` holds; f32."""
    k, v = _kept(source, layer, start, stop)
    return rerotation.turn(cache.pool, layer, k, v, cache.position - start)


def _kept(source: Cache, layer: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
    assert source.position == source.length, "a keeper turned this sequence"
    assert not source.evicted, "a keeper dropped part of this sequence"
    assert 0 <= start < stop <= source.length
    first, sealed = start // PAGE, min(-(-stop // PAGE), len(source.placed_pages))
    parts = [
        source.read(layer, at, min(end, sealed), torch.float32) for at, end in source.runs(first, RUN) if at < sealed
    ]
    parts.append(source.open_tail(layer))
    before = min(first, len(source.placed_pages)) * PAGE
    k, v = (torch.cat([x.float() for x in xs], 1)[:, start - before : stop - before] for xs in zip(*parts, strict=True))
    return k, v
