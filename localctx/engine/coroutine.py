"""Engine coroutines: a coroutine computes an answer, but leaves each forward pass to its caller.

A coroutine is a generator. If it yields a ``ForwardRequest``, it must be sent the logits. If it yields a
``ForwardGroup``, it must be sent a list of logits. Everything else that it yields is an event. The caller decides when
to compute a forward pass, and with which other sequences.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch import Tensor

from localctx.engine.events import Event
from localctx.errors import Cancelled
from localctx.models.base import ForwardRequest, Model

Result = TypeVar("Result")
CancelCheck = Callable[[], bool]


@dataclass(frozen=True)
class ForwardGroup:
    """Forward requests that must be computed in one pass. The caches of ``requests`` are forks of one cache, or they
    belong to several sequences (see ``gather``) with the same RoPE scaling.
    """

    requests: Sequence[ForwardRequest]


AwaitedForward = ForwardRequest | ForwardGroup
ComputeFunction = Callable[[AwaitedForward], Tensor | list[Tensor]]
EngineCoroutine = Generator[Event | AwaitedForward, Any, Result]


def requests_of(forward: AwaitedForward) -> list[ForwardRequest]:
    """Returns the forward requests of ``forward`` as a list: all requests of a ForwardGroup, or a single
    ForwardRequest.
    """
    return list(forward.requests) if isinstance(forward, ForwardGroup) else [forward]


def logits_for(forward: AwaitedForward, logits: list[Tensor]) -> Tensor | list[Tensor]:
    """Returns the value to send to the coroutine that waits for ``forward``. A group gets the whole list of ``logits``;
    a single request gets the only element of the list.
    """
    return logits if isinstance(forward, ForwardGroup) else logits[0]


def never_cancelled() -> bool:
    """Returns False. This function is the cancel check of a coroutine that cannot be cancelled."""
    return False


class CoroutineRunner(Generic[Result]):
    """Runs a coroutine step by step. ``yielded`` is its last event or forward request. Once the coroutine has returned,
    ``ended`` is True and ``result`` is set. Call ``close`` at the end.
    """

    yielded: Event | AwaitedForward
    result: Result

    def __init__(self, coroutine: EngineCoroutine[Result]) -> None:
        self._coroutine, self.ended = coroutine, False

    def resume(self, logits: Tensor | list[Tensor] | None = None) -> None:
        """Start the coroutine, or continue it: after an event, or with the ``logits`` that it waits for."""
        try:
            self.yielded = self._coroutine.send(logits)
        except StopIteration as end:
            self.ended, self.result = True, end.value

    def fail(self, error: Exception) -> None:
        """Raise ``error``, an error of the forward pass that the coroutine waits for, inside the coroutine."""
        try:
            self.yielded = self._coroutine.throw(error)
        except StopIteration as end:
            self.ended, self.result = True, end.value

    def close(self) -> None:
        """Stop the coroutine where it is; its ``finally`` blocks run."""
        self._coroutine.close()


def compute_alone(model: Model, cancelled: CancelCheck = never_cancelled) -> ComputeFunction:
    """Returns a function that computes a forward request, or a group of requests, for one coroutine. Other sequences
    are not in the same pass.
    """
    return lambda forward: logits_for(forward, model.forward_each(requests_of(forward), cancelled))


def drive(coroutine: EngineCoroutine[Result], compute: ComputeFunction) -> Generator[Event, None, Result]:
    """Run a coroutine, and compute each of its forward requests with ``compute``. Yields the events of the coroutine,
    and returns its result.

    An error of ``compute``, such as Cancelled, is raised inside the coroutine.
    """
    with closing(CoroutineRunner(coroutine)) as runner:
        runner.resume()
        while not runner.ended:
            if not isinstance(runner.yielded, AwaitedForward):
                yield runner.yielded
                runner.resume()
                continue
            try:
                logits = compute(runner.yielded)
            except Exception as e:
                runner.fail(e)
            else:
                runner.resume(logits)
        return runner.result


def run_to_end(coroutine: EngineCoroutine[Result], compute: ComputeFunction) -> Result:
    """Run a coroutine to its end, and compute its forward requests with ``compute``. Returns its result; its events are
    dropped.
    """
    return consume(drive(coroutine, compute), lambda event: None)


def consume(events: Generator[Event, None, Result], on_event: Callable[[Event], None]) -> Result:
    """Call ``on_event`` with every event of the generator. Returns the result of the generator."""
    with closing(events):
        while True:
            try:
                on_event(next(events))
            except StopIteration as end:
                return end.value


def flat_map_events(
    coroutine: EngineCoroutine[Result],
    transform: Callable[[Event], Iterable[Event]],
    at_end: Callable[[], Iterable[Event]] = tuple,
) -> EngineCoroutine[Result]:
    """Run ``coroutine``, and replace each of its events by the events that ``transform`` returns for it. After the last
    event, or when the coroutine is cancelled, the events that ``at_end`` returns follow.
    """
    with closing(CoroutineRunner(coroutine)) as runner:
        runner.resume()
        while not runner.ended:
            if not isinstance(runner.yielded, AwaitedForward):
                yield from transform(runner.yielded)
                runner.resume()
                continue
            try:
                logits = yield runner.yielded
            except Exception as e:
                if isinstance(e, Cancelled):
                    yield from at_end()
                runner.fail(e)
            else:
                runner.resume(logits)
        yield from at_end()
        return runner.result


def map_events(
    coroutine: EngineCoroutine[Result], transform: Callable[[Event], Event | None]
) -> EngineCoroutine[Result]:
    """Run ``coroutine``, and replace each of its events by the event that ``transform`` returns. If that is None, the
    event is dropped.
    """
    return flat_map_events(coroutine, lambda event: filter(None, [transform(event)]))
