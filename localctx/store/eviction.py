"""The shelf: kept pages within a budget of bytes. Only pages are given up; documents and chats stay."""

import time
from dataclasses import dataclass, field

from localctx.errors import format_bytes
from localctx.store.caches import CacheRow
from localctx.store.store import Store

WASTE = 0.25  # of a page file: with fewer dead bytes a rewrite costs more than giving up the next cache


@dataclass(frozen=True)
class EvictedCache:
    """The pages of one cache that were given up, named after its documents or its chat; ``bytes`` that only it held."""

    names: tuple[str, ...]
    tokens: int
    bytes: int

    def __str__(self) -> str:
        size = format_bytes(self.bytes)
        return f"{', '.join(self.names)}: {self.tokens:,} tokens given up to make room on disk ({size})"


@dataclass
class EvictionResult:
    """Whether what was wanted fits now, and what was given up for it."""

    enough: bool = False
    given_up: list[EvictedCache] = field(default_factory=list)


def make_room(store: Store, budget: int, need: int = 0, using: str = "") -> EvictionResult:
    """Give up kept pages until page files take ``budget`` bytes less ``need``: the least worth keeping first.

    Never those of the cache ``using`` or of a pinned document; nothing at all where even the rest would not do. Pages
    of several caches count once and go with the last. Another process goes on reading what it has mapped.
    """
    room = EvictionResult()
    if store.pages.nbytes() + need > budget and store.caches.bytes_that_stay(using) + need <= budget:
        _sweep(store)
        while store.pages.nbytes() + need > budget:
            if not (store.pages.compact(WASTE) or _give_up(store, using, room) or store.pages.compact()):
                break
    room.enough = store.pages.nbytes() + need <= budget
    return room


def worth(cache: CacheRow, seconds_per_token: float, now: float) -> float:
    """Seconds of reading that a kept byte saves, by the seconds since it was last of use.

    Cost by size is GreedyDual-Size's measure (Cao and Irani, 1997). Its ageing needs a floor that outlives each
    eviction; dividing by the time since the last use ages as well (hyperbolic caching, Blankstein et al., 2017) and
    needs only that time. Among caches of one model and codec this is least recently used first.
    """
    return cache.kept * seconds_per_token / max(1, cache.bytes) / max(1.0, now - cache.used)


def _give_up(store: Store, using: str, room: EvictionResult) -> bool:
    """Give up the pages of the cache least worth keeping; False when there is none."""
    caches = store.caches.may_go(using)
    if not caches:
        return False
    rates, now = {c.fingerprint: store.caches.rate(c.fingerprint) for c in caches}, time.time()
    known = [1 / rate for rate in rates.values() if rate]
    usual = sum(known) / len(known) if known else 1.0  # of a model that was never timed
    per_token = {of: 1 / rate if rate else usual for of, rate in rates.items()}
    least = min(caches, key=lambda c: worth(c, per_token[c.fingerprint], now))
    names, before = tuple(store.caches.about(least.id)), store.pages.live()
    _sweep(store, least.id)
    if freed := before - store.pages.live():  # else other caches hold all of it still
        room.given_up.append(EvictedCache(names, least.kept, freed))
    return True


def _sweep(store: Store, cache: str = "") -> None:
    """Drop the pages that no cache but ``cache`` holds."""
    with store.db.atomic():
        store.caches.empty(cache)
        dead = store.pages.forget_unused()
    store.pages.unlink(dead)
