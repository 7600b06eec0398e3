"""Log of the tokens that a keeper has evicted from a sequence. Integers only."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EvictedRange:
    """The evicted tokens ``start..stop``. ``kept`` is the share of these tokens (0 to 1) that each KV head still
    keeps.
    """

    start: int
    stop: int
    kept: float = 0.0


class EvictionLog:
    """The ranges evicted so far, and whether the sequence's pages still match their names."""

    def __init__(self) -> None:
        self.ranges: list[EvictedRange] = []
        self.exact = True

    @property
    def tokens(self) -> int:
        """The number of tokens that attention no longer sees. If KV heads keep different tokens, this is the average
        over heads.
        """
        return round(sum((e.stop - e.start) * (1 - e.kept) for e in self.ranges))

    def add(self, *evicted: EvictedRange) -> None:
        """Record ``evicted`` in text order and join adjacent ranges. The sequence is no longer exact."""
        self.exact, merged = False, list[EvictedRange]()
        for e in sorted([*self.ranges, *evicted], key=lambda e: e.start):
            if merged and (merged[-1].stop, merged[-1].kept) == (e.start, e.kept):
                e = EvictedRange(merged.pop().start, e.stop, e.kept)
            merged.append(e)
        self.ranges = merged

    def allows_trim(self, length: int) -> bool:
        """Returns True if nothing was evicted at or after token ``length``, because evicted tokens cannot come back."""
        return all(e.stop <= length for e in self.ranges)

    def fork(self) -> "EvictionLog":
        """Returns an independent copy."""
        twin = EvictionLog()
        twin.ranges, twin.exact = list(self.ranges), self.exact
        return twin
