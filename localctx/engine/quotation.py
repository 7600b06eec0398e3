"""The quotation first: an answer is shown after the words of the document that support it."""

import time
from collections import deque
from collections.abc import Callable, Iterator

from localctx.engine.coroutine import EngineCoroutine, Result, flat_map_events
from localctx.engine.events import Event, Quoted, Token

PATIENCE = 2.0  # seconds that the first tokens of an answer wait for the rest, which says what to quote


class _HeldTokens:
    """The tokens of an answer until its quotation is known, which ``quote`` gives by what was answered so far."""

    def __init__(self, quote: Callable[[], Quoted | None]) -> None:
        self._quote, self._tokens, self._first, self._quoted = quote, deque[Event](), 0.0, False

    def hear(self, event: Event) -> Iterator[Event]:
        """Whatever is no token, at once; tokens when they have waited long enough."""
        if not isinstance(event, Token):
            yield event
            return
        self._first = self._first or time.monotonic()
        self._tokens.append(event)
        if time.monotonic() - self._first >= PATIENCE:
            yield from self.release()

    def release(self) -> Iterator[Event]:
        """The quotation, once, and the tokens held."""
        if self._tokens and not self._quoted:
            self._quoted = True
            yield from filter(None, [self._quote()])
        while self._tokens:
            yield self._tokens.popleft()


def quotation_first(steps: EngineCoroutine[Result], quote: Callable[[], Quoted | None]) -> EngineCoroutine[Result]:
    """The ``steps`` of answering, with what ``quote`` gives before the first token: as soon as the answer has ended, or
    PATIENCE after its first token, by what there is of it then.
    """
    held = _HeldTokens(quote)
    return flat_map_events(steps, held.hear, held.release)
