"""Measuring: turns taken engine by engine, medians over rounds, how noisy the machine is, how long it still takes."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from localctx.bench.engines import Engines
from localctx.errors import Cancelled

DECODED = 8  # tokens an engine decodes in its turn, after one that is not timed: its weights and threads are warm then
QUESTION = 16  # tokens after a document that is reopened; the last foretells the first of the answer
SPEED = {"decode", "prefill", "memory"}  # what is measured of every engine
_READ_AT_ONCE = 8192  # tokens of history that cost about as much as the weights do
ROUND_UNITS = 200  # a turn of decoding is like reading so many tokens


@dataclass(frozen=True)
class Key:
    """What a number is of."""

    what: str
    engine: str
    kv: str
    context: int


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
    return {**row, "spread": spread(next(iter(numbers.values())))}


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

    What was measured is in ``samples`` at any time. ``hear(text, seconds left)`` is told what is measured now.
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
    ) -> None:
        self.engines, self.what, self.contexts = engines, what, contexts
        self._tokens, self.repeat, self._hear, self._clock = tokens, repeat, hear, clock
        self.samples, self.noise = Samples(), Noise(clock)
        self._done, self._started = 0.0, 0.0

    def text(self, context: int) -> list[int]:
        """The first ``context`` tokens."""
        return list(self._tokens[:context])

    def following(self, context: int) -> Iterator[list[int]]:
        """The tokens after them, for one turn after another."""
        at = context
        while True:
            yield list(self._tokens[at : at + DECODED + 1])
            at += DECODED + 1

    def turn(self, text: str, units: float, work: Callable[[], object]) -> float:
        """Seconds of a turn, of which is told before. Raises Cancelled."""
        if self.engines.stopped():
            raise Cancelled
        self._hear(text, self._left)
        start = self._clock()
        self._started = self._started or start
        work()
        self._done += units
        return self._clock() - start

    @property
    def _left(self) -> float | None:
        """Seconds to go at the pace so far; None at first."""
        if not self._done:
            return None
        return max(0.0, self._units - self._done) * (self._clock() - self._started) / self._done

    @cached_property
    def _units(self) -> float:
        """Work there is, about."""
        n = len(self.engines.chosen) * 2
        reads = n * (self.repeat if "prefill" in self.what else 1) if SPEED & {*self.what} else 0
        reads += 2 * ("reopen" in self.what) + 2 * ("spill" in self.what)
        turns = self.repeat * (n * ("decode" in self.what) + 4 * ("spill" in self.what))
        return sum(reads * read_units(context) + turns * ROUND_UNITS for context in self.contexts)


def room(repeat: int) -> int:
    """Tokens that are read after a text, at most."""
    return max(QUESTION, 1 + repeat * (DECODED + 1))


def read_units(context: int) -> float:
    """What reading takes: every token its weights, and a look at all before it."""
    return context * (1 + context / _READ_AT_ONCE)
