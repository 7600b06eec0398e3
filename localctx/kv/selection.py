"""Selects sealed pages for a query, and computes the scores of the key bias that stored keys lack."""

import torch
from torch import Tensor

from localctx.kernels import quant
from localctx.kernels.cpu.key_bias import KeyBias
from localctx.kernels.cpu.selection import choose
from localctx.kv.cache import Cache
from localctx.kv.page_format import ORDINARY
from localctx.shape import PAGE, SINK_PAGES


def choose_pages(cache: Cache, layer: int, q: Tensor, scale: float) -> Tensor:
    """Returns the indices of the sealed pages that a token q [Hq, D] sees, ascending: [H, selected]. The query heads of
    one KV head select together. ``scale`` is the factor of attention scores.
    """
    q = q.float() * scale
    pool, sketch = cache.pool, cache.sketches.of_layer(layer)
    grouped = (quant.rotate(q) if pool.format.rotated else q).unflatten(0, (len(sketch.codes), -1))
    extra = bias_scores(cache, layer, q).unflatten(0, grouped.shape[:2]) if pool.unbiased(layer) else None
    count = cache.keeper.pages_seen(cache.num_pages)
    return choose(grouped, sketch, count, SINK_PAGES, extra, pool.backend.best_scores)


def page_bias(cache: Cache, layer: int) -> KeyBias:
    """Returns the bias of k_proj that the keys of the sealed pages lack; 0 for sink pages, whose keys are stored with
    it.
    """
    pool, table = cache.pool, cache.table
    assert pool.rope
    bias = pool.rope.key_bias(layer, torch.from_numpy(table.positions(layer)))
    bias.starts[:, table.kinds(pool.shape.parts[layer]) != ORDINARY] = 0
    return bias


def bias_scores(cache: Cache, layer: int, q: Tensor) -> Tensor:
    """Returns how much the bias of k_proj adds to the product of q [Hq, D] with each sealed key: [Hq, pages * 64].
    Quantized records are stored without the bias. The result is 0 for sink pages, which are stored with it.
    """
    pool, count = cache.pool, cache.num_pages
    assert pool.rope
    if not count:
        return q.new_empty(len(q), 0, dtype=torch.float32)
    scores = pool.rope.bias_scores(layer, q.float(), cache.table.token_positions(layer, 0, count))
    ordinary = torch.from_numpy(cache.table.kinds(pool.shape.parts[layer]) == ORDINARY).to(scores)
    return (scores.unflatten(1, (count, PAGE)) * ordinary[:, None]).flatten(1)
