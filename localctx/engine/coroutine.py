"""Steps: the engine's work is written as generators that yield a Feed where they need the model, and get its logits.

Who runs them decides when that is computed, and together with what. Everything else they yield is told.
"""

from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from typing import Any, Generic, TypeVar

from torch import Tensor

from localctx.engine.events import Event
from localctx.errors import Cancelled
from localctx.models.base import ForwardRequest, Model

Result = TypeVar("Result")
CancelCheck = Callable[[], bool]
Compute = Callable[[ForwardRequest], Tensor]
EngineCoroutine = Generator[Event | ForwardRequest, Any, Result]


def never_cancelled() -> bool:
    """What is asked where nobody can cancel."""
    return False


class CoroutineRunner(Generic[Result]):
    """Steps on their way: what they yielded last, ``got``, until they ``ended`` with a ``result``. Close it."""

    got: Event | ForwardRequest
    result: Result

    def __init__(self, steps: EngineCoroutine[Result]) -> None:
        self._steps, self.ended = steps, False

    def go(self, logits: Tensor | None = None) -> None:
        """Begin, or on from an event, or with the ``logits`` that a Feed wanted."""
        self._on(lambda: self._steps.send(logits))

    def fail(self, e: Exception) -> None:
        """On from a Feed that could not be computed."""
        self._on(lambda: self._steps.throw(e))

    def close(self) -> None:
        """Let the steps clean up; nothing more is wanted of them."""
        self._steps.close()

    def _on(self, step: Callable[[], Event | ForwardRequest]) -> None:
        try:
            self.got = step()
        except StopIteration as end:
            self.ended, self.result = True, end.value


def compute_alone(model: Model, cancelled: CancelCheck = never_cancelled) -> Compute:
    """Each Feed computed by itself, when it is asked for."""
    return lambda feed: model.forward_each([feed], cancelled)[0]


def drive(steps: EngineCoroutine[Result], compute: Compute) -> Generator[Event, None, Result]:
    """Run ``steps``: their events, and what they return.

    What ``compute`` raises, Cancelled too, is raised where they asked it.
    """
    with closing(CoroutineRunner(steps)) as running:
        running.go()
        while not running.ended:
            if not isinstance(running.got, ForwardRequest):
                yield running.got
                running.go()
                continue
            try:
                logits = compute(running.got)
            except Exception as e:
                running.fail(e)
            else:
                running.go(logits)
        return running.result


def run_to_end(steps: EngineCoroutine[Result], compute: Compute) -> Result:
    """Run ``steps`` to their end; what they return. Nobody hears their events."""
    return consume(drive(steps, compute), lambda event: None)


def consume(events: Generator[Event, None, Result], hear: Callable[[Event], None]) -> Result:
    """``hear`` events to the end; what they were leading to."""
    with closing(events):
        while True:
            try:
                hear(next(events))
            except StopIteration as end:
                return end.value


def flat_map_events(
    steps: EngineCoroutine[Result],
    each: Callable[[Event], Iterable[Event]],
    rest: Callable[[], Iterable[Event]] = tuple,
) -> EngineCoroutine[Result]:
    """The same steps, with what ``each`` makes of an event in its place, and ``rest`` after the last, or when they are
    cancelled.
    """
    with closing(CoroutineRunner(steps)) as running:
        running.go()
        while not running.ended:
            if not isinstance(running.got, ForwardRequest):
                yield from each(running.got)
                running.go()
                continue
            try:
                logits = yield running.got
            except Exception as e:
                if isinstance(e, Cancelled):
                    yield from rest()
                running.fail(e)
            else:
                running.go(logits)
        yield from rest()
        return running.result


def map_events(steps: EngineCoroutine[Result], alter: Callable[[Event], Event | None]) -> EngineCoroutine[Result]:
    """The same steps, each event as ``alter`` makes it; None leaves it out."""
    return flat_map_events(steps, lambda event: filter(None, [alter(event)]))
