"""The page map: where each page of an answered conversation was, and how hard the answer looked at it."""

from typing import Any

import numpy as np

from localctx.kv.cache import Cache
from localctx.shape import PAGE

_TIERS = {"device": "d", "host": "h", "disk": "s"}


def page_map(cache: Cache, restored: int) -> dict[str, Any]:
    """``where`` every page of the text is, a letter of WHERE each; the first ``reused`` of them were kept from before.

    ``looks`` are the shares of the answer's looks that the pages read before it got, in order; none where nothing was
    watched. ``restored``: tokens that were kept.
    """
    where = ["x"] * -(-cache.length // PAGE)
    for gone in cache.evicted:
        if gone.kept:
            where[gone.start // PAGE : gone.stop // PAGE] = "p" * ((gone.stop - gone.start) // PAGE)
    for place in cache.placed_pages:
        number = place.token // PAGE
        if where[number] != "p":
            where[number] = _TIERS[cache.pool.tier_of(place.page)]
    if cache.tail:
        where[-1] = "o"
    return {
        "where": "".join(where),
        "reused": min(-(-restored // PAGE), len(where)),
        "looks": _shares(cache.attention_mass),
    }


def _shares(looks: np.ndarray | None) -> list[float]:
    if looks is None or not (total := looks.sum()):
        return []
    return [round(float(share), 4) for share in looks / total]
