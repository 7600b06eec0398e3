"""The work that is still to be done, and how long it takes at the pace so far."""

from collections import Counter, defaultdict
from typing import NamedTuple

LONG = 30.0  # seconds: who reads a text for longer reads it once
_READ_AT_ONCE = 8192  # tokens of history that cost about as much as the weights do
_ROUND_UNITS = 200  # a turn of decoding is like reading so many tokens


class BenchStep(NamedTuple):
    """Some work of ``who``, of about so many ``units``. ``again``: it is done where it is not ``LONG``."""

    who: str
    units: float
    again: bool = False


def reading(who: str, stop: int, start: int = 0, again: bool = False) -> BenchStep:
    """To read from token ``start`` to ``stop``: every token costs its weights, and a look at all before it."""
    return BenchStep(f"{who} reading", stop - start + (stop**2 - start**2) / _READ_AT_ONCE, again)


def decoding(who: str, context: int) -> BenchStep:
    """A turn of decoding."""
    return BenchStep(f"{who} decoding", _ROUND_UNITS * (1 + context / _READ_AT_ONCE))


class TimeLeft:
    """What is to be done yet, and how long those who were at work took for a unit."""

    def __init__(self) -> None:
        self._turns = Counter[BenchStep]()
        self._units, self._seconds = defaultdict[str, float](float), defaultdict[str, float](float)

    def expect(self, turn: BenchStep, times: int = 1) -> None:
        """It is to be done so many ``times`` more."""
        self._turns[turn] += times

    def done(self, turn: BenchStep, seconds: float) -> None:
        """It was done once."""
        self._turns[turn] -= 1
        self._units[turn.who] += turn.units
        self._seconds[turn.who] += seconds

    @property
    def seconds(self) -> float | None:
        """To go, about: each at its own pace, or at that of all where it was not at work yet; None at first."""
        if not any(self._units.values()):
            return None
        return sum(max(0, times) * self._takes(turn) for turn, times in self._turns.items())

    def _takes(self, turn: BenchStep) -> float:
        of = [turn.who] if turn.who in self._units else list(self._units)
        seconds = turn.units * sum(self._seconds[who] for who in of) / sum(self._units[who] for who in of)
        return 0.0 if turn.again and seconds >= LONG else seconds
