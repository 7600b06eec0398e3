"""Evicts pages and original files to stay within a budget of bytes. Documents and chats are never evicted."""

import time
from dataclasses import dataclass, field

from localctx.errors import format_bytes
from localctx.store.caches import CacheRow
from localctx.store.store import Store

WASTE = 0.25  # share of dead bytes in a page file below which a rewrite costs more than evicting the next cache


@dataclass(frozen=True)
class EvictedCache:
    """A cache that was evicted: the names of its documents or of its chat, the number of tokens whose pages it had, and
    ``bytes``, the size of the pages that no other cache shared.
    """

    names: tuple[str, ...]
    tokens: int
    bytes: int

    def __str__(self) -> str:
        size = format_bytes(self.bytes)
        return f"{', '.join(self.names)}: {self.tokens:,} tokens given up to make room on disk ({size})"


@dataclass
class EvictionResult:
    """The result of ``make_room``. ``enough`` is True if the needed bytes fit now; ``evicted`` are the caches that were
    evicted.
    """

    enough: bool = False
    evicted: list[EvictedCache] = field(default_factory=list)


def make_room(store: Store, budget: int, need: int = 0, using: str = "") -> EvictionResult:
    """Evict caches, lowest score first, until page files and original files take at most ``budget - need`` bytes.

    If no caches are left to evict, original files are evicted, which cannot be recomputed. The cache ``using``, which
    is in use, and pinned documents are never evicted. If evicting everything else would not suffice, nothing is
    evicted. A page that several caches share is deleted with the last of them. Processes that have an evicted page
    mapped can still read it.
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
    """Returns the seconds of prefill that each stored byte saves, divided by the seconds since the last use. The cache
    with the lowest score is evicted first.

    Cost divided by size is the priority of GreedyDual-Size (Cao and Irani, 1997), but GreedyDual-Size ages entries with
    a value that must be stored between evictions. Dividing by the time since the last use (hyperbolic caching,
    Blankstein et al., 2017) ages entries without such a value. Among caches of one model and codec, the least recently
    used is evicted first.
    """
    return cache.kept * seconds_per_token / max(1, cache.bytes) / max(1.0, now - cache.used)


def _evict_one(store: Store, using: str, result: EvictionResult) -> bool:
    """Evict the cache with the lowest score; returns False if there is none."""
    caches = store.caches.evictable(using)
    if not caches:
        return False
    rates, now = {c.fingerprint: store.caches.rate(c.fingerprint) for c in caches}, time.time()
    known = [1 / rate for rate in rates.values() if rate]
    average = sum(known) / len(known) if known else 1.0  # for models without a measured rate
    per_token = {fingerprint: 1 / rate if rate else average for fingerprint, rate in rates.items()}
    lowest = min(caches, key=lambda c: eviction_score(c, per_token[c.fingerprint], now))
    names, before = tuple(store.caches.names(lowest.id)) or ("a deleted document",), store.pages.live()
    _sweep(store, lowest.id)
    if freed := before - store.pages.live():  # 0 if other caches share all of its pages
        result.evicted.append(EvictedCache(names, lowest.kept, freed))
    return True


def _sweep(store: Store, cache: str = "") -> None:
    """Remove all pages from ``cache`` (empty: none), and delete the pages that are in no cache."""
    with store.db.atomic():
        store.caches.drop_pages(cache)
        dead = store.pages.forget_unused()
    store.pages.unlink_files(dead)
