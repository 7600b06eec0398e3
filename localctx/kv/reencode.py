"""Changing the codec in the middle of a sequence: sealed pages are decoded and encoded again."""

import torch

from localctx.kv.cache import Cache
from localctx.kv.pool import Pool


def reencode(cache: Cache, codec: str) -> None:
    """Hold ``cache`` in ``codec`` from here on. Its pages then are not what their names say, and not persisted.

    Other sequences keep the pages they share with it. Whatever it raises, NoRoom or for want of memory, the
    cache is as it was.
    """
    pool = cache.pool.with_codec(codec)
    copies = [_copy(cache, i, pool) for i in range(cache.num_pages)]
    originals = [_copy_of_sink(cache, page, pool) for page in cache.table.originals]
    cache.use_pool(pool, copies, originals)


def _copy(cache: Cache, index: int, pool: Pool) -> int:
    kind = int(cache.table.kinds[index])
    page = pool.new(max(kind, pool.kind_at(index)))  # what is in full precision stays so
    for layer in range(len(pool.shape.layers)):
        k, v = cache.read(layer, index, index + 1, torch.float32)
        pool.seal(layer, [page], k, v, int(cache.table.positions(layer)[index]))
    pool.close([page])
    return page


def _copy_of_sink(cache: Cache, original: int, pool: Pool) -> int:
    """A copy of a sink page as it was first computed, at the positions it had then."""
    old_kind = int(cache.pool.kinds([original])[0])
    page = pool.new(kind := max(old_kind, pool.kind_at(0)))
    for layer in range(len(pool.shape.layers)):
        records = cache.pool.fetch([original], layer)
        k, v = cache.pool.codec_of(layer, old_kind).decode(records, torch.float32)
        pool.fill(page, layer, pool.codec_of(layer, kind).encode(k, v)[0])
    pool.close([page])
    return page
