"""Bench: times steps, collects samples, and measures how noisy the machine is."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from localctx.bench.engines import Engines
from localctx.bench.peer_state import SavedPeerStates
from localctx.bench.time_left import BenchStep, TimeLeft
from localctx.errors import Cancelled

DECODE_TOKENS = 8  # timed per step, after one untimed token that warms up weights and threads
QUESTION_TOKENS = 16  # read after a reopened document, up to the first token of the answer
SPEED = {"decode", "prefill", "memory"}  # measurements that every engine has


@dataclass(frozen=True)
class SampleKey:
    """Names the measurement that a sample belongs to. ``day`` is the date of the earlier run that the sample comes
    from, or empty for this run.
    """

    what: str
    engine: str
    kv: str
    context: int
    day: str = ""


@dataclass
class Samples:
    """All samples so far. ``values[key][name]`` has one number per round."""

    values: dict[SampleKey, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, key: SampleKey, **numbers: float) -> None:
        """Add the numbers of one round."""
        by_name = self.values.setdefault(key, defaultdict(list))
        for name, number in numbers.items():
            by_name[name].append(number)

    def rows(self, what: str) -> list[dict[str, Any]]:
        """Returns a row for each key of the measurement ``what``: the medians of its numbers, and the spread of the
        first number.
        """
        return [_row(key, numbers) for key, numbers in list(self.values.items()) if key.what == what]


def _row(key: SampleKey, numbers: dict[str, list[float]]) -> dict[str, Any]:
    row: dict[str, Any] = {"engine": key.engine, "kv": key.kv, "context": key.context}
    row |= {name: round(statistics.median(values), 3) for name, values in numbers.items()}
    row["spread"] = spread(next(iter(numbers.values())))
    return {**row, "day": key.day} if key.day else row


def spread(values: Sequence[float]) -> float | None:
    """Returns (max - min) / median, or None for a single value."""
    return round((max(values) - min(values)) / statistics.median(values), 4) if len(values) > 1 else None


class NoiseProbe:
    """Times the same matrix product repeatedly, to detect how much other programs disturb the measurement."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._square = clock, torch.ones(384, 384)
        self.seconds = list[float]()
        self._square @ self._square  # the first is always slow

    def __call__(self) -> None:
        """Take one more measurement."""
        start = self._clock()
        for _ in range(4):
            self._square @ self._square
        self.seconds.append(self._clock() - start)

    @property
    def spread(self) -> float | None:
        """The spread of the measurements, or None before there are two."""
        return spread(self.seconds) if self.seconds else None


class Bench:
    """One run of the benchmark: takes the measurements ``what`` of ``engines`` on the text ``tokens``, in ``repeat``
    rounds at each of ``contexts``.

    ``samples`` has the results so far. Calls ``on_progress(text, seconds left)`` before each step. If ``saved`` is
    given, the states of peers are saved there after a long prefill.
    """

    def __init__(
        self,
        engines: Engines,
        tokens: Sequence[int],
        what: Sequence[str],
        contexts: Sequence[int],
        repeat: int,
        on_progress: Callable[[str, float | None], None] = lambda text, left: None,
        clock: Callable[[], float] = time.perf_counter,
        saved: SavedPeerStates | None = None,
    ) -> None:
        self.engines, self.what, self.contexts, self.repeat = engines, what, sorted(contexts), repeat
        self._tokens, self._on_progress, self._clock, self.saved = tokens, on_progress, clock, saved
        self.samples, self.noise, self.time_left = Samples(), NoiseProbe(clock), TimeLeft()

    def text(self, stop: int, start: int = 0) -> list[int]:
        """Returns tokens ``start..stop`` of the text."""
        return list(self._tokens[start:stop])

    def announce(self, text: str) -> None:
        """Report ``text`` as progress, without a time."""
        self._on_progress(text, None)

    def run_step(self, text: str, step: BenchStep, run: Callable[[], object]) -> float:
        """Report ``text`` as progress, then run the step. Returns the seconds that the step took. Raises Cancelled."""
        if self.engines.cancelled():
            raise Cancelled
        self._on_progress(text, self.time_left.seconds)
        start = self._clock()
        run()
        seconds = self._clock() - start
        self.time_left.done(step, seconds)
        return seconds


def extra_tokens(repeat: int) -> int:
    """Returns the number of tokens that the longest measurement reads after its context."""
    return max(QUESTION_TOKENS, 1 + repeat * (DECODE_TOKENS + 1))
