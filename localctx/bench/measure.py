"""Measuring: turns taken engine by engine, medians over rounds, how noisy the machine is, how long it still takes."""

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

DECODED = 8  # tokens an engine decodes in its turn, after one that is not timed: its weights and threads are warm then
QUESTION = 16  # tokens after a document that is reopened; the last foretells the first of the answer
SPEED = {"decode", "prefill", "memory"}  # what is measured of every engine


@dataclass(frozen=True)
class Key:
    """What a number is of. ``day``: of which earlier one it is, where it is not of this run."""

    what: str
    engine: str
    kv: str
    context: int
    day: str = ""


@dataclass
class Samples:
    """Everything measured so far. ``values``: of each key, by the name of the number, one a round."""

    values: dict[Key, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, key: Key, **numbers: float) -> None:
        """Note the numbers of one round."""
        of_key = self.values.setdefault(key, defaultdict(list))
        for name, number in numbers.items():
            of_key[name].append(number)

    def rows(self, what: str) -> list[dict[str, Any]]:
        """Medians of every key of ``what``, and the spread of its first number."""
        return [_row(key, numbers) for key, numbers in list(self.values.items()) if key.what == what]


def _row(key: Key, numbers: dict[str, list[float]]) -> dict[str, Any]:
    row: dict[str, Any] = {"engine": key.engine, "kv": key.kv, "context": key.context}
    row |= {name: round(statistics.median(found), 3) for name, found in numbers.items()}
    row["spread"] = spread(next(iter(numbers.values())))
    return {**row, "day": key.day} if key.day else row


def spread(values: Sequence[float]) -> float | None:
    """(max - min) / median, None of a single value."""
    return round((max(values) - min(values)) / statistics.median(values), 4) if len(values) > 1 else None


class Noise:
    """How long the same matrix product takes, again and again: what the machine does beside."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._square = clock, torch.ones(384, 384)
        self.seconds = list[float]()
        self._square @ self._square  # the first is always slow

    def __call__(self) -> None:
        """Measure it once more."""
        start = self._clock()
        for _ in range(4):
            self._square @ self._square
        self.seconds.append(self._clock() - start)

    @property
    def spread(self) -> float | None:
        """As of any other number."""
        return spread(self.seconds) if self.seconds else None


class Bench:
    """One run: ``what`` is measured with ``engines`` on ``tokens``, ``repeat`` rounds at each of ``contexts``.

    What was measured is in ``samples`` at any time. ``hear(text, seconds left)`` is told what is measured now. What
    peers read for long is ``kept``, where that is given.
    """

    def __init__(
        self,
        engines: Engines,
        tokens: Sequence[int],
        what: Sequence[str],
        contexts: Sequence[int],
        repeat: int,
        hear: Callable[[str, float | None], None] = lambda text, left: None,
        clock: Callable[[], float] = time.perf_counter,
        kept: SavedPeerStates | None = None,
    ) -> None:
        self.engines, self.what, self.contexts, self.repeat = engines, what, sorted(contexts), repeat
        self._tokens, self._hear, self._clock, self.kept = tokens, hear, clock, kept
        self.samples, self.noise, self.ahead = Samples(), Noise(clock), TimeLeft()

    def text(self, stop: int, start: int = 0) -> list[int]:
        """The first ``stop`` tokens, or those of them from ``start``."""
        return list(self._tokens[start:stop])

    def turn(self, text: str, turn: BenchStep, work: Callable[[], object]) -> float:
        """Seconds of a turn, of which is told before. Raises Cancelled."""
        if self.engines.stopped():
            raise Cancelled
        self._hear(text, self.ahead.seconds)
        start = self._clock()
        work()
        seconds = self._clock() - start
        self.ahead.done(turn, seconds)
        return seconds


def room(repeat: int) -> int:
    """Tokens that are read after a text, at most."""
    return max(QUESTION, 1 + repeat * (DECODED + 1))
