"""Streams the answers of one request: parts of text, tool calls, and heartbeats until the first token."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from localctx.engine.events import Done, Planned, Progress, Token
from localctx.engine.request_report import AnswerReport
from localctx.models.tokenizer.tool_calls import ToolCall, ToolCallReader
from localctx.serving.openai_protocol import CompletionRequest, logprob
from localctx.serving.worker import Queued

HEARTBEAT_INTERVAL = 1.0  # seconds between comments sent to a client that waits for the first token
PATIENCE = 15.0  # seconds until a streamed response begins although the request still waits in the queue


class StopTexts:
    """Cuts streamed text at the first stop text. The end of the text is held back while it may be the beginning of a
    stop text.

    ``stopped`` becomes True when a stop text has appeared.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops, self._buffer = stops, ""
        self.stopped = False

    def __call__(self, text: str) -> str:
        """Append ``text``. Returns the text that can be sent now, because no stop text can begin in it."""
        if self.stopped:
            return ""
        pending = self._buffer + text
        if starts := [at for stop in self._stops if (at := pending.find(stop)) >= 0]:
            self.stopped, self._buffer = True, ""
            return pending[: min(starts)]
        back = max((n for stop in self._stops for n in range(1, len(stop)) if pending.endswith(stop[:n])), default=0)
        self._buffer = pending[len(pending) - back :]
        return pending[: len(pending) - back]

    def flush(self) -> str:
        """Returns the text that is still held back, at the end of the stream."""
        pending, self._buffer = self._buffer, ""
        return pending


@dataclass(frozen=True)
class AnswerPart:
    """A part of answer number ``index``: its ``text``.

    If logprobs were requested, ``likely`` has the likeliest tokens of the step that generated the text. They begin at
    character ``offset`` of the answer.
    """

    index: int
    text: str
    likely: dict[str, Any] | None = None
    offset: int = 0


@dataclass(frozen=True)
class Heartbeat:
    """A sign of life, sent while there is no text to send. ``doing`` says what the server is doing."""

    doing: str


@dataclass
class AnswerState:
    """One answer so far: its ``text`` without tool calls, and its number of ``tokens``. ``likely`` has the likeliest
    tokens of each step, if logprobs were requested.

    ``offset`` is the number of characters of the tokens in ``likely``. ``cut`` ends the text at a stop text, and
    ``reader`` takes tool calls out of it (None: there are no tools).
    """

    cut: StopTexts
    reader: ToolCallReader | None
    text: str = ""
    tokens: int = 0
    likely: list[dict[str, Any]] = field(default_factory=list)
    offset: int = 0

    @property
    def calls(self) -> Sequence[ToolCall]:
        """The tool calls so far."""
        return self.reader.calls if self.reader else ()

    def add(self, text: str, last: bool = False) -> str:
        """Append generated text. Returns the text that can be sent. ``last`` is True at the end of the stream."""
        text = self.cut(text) + (self.cut.flush() if last or self.cut.stopped else "")
        if self.reader:
            text = self.reader(text) + (self.reader.flush() if last else "")
        self.text += text
        return text


class AnswerStream:
    """The answers to ``request`` as a stream, made from the ``events`` of its job.

    ``plan`` is None until the request is planned. ``cited`` are the citations of an answer from documents.
    """

    def __init__(self, request: CompletionRequest, events: AsyncGenerator[Any, None]) -> None:
        self.request, self._events = request, events
        self.plan: Planned | None = None
        self.cited: list[dict[str, Any]] = []
        reads = bool(request.asked.tools)
        self.answers = [
            AnswerState(StopTexts(request.stop), ToolCallReader(request.forced) if reads else None)
            for _ in range(request.asked.settings.n)
        ]
        self._stopped = ""

    @property
    def generated(self) -> int:
        """The number of tokens generated so far."""
        return sum(answer.tokens for answer in self.answers)

    async def wait_for_plan(self) -> None:
        """Wait until the request is planned. An error before that can still set the HTTP status of the response.

        A streamed response waits at most PATIENCE seconds.
        """
        begun = time.monotonic()
        async for event in self._events:
            if isinstance(event, Planned):
                self.plan = event
                return
            if self.request.stream and time.monotonic() - begun > PATIENCE:
                return

    async def parts(self) -> AsyncIterator[AnswerPart | Heartbeat]:
        """Yields the answers part by part. Before the first token, yields a heartbeat every HEARTBEAT_INTERVAL."""
        sent, doing = time.monotonic(), "waiting"
        async with aclosing(self._events) as events:
            async for event in events:
                doing = _doing(event) or doing
                if isinstance(event, Token):
                    if part := self._part(event):
                        yield part
                    if all(answer.cut.stopped for answer in self.answers):
                        break
                elif not self.generated and time.monotonic() - sent >= HEARTBEAT_INTERVAL:
                    sent = time.monotonic()
                    yield Heartbeat(doing)
                self._note(event)
        for i, answer in enumerate(self.answers):
            if rest := answer.add("", last=True):
                yield AnswerPart(i, rest)

    async def collect(self) -> None:
        """Wait for the end of all answers."""
        async for _ in self.parts():
            pass

    def finish(self, index: int) -> str:
        """Returns why answer number ``index`` ended: ``stop``, ``length`` or ``tool_calls``."""
        answer = self.answers[index]
        if answer.calls:
            return "tool_calls"
        limit = self.plan.answer_tokens if self.plan else 0
        full = answer.tokens >= limit if self._stopped == "length" else False
        return "length" if full and not answer.cut.stopped else "stop"

    def _part(self, token: Token) -> AnswerPart | None:
        answer = self.answers[token.answer]
        if answer.cut.stopped:
            return None
        answer.tokens += 1
        likely, offset = logprob(token) if token.logprobs else None, answer.offset
        if likely:
            answer.likely.append(likely)
            answer.offset += len(likely["token"])
        text = answer.add(token.text)
        return AnswerPart(token.answer, text, likely, offset) if text or likely else None

    def _note(self, event: Any) -> None:
        if isinstance(event, Planned):
            self.plan = self.plan or event
        elif isinstance(event, Done) and isinstance(event.report, AnswerReport):
            self._stopped, self.cited = event.report.stopped, event.report.citations


def _doing(event: Any) -> str:
    """Returns a line of ASCII that says what the server is doing according to ``event``, or "" if the event does not
    tell.
    """
    if isinstance(event, Queued) and event.position:
        return f"queued, {event.position} in line"
    if isinstance(event, Progress) and event.phase == "reading":
        left = f", {event.eta:.0f} s left" if event.eta else ""
        return f"reading, {event.done} of {event.total} tokens{left}"
    return ""
