"""Compaction: packs the best tokens of several sealed pages into fewer pages, separately for each head."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from localctx.kv.block_table import BlockTable, PageParts
from localctx.kv.page_format import ORDINARY, SINK
from localctx.shape import FULL, PAGE, SINK_PAGES


def pack_tokens_by_score(
    table: BlockTable, slots: int, stop: int, score: Callable[[int, Tensor], Tensor]
) -> tuple[list[PageParts], list[np.ndarray | None]]:
    """Pack the best tokens of the pages ``SINK_PAGES..stop`` into ``slots`` new pages. Keys stay at their positions.
    The table does not change.

    ``score`` is a function of a layer and its keys [kv_heads, tokens, k_dim] that returns a score for each token,
    [kv_heads, tokens]. The tokens with the highest scores are kept. A sliding-window layer keeps its last pages
    instead. Returns the new pages, and an entry for each layer: None, or for a sliding-window layer the positions of
    the first keys of its pages. Raises OutOfKVMemory.
    """
    # A packed page mixes positions, so the bias of each key is unknown: such pages keep full precision.
    layers, last = range(len(table.pool.shape.layers)), table.placed[stop - slots : stop]
    kind = SINK if any(map(table.pool.unbiased, layers)) else ORDINARY
    pages = [table.pool.new(kind) for _ in range(slots)]
    for layer in table.pool.format.layers_of(FULL):
        _pack_layer(table, layer, stop, pages, kind, score)
    table.pool.close(pages)
    parts = [PageParts(page, placed.parts.sliding) for page, placed in zip(pages, last, strict=True)]
    return parts, [_positions_of_last(table, layer, slots, stop) for layer in layers]


def _pack_layer(
    table: BlockTable, layer: int, stop: int, pages: list[int], kind: int, score: Callable[[int, Tensor], Tensor]
) -> None:
    k, v = table.read(layer, SINK_PAGES, stop, torch.float32)
    count = len(pages) * PAGE
    if table.pool.shape.layers[layer].window is None:
        keep = score(layer, k).topk(count, -1).indices.sort(-1).values  # [kv_heads, count]
        k, v = (x.take_along_dim(keep[..., None], 1) for x in (k, v))
    else:
        k, v = k[:, -count:], v[:, -count:]
    for page, record in zip(pages, table.pool.codec_of(layer, kind).encode(k, v), strict=True):
        table.pool.fill(page, layer, record)


def _positions_of_last(table: BlockTable, layer: int, slots: int, stop: int) -> np.ndarray | None:
    """Returns the positions of the sinks and the last ``slots`` pages before ``stop`` in a sliding layer, None for
    others.
    """
    if table.pool.shape.layers[layer].window is None:
        return None
    own = table.positions(layer)
    return np.concatenate((own[:SINK_PAGES], own[stop - slots : stop]))
