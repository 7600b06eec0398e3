"""A sequence in the scheduler: one coroutine on its way, and what it asks of the model next."""

from collections.abc import Callable, Iterator
from typing import Generic

from torch import Tensor

from localctx.engine.coroutine import CancelCheck, CoroutineRunner, EngineCoroutine, Result
from localctx.engine.events import Event
from localctx.models.base import ForwardRequest


class Sequence(Generic[Result]):
    """One sequence's place: its steps on their way, until it has ``ended``, with a ``result`` or an ``error``."""

    result: Result

    def __init__(self, steps: EngineCoroutine[Result], cancelled: CancelCheck) -> None:
        self.cancelled = cancelled
        self.error: Exception | None = None
        self.served = 0  # the number of the pass it was last part of
        self._running = CoroutineRunner(steps)
        self._try(self._running.go)

    @property
    def ended(self) -> bool:
        """Whether nothing more comes of it."""
        return self._running.ended or self.error is not None

    def events(self) -> Iterator[Event]:
        """Go on to where the model is needed."""
        while not self.ended and not isinstance(self._running.got, ForwardRequest):
            yield self._running.got
            self._try(self._running.go)

    @property
    def feed(self) -> ForwardRequest | None:
        """What the model is needed for; None while events are to be heard first, and when it has ended."""
        return None if self.ended or not isinstance(self._running.got, ForwardRequest) else self._running.got

    def give(self, logits: Tensor) -> None:
        """What was needed."""
        self._try(lambda: self._running.go(logits))

    def fail(self, e: Exception) -> None:
        """Why it cannot be had; the steps may know a way on."""
        self._try(lambda: self._running.fail(e))

    def close(self) -> None:
        """Nothing more is wanted of it."""
        self._running.close()

    def _try(self, on: Callable[[], None]) -> None:
        try:
            on()
        except Exception as e:
            self.error = e
        if self._running.ended:
            self.result = self._running.result
