"""Selects sealed pages for a query, and computes the bias that stored keys lack."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from localctx.kernels import quant
from localctx.kernels.cpu.key_bias import KeyBias
from localctx.kernels.cpu.selection import choose
from localctx.kv.cache import Cache
from localctx.kv.page_format import ORDINARY
from localctx.shape import PAGE, SINK_PAGES


def choose_pages(cache: Cache, layer: int, q: Tensor, extra: Tensor | None) -> Tensor:
    """Returns the indices of the sealed pages that a new token attends to, ascending: [H, selected]. q [Hq, D] are its
    scaled queries. The query heads of one KV head select pages together. ``extra`` [Hq, pages * 64] is added to the
    scores of keys.
    """
    pool, sketch, q = cache.pool, cache.sketches.of_layer(layer), q.float()
    grouped = (quant.rotate(q) if pool.format.rotated else q).unflatten(0, (len(sketch.codes), -1))
    more = None if extra is None else extra.unflatten(0, grouped.shape[:2])
    count = cache.keeper.pages_seen(cache.num_pages)
    return choose(grouped, sketch, count, SINK_PAGES, more, pool.backend.best_scores)


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
    pool, tables = caches[0].pool, [cache.table for cache in caches]
    assert pool.rope
    positions = [np.concatenate([table.positions(layer) for table in tables]) for layer in layers]
    bias = pool.rope.key_bias(layers, torch.from_numpy(np.stack(positions)))
    for own, layer in zip(bias.starts, layers, strict=True):
        own[:, np.concatenate([table.kinds(pool.shape.parts[layer]) for table in tables]) != ORDINARY] = 0
    return bias


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
