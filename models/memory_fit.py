"""Compares the memory that a model needs with the memory that is free."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from localctx.budget import TierLimits


@dataclass(frozen=True)
class MemoryNeed:
    """The memory that a model needs, in bytes: ``weights`` (including an adapter's), the ``working`` memory of a
    forward pass, and ``kv``, the keys, values and recurrent states of a context.
    """

    weights: float = 0
    working: float = 0
    kv: float = 0

    @property
    def total(self) -> float:
        """The sum of weights, working memory and KV, in bytes."""
        return self.weights + self.working + self.kv

    def __add__(self, other: "MemoryNeed") -> "MemoryNeed":
        return MemoryNeed(self.weights + other.weights, self.working + other.working, self.kv + other.kv)

    def fit(self, free: TierLimits) -> "MemoryFit":
        """Distribute the needed memory over the ``free`` memory of each tier: first the device, then RAM, then disk."""
        by_tier, left = dict[str, float](), self.total
        for tier, limit in vars(free).items():
            by_tier[tier] = left if limit is None else min(left, limit)
            left -= by_tier[tier]
        return MemoryFit(self, by_tier, left)

    def fit_device(self, free: int) -> "MemoryFit":
        """Check whether the needed memory fits on a device alone, which has ``free`` bytes. Returns the result as a
        MemoryFit.
        """
        return self.fit(TierLimits(free, 0, 0))


@dataclass(frozen=True)
class MemoryFit:
    """Says how the memory that a model needs is distributed over tiers: the number of bytes in each tier, and the
    ``shortage``, the number of bytes for which there is no room.
    """

    need: MemoryNeed
    by_tier: dict[str, float]
    shortage: float

    @property
    def fits(self) -> bool:
        """True if there is room for all bytes."""
        return self.shortage <= 0


def largest_context(fit: Callable[[int], MemoryFit], block: int, most: float = inf) -> int:
    """Returns the largest context, in tokens, for which ``fit`` finds room: a multiple of ``block`` tokens below
    ``most``, or 0 if none fits.
    """

    def too_large(blocks: int) -> bool:
        return not fit(blocks * block).fits

    top = 1
    while top * block < most and not too_large(top):
        top *= 2
    return block * max(0, bisect_left(range(top), True, key=too_large) - 1)
