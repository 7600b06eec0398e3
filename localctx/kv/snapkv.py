"""SnapKV (arXiv:2404.14469): once the prompt is read, each KV head keeps the tokens its last queries looked at."""

import numpy as np
import torch
from torch import Tensor

from localctx.kv.cache import Cache
from localctx.kv.keepers import POOL, SnapKV
from localctx.kv.pool import ORDINARY, SINK
from localctx.shape import PAGE, SINKS


def compress_with_snapkv(cache: Cache) -> None:
    """Pack what is worth keeping of the sealed pages into fewer; the sinks and the prompt's end stay whole.

    A sliding layer, which sees only the last tokens, keeps those. Keys stay at their positions. Raises NoRoom.
    """
    assert isinstance(cache.keeper, SnapKV)
    slots, recent = cache.keeper.kept_pages(len(cache.placed_pages))
    voted = min((v.shape[1] // PAGE for v in cache.observed.values()), default=0)
    stop = min(voted, len(cache.placed_pages) - recent)
    if stop - SINKS <= slots:
        return
    # A page mixes positions now, so what a bias adds to each is not known: such pages keep full precision.
    layers = range(len(cache.pool.shape.layers))
    kind = SINK if any(map(cache.pool.unbiased, layers)) else ORDINARY
    pages = [cache.pool.new(kind) for _ in range(slots)]
    own = [_compress_layer(cache, layer, stop, pages, kind) for layer in layers]
    cache.pool.close(pages)
    cache.replace(SINKS, stop, pages, own)
    cache.observed.clear()


def _compress_layer(cache: Cache, layer: int, stop: int, pages: list[int], kind: int) -> np.ndarray | None:
    k, v = cache.read(layer, SINKS, stop, torch.float32)
    count, own = len(pages) * PAGE, None
    if layer in cache.observed:
        votes = _pooled(cache.observed[layer][:, SINKS * PAGE : stop * PAGE])
        keep = votes.topk(count, -1).indices.sort(-1).values  # [kv_heads, count]
        k, v = (x.take_along_dim(keep[..., None], 1) for x in (k, v))
    else:
        k, v = k[:, -count:], v[:, -count:]
        own = cache.positions(layer)
        own = np.concatenate((own[:SINKS], own[stop - len(pages) : stop]))
    for page, record in zip(pages, cache.pool.codec_of(layer, kind).encode(k, v), strict=True):
        cache.pool.fill(page, layer, record)
    return own


def _pooled(votes: Tensor) -> Tensor:
    """Votes of neighbours count for each other, so that what is kept are phrases."""
    return torch.nn.functional.max_pool1d(votes[None], POOL, 1, POOL // 2)[0]
