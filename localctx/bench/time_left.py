"""Estimates the time left of a benchmark from the remaining steps and the speed so far."""

from collections import Counter, defaultdict
from typing import NamedTuple

LONG = 30.0  # seconds; a longer prefill is not repeated
_ATTENTION_TOKENS = 8192  # tokens of context whose attention costs about as much as the weights
_DECODE_UNITS = 200  # a decoding step costs about as much as reading this many tokens


class BenchStep(NamedTuple):
    """A step of the benchmark. Steps with the same ``label`` take time in proportion to their ``units``. A ``repeated``
    step is skipped if it would take LONG seconds or more.
    """

    label: str
    units: float
    repeated: bool = False


def reading(label: str, stop: int, start: int = 0, repeated: bool = False) -> BenchStep:
    """Returns the step of reading the tokens ``start..stop``. The cost of a token is a pass through the weights, and
    attention to all earlier tokens.
    """
    return BenchStep(f"{label} reading", stop - start + (stop**2 - start**2) / _ATTENTION_TOKENS, repeated)


def decoding(label: str, context: int) -> BenchStep:
    """Returns the step in which the benchmark decodes after a context of ``context`` tokens."""
    return BenchStep(f"{label} decoding", _DECODE_UNITS * (1 + context / _ATTENTION_TOKENS))


class TimeLeft:
    """Estimates the time left from the remaining steps, and from the seconds per unit so far of each label."""

    def __init__(self) -> None:
        self._steps = Counter[BenchStep]()
        self._units, self._seconds = defaultdict[str, float](float), defaultdict[str, float](float)

    def add(self, step: BenchStep, times: int = 1) -> None:
        """Add a step that will be done ``times`` times."""
        self._steps[step] += times

    def done(self, step: BenchStep, seconds: float) -> None:
        """Record that a step was done once and took ``seconds``."""
        self._steps[step] -= 1
        self._units[step.label] += step.units
        self._seconds[step.label] += seconds

    @property
    def seconds(self) -> float | None:
        """The estimated seconds left, or None before the first step. A label without finished steps is assumed to be as
        fast as the others.
        """
        if not any(self._units.values()):
            return None
        return sum(max(0, times) * self._estimate(step) for step, times in self._steps.items())

    def _estimate(self, step: BenchStep) -> float:
        labels = [step.label] if step.label in self._units else list(self._units)
        total, units = sum(self._seconds[label] for label in labels), sum(self._units[label] for label in labels)
        seconds = step.units * total / units
        return 0.0 if step.repeated and seconds >= LONG else seconds
