"""The page map: shows in which tier each page of an answered request is, and how much attention the answer paid it."""

from dataclasses import dataclass

import numpy as np

from localctx.kv.cache import Cache
from localctx.shape import PAGE

_TIERS = {"device": "d", "host": "h", "disk": "s"}


@dataclass(frozen=True)
class PageMap:
    """Shows where the pages of a prompt and its answer are. ``where`` has one letter for each page: ``d`` (device),
    ``h`` (host) or ``s`` (disk) for the tier, ``p`` if KV heads keep only some of its tokens, ``x`` if the page was
    evicted, ``o`` if it is the open page. The first ``reused`` pages came from the store. ``looks`` lists the share (0
    to 1) of the answer's attention that each page of the prompt got; it is empty if no attention was recorded.
    """

    where: str
    reused: int
    looks: list[float]


def page_map(cache: Cache, restored: int) -> PageMap:
    """Returns the page map of ``cache``, whose first ``restored`` tokens came from the store."""
    where = ["x"] * -(-cache.length // PAGE)
    for evicted in cache.evicted:
        if evicted.kept:
            pages = slice(evicted.start // PAGE, evicted.stop // PAGE)
            where[pages] = "p" * (pages.stop - pages.start)
    for placed in cache.placed_pages:
        number = placed.token // PAGE
        if where[number] != "p":
            where[number] = _TIERS[cache.pool.tier_of(placed.parts.full)]
    if cache.tail:
        where[-1] = "o"
    reused = min(-(-restored // PAGE), len(where))
    return PageMap("".join(where), reused, _shares(cache.attention_mass))


def _shares(mass: np.ndarray | None) -> list[float]:
    if mass is None or not (total := mass.sum()):
        return []
    return [round(float(share), 4) for share in mass / total]
