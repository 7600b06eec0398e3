"""Selects sealed pages for a query, and computes the bias that stored keys lack."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from localctx.kernels import quant
from localctx.kernels.cpu.key_bias import KeyBias
from localctx.kernels.cpu.selection import BiasedKeys, choose
from localctx.kv.cache import Cache
from localctx.kv.page_format import ORDINARY
from localctx.kv.sketches import missing_bias
from localctx.shape import PAGE, SINK_PAGES


def choose_pages(cache: Cache, layer: int, q: Tensor) -> Tensor:
    """Returns the indices of the sealed pages that a new token attends to, ascending: [H, selected]. q [Hq, D] are its
    scaled queries. The query heads of one KV head select pages together.
    """
    pool, sketch = cache.pool, cache.sketches.of_layer(layer)
    plain = q.float().unflatten(0, (len(sketch.codes), -1))
    grouped, count = quant.rotate(plain) if pool.format.rotated else plain, cache.keeper.pages_seen(cache.num_pages)
    if not pool.unbiased(layer):
        return choose(grouped, sketch, count, SINK_PAGES, None, pool.backend.best_scores)
    if pool.backend.best_scores or q.device.type != "cpu":
        extra = bias_scores(cache, layer, q).unflatten(0, plain.shape[:2])
        return choose(grouped, sketch, count, SINK_PAGES, extra, pool.backend.best_scores)
    biased = BiasedKeys(plain, page_bias([cache], layer), cache.sketches.ranges(layer))
    return choose(grouped, sketch, count, SINK_PAGES, biased=biased)


def page_bias(caches: Sequence[Cache], layer: int) -> KeyBias:
    """Returns the bias of k_proj that the stored keys of the sealed pages of ``caches`` lack in one ``layer``, with
    ``KeyBias.starts`` [H, pages, D].
    """
    biases = layer_biases(caches, [layer])
    return biases._replace(starts=biases.starts[0])


def layer_biases(caches: Sequence[Cache], layers: Sequence[int]) -> KeyBias:
    """Returns the bias of k_proj that the stored keys of the sealed pages of ``caches`` lack in ``layers``, with
    ``KeyBias.starts`` [layers, H, pages, D]. It is 0 for sink pages, whose keys include the bias. The caches share a
    pool or a page format.
    """
    each = [_own_biases(cache, tuple(layers)) for cache in caches]
    return each[0]._replace(starts=np.concatenate([bias.starts for bias in each], 2)) if len(each) > 1 else each[0]


def _own_biases(cache: Cache, layers: tuple[int, ...]) -> KeyBias:
    """Returns ``layer_biases`` of one sequence, which are computed again only after its pages have changed."""
    table = cache.table
    return table.remembered(("bias", layers), lambda: missing_bias(table, layers))


def bias_scores(cache: Cache, layer: int, q: Tensor) -> Tensor:
    """Returns how much the bias of k_proj, which quantized pages leave out of stored keys, would add to the score of
    each sealed key: [Hq, pages * 64]. q [Hq, D] are the queries of one token. The result is 0 for sink pages, whose
    keys include the bias.
    """
    pool, count = cache.pool, cache.num_pages
    assert pool.rope
    if not count:
        return q.new_empty(len(q), 0, dtype=torch.float32)
    scores = pool.rope.bias_scores(layer, q.float(), cache.table.token_positions(layer, 0, count))
    ordinary = torch.from_numpy(cache.table.kinds(pool.shape.parts[layer]) == ORDINARY).to(scores)
    return (scores.unflatten(1, (count, PAGE)) * ordinary[:, None]).flatten(1)
