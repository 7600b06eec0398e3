"""Moving keys to other positions: sinks beside a moved window (StreamingLLM, arXiv:2309.17453), and counting anew."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from localctx.errors import NoRoom
from localctx.kv.pool import Pool
from localctx.shape import PAGE, SINKS

if TYPE_CHECKING:
    from localctx.kv.cache import Cache


def turn(pool: Pool, layer: int, k: Tensor, v: Tensor, by: int) -> tuple[Tensor, Tensor]:
    """Keys of a layer ``by`` positions later. In a latent layer what rotates is kept in V's place."""
    assert pool.rope, "this model has no rotary positions to turn"
    if pool.shape.layers[layer].kind == "latent":
        return k, pool.rope.turn(layer, v, by)
    return pool.rope.turn(layer, k, by), v


def turned(pool: Pool, page: int, by: int) -> int:
    """A copy of a page with its keys ``by`` positions later."""
    kind = int(pool.kinds([page])[0])
    copy = pool.new(kind)
    for layer in range(len(pool.shape.layers)):
        codec = pool.codec_of(layer, kind)
        k, v = turn(pool, layer, *codec.decode(pool.fetch([page], layer), torch.float32), by)
        pool.fill(copy, layer, codec.encode(k, v)[0])
    pool.close([copy])
    return copy


def sinks_beside_window(cache: "Cache") -> None:
    """Move the sink pages to end where the window begins, always from the originals, so that errors do not add up."""
    window = cache.places[SINKS].position
    for i in range(SINKS):
        if i == len(cache.originals):
            cache.originals.append(cache.pool.table.share(cache.places[i].page))
        position = window - (SINKS - i) * PAGE
        moved = turned(cache.pool, cache.originals[i], position)
        cache.pool.release([cache.places[i].page])
        cache.move(i, moved, position)


def rebase(cache: "Cache") -> None:
    """Count positions from the sinks again, so that nothing ever lies beyond the model's reach: RoPE is relative.

    Raises NoRoom, with the cache as it was.
    """
    shift = cache.places[0].position if cache.places else 0
    if not shift:
        return
    copies: list[int] = []
    try:
        for page, by in _moves(cache, shift):
            copies.append(turned(cache.pool, page, by))
    except NoRoom:
        cache.pool.release(copies)
        raise
    cache.pool.release(cache.pages)
    for i, place in enumerate(list(cache.places)):
        cache.move(i, copies[i], place.position - shift)
    cache.turn_tail(-shift)


def _moves(cache: "Cache", shift: int) -> Iterator[tuple[int, int]]:
    """What each page is to be copied from, and turned by, to lie ``shift`` positions earlier."""
    for i, place in enumerate(cache.places):
        if i < len(cache.originals):
            yield cache.originals[i], place.position - shift
        else:
            yield place.page, -shift
