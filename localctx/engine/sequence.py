"""A sequence in the scheduler: one coroutine, and the forward pass it waits for."""

from collections.abc import Callable, Iterator
from typing import Generic

from torch import Tensor

from localctx.engine.coroutine import AwaitedForward, CancelCheck, CoroutineRunner, EngineCoroutine, Result
from localctx.engine.events import Event


class Sequence(Generic[Result]):
    """A coroutine that the scheduler runs until it has ``ended``, with a ``result`` or an ``error``."""

    result: Result

    def __init__(self, coroutine: EngineCoroutine[Result], cancelled: CancelCheck) -> None:
        self.cancelled = cancelled
        self.error: Exception | None = None
        self.last_pass = 0  # number of the last forward pass that included it
        self._runner = CoroutineRunner(coroutine)
        self._advance(self._runner.resume)

    @property
    def ended(self) -> bool:
        """True once the coroutine has returned or raised."""
        return self._runner.ended or self.error is not None

    def events(self) -> Iterator[Event]:
        """Run the coroutine up to its next forward request; yields the events on the way."""
        while not self.ended and not isinstance(self._runner.yielded, AwaitedForward):
            yield self._runner.yielded
            self._advance(self._runner.resume)

    @property
    def forward_request(self) -> AwaitedForward | None:
        """The forward request or group that the coroutine waits for. None while the coroutine has events to yield, and
        after it has ended.
        """
        return None if self.ended or not isinstance(self._runner.yielded, AwaitedForward) else self._runner.yielded

    def resume(self, logits: Tensor | list[Tensor]) -> None:
        """Send ``logits`` to the coroutine, as the result of its forward request: a list for a group, a tensor for a
        single request.
        """
        self._advance(self._runner.resume, logits)

    def fail(self, error: Exception) -> None:
        """Raise ``error``, an error of the forward pass, inside the coroutine, which may recover from it."""
        self._advance(self._runner.fail, error)

    def close(self) -> None:
        """Stop the coroutine where it is; its ``finally`` blocks run."""
        self._runner.close()

    def _advance(self, step: Callable[..., None], *arguments: Tensor | list[Tensor] | Exception) -> None:
        try:
            step(*arguments)
        except Exception as e:
            self.error = e
        if self._runner.ended:
            self.result = self._runner.result
