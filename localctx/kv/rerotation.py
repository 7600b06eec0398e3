"""Re-rotation: moves keys to other positions. RoPE is relative: a key rotated by d more positions equals the key d
tokens later.
"""

import torch
from torch import Tensor

from localctx.errors import OutOfKVMemory
from localctx.kv.block_table import BlockTable, PageParts
from localctx.kv.pool import Pool
from localctx.shape import PAGE


def rerotate(pool: Pool, layer: int, k: Tensor, v: Tensor, by: int) -> tuple[Tensor, Tensor]:
    """Returns k and v of a ``layer``, with the keys re-rotated to positions that are greater by ``by`` (less if ``by``
    is negative). In a latent layer (MLA), v has the rotary part of the keys and is rotated instead of k.
    """
    assert pool.rope, "this model has no rotary positions"
    if pool.shape.layers[layer].kind == "latent":
        return k, pool.rope.rerotate(layer, v, by)
    return pool.rope.rerotate(layer, k, by), v


def rerotated_page(pool: Pool, parts: PageParts, by: int) -> PageParts:
    """Returns copies of the ``parts`` of a page with their keys re-rotated to positions that are greater by ``by``.
    Raises OutOfKVMemory.
    """
    copies = list[int]()
    try:
        for part, page in enumerate(parts.ids):
            copies.append(_rerotated_part(pool, page, part, by))
    except OutOfKVMemory:
        pool.release(copies)
        raise
    return PageParts(*copies)


def _rerotated_part(pool: Pool, page: int, part: int, by: int) -> int:
    kind = int(pool.kinds([page])[0])
    copy = pool.new(kind, part)
    for layer in pool.format.layers_of(part):
        codec = pool.codec_of(layer, kind)
        k, v = rerotate(pool, layer, *codec.decode(pool.fetch([page], layer), torch.float32), by)
        pool.fill(copy, layer, codec.encode(k, v)[0])
    pool.close([copy])
    return copy


def move_sinks_to_window(table: BlockTable, sink_pages: int) -> None:
    """Re-rotate the keys of the first ``sink_pages`` pages of ``table`` to the positions just before the next page
    (StreamingLLM, arXiv:2309.17453).

    Each time, the sink pages as first computed are re-rotated, so that rounding errors do not add up. Raises
    OutOfKVMemory.
    """
    window = table.placed[sink_pages].position
    for i in range(sink_pages):
        _move_sink(table, i, window - (sink_pages - i) * PAGE)


def rebase_pages(table: BlockTable, sink_pages: int) -> None:
    """Re-rotate the keys of all pages of ``table`` to consecutive positions from 0 on, so that no position exceeds the
    model's window. The first ``sink_pages`` pages are re-rotated from the sink pages as first computed.

    Raises OutOfKVMemory. The next call then continues with the pages that were not yet re-rotated.
    """
    for i, placed in enumerate(table.placed):
        if placed.position == i * PAGE:
            continue
        if i < sink_pages:
            _move_sink(table, i, i * PAGE)
        else:
            moved = rerotated_page(table.pool, placed.parts, i * PAGE - placed.position)
            table.pool.release(placed.parts.ids)
            table.move(i, moved, i * PAGE)


def _move_sink(table: BlockTable, i: int, position: int) -> None:
    is_first = i == len(table.originals)
    original = table.placed[i].parts if is_first else table.originals[i]
    moved = rerotated_page(table.pool, original, position - i * PAGE)
    if is_first:
        table.originals.append(original)
    else:
        table.pool.release(table.placed[i].parts.ids)
    table.move(i, moved, position)
