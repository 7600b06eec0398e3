"""Another codec in the middle of a sequence: what was sealed is decoded and encoded again."""

import torch

from localctx.kv.cache import Cache
from localctx.kv.pool import Pool


def reencode(cache: Cache, codec: str) -> None:
    """Keep ``cache`` in ``codec`` from here on. Its pages are then not what their names say, and not to be stored.

    Other sequences keep the pages they share with it. Whatever it raises, NoRoom or for want of memory, the
    cache is as it was.
    """
    old = cache.pool
    pool = Pool(old.shape, codec, old.device, old.rope, old.limits, old.spill, old.in_place, bool(old.gpu))
    copies = [_copy(cache, i, pool) for i in range(len(cache.placed_pages))]
    originals = [_copy_of_sink(cache, page, pool) for page in cache.originals]
    old.release([*cache.pages, *cache.originals])
    cache.settle_in(pool, copies, originals)


def _copy(cache: Cache, place: int, pool: Pool) -> int:
    was = int(cache.pool.kinds(cache.pages[place : place + 1])[0])
    page = pool.new(max(was, pool.kind_at(place)))  # full precision stays that
    for layer in range(len(pool.shape.layers)):
        k, v = cache.read(layer, place, place + 1, torch.float32)
        pool.seal(layer, [page], k, v, int(cache.positions(layer)[place]))
    pool.close([page])
    return page


def _copy_of_sink(cache: Cache, original: int, pool: Pool) -> int:
    """A copy of a sink page as it was read, at the positions it had then."""
    was = int(cache.pool.kinds([original])[0])
    page = pool.new(kind := max(was, pool.kind_at(0)))
    for layer in range(len(pool.shape.layers)):
        records = cache.pool.fetch([original], layer)
        k, v = cache.pool.codec_of(layer, was).decode(records, torch.float32)
        pool.fill(page, layer, pool.codec_of(layer, kind).encode(k, v)[0])
    pool.close([page])
    return page
