"""Moving keys to other positions: sinks beside a moved window (StreamingLLM, arXiv:2309.17453), and counting anew."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

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
    window = cache.placed_pages[SINKS].position
    for i in range(SINKS):
        _move_sink(cache, i, window - (SINKS - i) * PAGE)


def rebase(cache: "Cache") -> None:
    """Count positions from the sinks again, so that nothing ever lies beyond the model's reach: RoPE is relative.

    What NoRoom stops is taken up where it was by the next call.
    """
    for i, place in enumerate(cache.placed_pages):
        if place.position == i * PAGE:
            continue
        if i < SINKS:
            _move_sink(cache, i, i * PAGE)
        else:
            moved = turned(cache.pool, place.page, i * PAGE - place.position)
            cache.pool.release([place.page])
            cache.move(i, moved, i * PAGE)
    if by := len(cache.placed_pages) * PAGE + cache.tail - cache.position:
        cache.turn_tail(by)


def _move_sink(cache: "Cache", i: int, position: int) -> None:
    if i == len(cache.originals):
        cache.originals.append(cache.placed_pages[i].page)
    else:
        cache.pool.release([cache.placed_pages[i].page])
    cache.move(i, turned(cache.pool, cache.originals[i], position - i * PAGE), position)
