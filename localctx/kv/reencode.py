"""Changes the codec in the middle of a sequence: sealed pages are decoded and encoded again."""

import torch

from localctx.kv.block_table import PageParts
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool


def reencode(cache: Cache, codec: str) -> None:
    """Encode all pages of ``cache`` again in ``codec``, in which the sequence then continues. The cache is no longer
    exact: its pages do not match their names and are not persisted.

    Pages that are shared with other sequences stay as they are for those sequences. If memory runs out, with
    OutOfKVMemory or torch's own error, ``cache`` is unchanged.
    """
    pool = cache.pool.with_codec(codec)
    copies = [_copy(cache, i, pool) for i in range(cache.num_pages)]
    originals = [_copy_of_sink(cache, parts, pool) for parts in cache.table.originals]
    cache.use_pool(pool, copies, originals)


def _copy(cache: Cache, index: int, pool: Pool) -> PageParts:
    """Copy the page at ``index`` to ``pool``, in the codec of that pool. Pages in full precision stay in full
    precision. An absent part stays absent.
    """
    there = range(len(cache.placed_pages[index].parts.ids))
    return PageParts(*(_copy_of_part(cache, index, part, pool) for part in there))


def _copy_of_part(cache: Cache, index: int, part: int, pool: Pool) -> int:
    kind = int(cache.table.kinds(part)[index])
    page = pool.new(max(kind, pool.kind_at(index)), part)
    for layer in pool.format.layers_of(part):
        k, v = cache.read(layer, index, index + 1, torch.float32)
        pool.seal(layer, [page], k, v, int(cache.table.positions(layer)[index]))
    pool.close([page])
    return page


def _copy_of_sink(cache: Cache, originals: PageParts, pool: Pool) -> PageParts:
    """Copy an original sink page to ``pool``: the page as first computed, with keys at their first positions."""
    return PageParts(*(_copy_of_original(cache, page, part, pool) for part, page in enumerate(originals.ids)))


def _copy_of_original(cache: Cache, original: int, part: int, pool: Pool) -> int:
    old_kind = int(cache.pool.kinds([original])[0])
    page = pool.new(kind := max(old_kind, pool.kind_at(0)), part)
    for layer in pool.format.layers_of(part):
        records = cache.pool.fetch([original], layer)
        k, v = cache.pool.codec_of(layer, old_kind).decode(records, torch.float32)
        pool.fill(page, layer, pool.codec_of(layer, kind).encode(k, v)[0])
    pool.close([page])
    return page
