"""EvictionLog: the log of the tokens that a keeper has evicted from a sequence. It has integers only, no tensors."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EvictedRange:
    """The evicted tokens ``start..stop``. Each KV head still keeps the share ``kept`` (0 to 1) of them."""

    start: int
    stop: int
    kept: float = 0.0


class EvictionLog:
    """Records the ranges of tokens that were evicted from a sequence, and whether the sequence is still exact (its
    pages match their names).
    """

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
        """Record the ``evicted`` ranges in text order, and join adjacent ranges. The sequence is no longer exact."""
        self.exact, merged = False, list[EvictedRange]()
        for e in sorted([*self.ranges, *evicted], key=lambda e: e.start):
            if merged and (merged[-1].stop, merged[-1].kept) == (e.start, e.kept):
                e = EvictedRange(merged.pop().start, e.stop, e.kept)
            merged.append(e)
        self.ranges = merged

    def allows_trim(self, length: int) -> bool:
        """Returns True if the sequence can be trimmed to ``length`` tokens: nothing was evicted from there on. (Evicted
        tokens cannot come back.)
        """
        return all(e.stop <= length for e in self.ranges)

    def fork(self) -> "EvictionLog":
        """Returns an independent copy of the log, for a forked sequence."""
        twin = EvictionLog()
        twin.ranges, twin.exact = list(self.ranges), self.exact
        return twin
