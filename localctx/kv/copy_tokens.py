"""Blending: copies tokens of another sequence to a new position (EPIC, arXiv:2410.15332).

RoPE is relative, so the keys are re-rotated to their new positions. Nothing else changes: above the first layer, keys
and values still reflect the text in which the tokens were read.
"""

import torch
from torch import Tensor

from localctx.kv import rerotation
from localctx.kv.block_table import RUN
from localctx.kv.cache import Cache
from localctx.shape import PAGE


@torch.inference_mode()
def copy_tokens(cache: Cache, source: Cache, start: int, stop: int) -> None:
    """Append tokens ``start..stop`` of ``source``, a cache of the same model, to ``cache``. They are decoded,
    re-rotated to their new positions, and encoded again.

    ``cache`` is then no longer exact. The pools and codecs of the two caches may differ. Raises OutOfKVMemory, and
    ModelError if keys cannot be re-rotated; in both cases, ``cache`` is unchanged.
    """
    cache.begin(stop - start)
    try:
        for layer in range(len(cache.pool.shape.layers)):
            k, v = rerotated_to_follow(cache, source, layer, start, stop)
            cache.extend(layer, k.to(cache.dtype), v.to(cache.dtype))
    except BaseException:
        cache.rollback()
        raise
    cache.commit()
    cache.mark_inexact()


def rerotated_to_follow(cache: Cache, source: Cache, layer: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
    """Returns the keys and values [kv_heads, tokens, dim] float32 of tokens ``start..stop`` in one layer of ``source``.
    The keys are re-rotated to the positions that follow the last token of ``cache``.
    """
    k, v = _tokens_of(source, layer, start, stop)
    return rerotation.rerotate(cache.pool, layer, k, v, cache.position - start)


def _tokens_of(source: Cache, layer: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
    assert source.position == source.length, "a keeper rebased this sequence"
    assert not source.evicted, "a keeper evicted part of this sequence"
    assert 0 <= start < stop <= source.length
    first, sealed = start // PAGE, min(-(-stop // PAGE), source.num_pages)
    runs = source.table.runs(layer, first, RUN)
    parts = [source.read(layer, at, min(end, sealed), torch.float32) for at, end in runs if at < sealed]
    parts.append(source.open_tail(layer))
    before = min(first, source.num_pages) * PAGE
    k, v = (torch.cat([x.float() for x in xs], 1)[:, start - before : stop - before] for xs in zip(*parts, strict=True))
    return k, v
