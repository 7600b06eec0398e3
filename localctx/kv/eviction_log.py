"""Which tokens of a sequence a keeper has evicted. Integers only."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EvictedRange:
    """Tokens ``start..stop`` that were evicted: all of them, or all but the part ``kept`` that each KV head keeps."""

    start: int
    stop: int
    kept: float = 0.0


class EvictionLog:
    """The ranges evicted so far, and whether the sequence's pages still are exactly what their names say."""

    def __init__(self) -> None:
        self.ranges: list[EvictedRange] = []
        self.exact = True

    @property
    def tokens(self) -> int:
        """Tokens that attention no longer sees; where KV heads keep different ones, their mean."""
        return round(sum((e.stop - e.start) * (1 - e.kept) for e in self.ranges))

    def add(self, *evicted: EvictedRange) -> None:
        """Record ``evicted`` in the order of the text; adjacent ranges are joined. The sequence is no longer exact."""
        self.exact, merged = False, list[EvictedRange]()
        for e in sorted([*self.ranges, *evicted], key=lambda e: e.start):
            if merged and (merged[-1].stop, merged[-1].kept) == (e.start, e.kept):
                e = EvictedRange(merged.pop().start, e.stop, e.kept)
            merged.append(e)
        self.ranges = merged

    def allows_trim(self, length: int) -> bool:
        """True if nothing was evicted at or after token ``length``: evicted tokens cannot come back."""
        return all(e.stop <= length for e in self.ranges)

    def fork(self) -> "EvictionLog":
        """An independent copy."""
        twin = EvictionLog()
        twin.ranges, twin.exact = list(self.ranges), self.exact
        return twin
