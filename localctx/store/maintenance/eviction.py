"""Eviction from the store: pages and original files stay within a budget of bytes. Documents and chats are never
evicted.
"""

import time
from dataclasses import dataclass, field

from localctx.errors import format_bytes
from localctx.store.caches import CacheRow
from localctx.store.store import Store

WASTE = 0.25  # of a page file: with fewer dead bytes a rewrite costs more than evicting the next cache


@dataclass(frozen=True)
class EvictedCache:
    """One cache's evicted pages: the names of its documents or chat, and the ``bytes`` that no other cache shared."""

    names: tuple[str, ...]
    tokens: int
    bytes: int

    def __str__(self) -> str:
        size = format_bytes(self.bytes)
        return f"{', '.join(self.names)}: {self.tokens:,} tokens given up to make room on disk ({size})"


@dataclass
class EvictionResult:
    """The result of making room: True if the needed bytes fit now, and the caches that were evicted for them."""

    enough: bool = False
    evicted: list[EvictedCache] = field(default_factory=list)


def make_room(store: Store, budget: int, need: int = 0, using: str = "") -> EvictionResult:
    """Evict pages until page files and original files together take at most ``budget`` bytes less ``need``, the lowest
    score first; when there are no more, original files, which cannot be made again.

    The cache ``using`` and pinned documents are never evicted; nothing is if evicting all the rest would not do. A page
    of several caches goes with the last of them. Processes that have an evicted page mapped go on reading it.
    """
    result = EvictionResult()
    least = store.caches.unevictable_bytes(using) + store.originals.pinned_nbytes()
    if store.disk_bytes() + need > budget and least + need <= budget:
        _sweep(store)
        while store.disk_bytes() + need > budget:
            pages_went = store.pages.compact(WASTE) or _evict_one(store, using, result) or store.pages.compact()
            if not (pages_went or store.originals.evict_one()):
                break
    result.enough = store.disk_bytes() + need <= budget
    return result


def eviction_score(cache: CacheRow, seconds_per_token: float, now: float) -> float:
    """Returns the seconds of prefill that a stored byte saves, divided by the seconds since its last use.

    Cost by size is GreedyDual-Size's measure (Cao and Irani, 1997). Its ageing needs a floor that outlives each
    eviction; dividing by the time since the last use ages as well (hyperbolic caching, Blankstein et al., 2017) and
    needs only that time. Among caches of one model and codec this is least recently used first.
    """
    return cache.kept * seconds_per_token / max(1, cache.bytes) / max(1.0, now - cache.used)


def _evict_one(store: Store, using: str, result: EvictionResult) -> bool:
    """Evict the cache with the lowest score; returns False if there is none."""
    caches = store.caches.evictable(using)
    if not caches:
        return False
    rates, now = {c.fingerprint: store.caches.rate(c.fingerprint) for c in caches}, time.time()
    known = [1 / rate for rate in rates.values() if rate]
    average = sum(known) / len(known) if known else 1.0  # of a model that was never timed
    per_token = {fingerprint: 1 / rate if rate else average for fingerprint, rate in rates.items()}
    lowest = min(caches, key=lambda c: eviction_score(c, per_token[c.fingerprint], now))
    names, before = tuple(store.caches.names(lowest.id)) or ("a deleted document",), store.pages.live()
    _sweep(store, lowest.id)
    if freed := before - store.pages.live():  # else other caches hold all of it still
        result.evicted.append(EvictedCache(names, lowest.kept, freed))
    return True


def _sweep(store: Store, cache: str = "") -> None:
    """Empty ``cache`` and delete the pages that no other cache has."""
    with store.db.atomic():
        store.caches.drop_pages(cache)
        dead = store.pages.forget_unused()
    store.pages.unlink_files(dead)
