"""Puts a quotation before the answer: the words of the document that support it."""

import time
from collections import deque
from collections.abc import Callable, Iterator

from localctx.engine.coroutine import EngineCoroutine, Result, flat_map_events
from localctx.engine.events import Event, Quoted, Token

MAX_WAIT = 2.0  # seconds to hold back the first tokens, because the answer so far decides the quotation


class _TokenBuffer:
    """Buffers the tokens of an answer until ``quote`` is called, which finds a quotation for the answer so far."""

    def __init__(self, quote: Callable[[], Quoted | None]) -> None:
        self._quote, self._tokens, self._first, self._quoted = quote, deque[Event](), 0.0, False

    def on_event(self, event: Event) -> Iterator[Event]:
        """Pass on other events at once, and release tokens once the first one has waited for MAX_WAIT."""
        if not isinstance(event, Token):
            yield event
            return
        self._first = self._first or time.monotonic()
        self._tokens.append(event)
        if time.monotonic() - self._first >= MAX_WAIT:
            yield from self.flush()

    def flush(self) -> Iterator[Event]:
        """Yield the quotation, the first time, and the buffered tokens."""
        if self._tokens and not self._quoted:
            self._quoted = True
            yield from filter(None, [self._quote()])
        while self._tokens:
            yield self._tokens.popleft()


def quotation_first(answering: EngineCoroutine[Result], quote: Callable[[], Quoted | None]) -> EngineCoroutine[Result]:
    """Run ``answering``, and yield the quotation that ``quote`` returns before the first token of the answer.

    Tokens are held back until ``quote`` is called, once, for the answer so far: when the answer has ended, or MAX_WAIT
    seconds after its first token.
    """
    buffer = _TokenBuffer(quote)
    return flat_map_events(answering, buffer.on_event, buffer.flush)
