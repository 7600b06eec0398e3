"""Another codec in the middle of a sequence: what was sealed is decoded and encoded again."""

import torch

from localctx.errors import NoRoom
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool


def recode(cache: Cache, codec: str) -> None:
    """Keep ``cache`` in ``codec`` from here on. Its pages are then not what their names say, and not to be stored.

    Other sequences keep the pages they share with it. Raises NoRoom, with the cache as it was.
    """
    old = cache.pool
    pool = Pool(old.shape, codec, old.device, old.rope, old.limits, old.spill, old.in_place)
    pages: list[int] = []
    try:
        for i in range(len(cache.places)):
            pages.append(_copy(cache, i, pool))
    except NoRoom:
        pool.release(pages)
        raise
    old.release(cache.pages)
    cache.settle_in(pool, pages)


def _copy(cache: Cache, place: int, pool: Pool) -> int:
    was = int(cache.pool.kinds(cache.pages[place : place + 1])[0])
    page = pool.new(max(was, pool.kind_at(place)))  # full precision stays that
    for layer in range(len(pool.shape.layers)):
        k, v = cache.read(layer, place, place + 1, torch.float32)
        pool.seal(layer, [page], k, v, int(cache.positions(layer)[place]))
    pool.close([page])
    return page
