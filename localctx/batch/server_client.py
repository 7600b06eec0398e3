"""Requests chat completions from a server, one at a time, with retries. For one thread."""

import json
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from localctx.batch.http_connection import ConnectionBroken, HttpConnection, HttpReply
from localctx.batch.remote_server import RemoteServer, RetryLater
from localctx.engine.events import Event, Note, Progress
from localctx.errors import DocumentError
from localctx.settings import Settings

RETRY_PAUSES = (1, 2, 4, 8, 16, 32)  # seconds before each retry
PROGRESS_INTERVAL = 0.2  # seconds between two Progress events
MAX_CHARS_PER_TOKEN = 64  # per requested token; a longer answer is a server error
_THINKING = re.compile(r"\A\s*<think>.*?(</think>|\Z)", re.DOTALL)  # some models think aloud before they answer

T = TypeVar("T")


@dataclass
class ServerAnswer:
    """An answer of a server. ``complete`` is False if the token limit cut it. ``chunks`` is the number of streamed
    chunks. ``usage`` are the token counts of the server, or None.
    """

    text: str = ""
    complete: bool = True
    chunks: int = 0
    usage: Mapping[str, Any] | None = None


class ServerClient:
    """Sends requests to ``server`` over ``connection``, with the sampling of ``settings`` (default: greedy)."""

    def __init__(self, server: RemoteServer, connection: HttpConnection, settings: Settings) -> None:
        self.server, self._connection, self._settings = server, connection, settings

    def choose_model(self, name: str | None) -> Generator[Event, None, None]:
        """Choose the model ``name``, or the server's only model if ``name`` is None, with retries. Raises ModelError,
        UsageError.
        """

        def choose() -> Generator[Event, None, None]:
            self.server.choose_model(self._connection, name)
            yield from ()

        yield from self._with_retries(choose)

    def ask(self, content: str, max_tokens: int) -> Generator[Event, None, ServerAnswer]:
        """Request an answer, with retries.

        Raises TooLong and DocumentError if the error concerns only this text, ModelError if other texts would fail too,
        and Cancelled.
        """
        return (yield from self._with_retries(lambda: self._request(content, max_tokens)))

    def _with_retries(self, attempt: Callable[[], Generator[Event, None, T]]) -> Generator[Event, None, T]:
        """Run ``attempt``, and run it again after each RetryLater, until RETRY_PAUSES are used up. Returns the result
        of ``attempt``.
        """
        for seconds in RETRY_PAUSES:
            try:
                return (yield from attempt())
            except RetryLater as e:
                yield Note(f"{e.error.problem}; trying again in {max(seconds, e.after):g} s")
                self._connection.pause(max(seconds, e.after))
        try:
            return (yield from attempt())
        except RetryLater as e:
            if e.affects_all or not self.server.answered:
                raise e.error from e
            raise DocumentError(e.error.problem, e.error.remedy) from e  # the server may still answer about other texts

    def _request(self, content: str, max_tokens: int) -> Generator[Event, None, ServerAnswer]:
        try:
            with self._connection.send("POST", "chat/completions", self._body(content, max_tokens)) as reply:
                if reply.status != 200:
                    raise self.server.refusal(self._connection, reply)
                answer = (yield from self._read_stream(reply, max_tokens)) if reply.streams else self._read_whole(reply)
        except ConnectionBroken as e:
            self.server.streams = e.unreachable and self.server.streams
            raise self.server.broken(e) from e
        self.server.answered = True
        answer.text = _THINKING.sub("", answer.text).strip()
        if not answer.text and not answer.complete:
            why = f"{self.server.model} gave no answer within {max_tokens:,} tokens"
            raise DocumentError(why, "choose a model without thinking, or switch thinking off on the server")
        return answer

    def _body(self, content: str, max_tokens: int) -> dict[str, Any]:
        s, streams = self._settings, self.server.streams
        sampled = {name: value for name, value in (("top_p", s.top_p), ("top_k", s.top_k)) if value not in (0, 1.0)}
        return {
            "model": self.server.model,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": max_tokens,
            "temperature": s.temperature,
            "seed": s.seed or 0,
            **sampled,
            **({"stream": True, "stream_options": {"include_usage": True}} if streams else {"stream": False}),
        }

    def _read_stream(self, reply: HttpReply, max_tokens: int) -> Generator[Event, None, ServerAnswer]:
        answer, ended, reported = ServerAnswer(), False, 0.0
        for event in self._events(reply):
            ended = self._append(answer, event) or ended
            if time.monotonic() - reported >= PROGRESS_INTERVAL:
                reported = time.monotonic()
                yield Progress("writing", answer.chunks, max_tokens)
            if len(answer.text) > MAX_CHARS_PER_TOKEN * max_tokens:
                raise self.server.bad_response()
        if not ended:
            raise ConnectionBroken("in the middle of an answer")
        return answer

    def _append(self, answer: ServerAnswer, event: dict[str, Any]) -> bool:
        """Append a streamed chunk to the answer. Returns True for the last chunk."""
        ended = False
        try:
            answer.usage = event.get("usage") or answer.usage
            for choice in event.get("choices") or ():
                text, finish = (choice.get("delta") or {}).get("content") or "", choice.get("finish_reason")
                answer.text, answer.chunks = answer.text + text, answer.chunks + bool(text)
                ended, answer.complete = ended or bool(finish), answer.complete and finish != "length"
        except (AttributeError, TypeError) as e:
            raise self.server.bad_response() from e
        return ended

    def _events(self, reply: HttpReply) -> Iterator[dict[str, Any]]:
        """Yield the server-sent events of a reply. Raises ConnectionBroken for an error event."""
        for line in reply.lines():
            name, _, value = line.partition(":")
            if name != "data":
                continue
            if value.strip() == "[DONE]":
                return
            event = self._object(value)
            if event.get("error"):
                raise ConnectionBroken(json.dumps(event))
            yield event

    def _read_whole(self, reply: HttpReply) -> ServerAnswer:
        """Return an answer that is not streamed."""
        body = self._object(reply.text())
        try:
            choice = body["choices"][0]
            text, complete = choice["message"]["content"] or "", choice.get("finish_reason") != "length"
        except (KeyError, IndexError, TypeError, AttributeError) as e:
            raise self.server.bad_response() from e
        return ServerAnswer(str(text), complete, 0, body.get("usage"))

    def _object(self, text: str) -> dict[str, Any]:
        try:
            value = json.loads(text)
        except ValueError as e:
            raise self.server.bad_response() from e
        if not isinstance(value, dict):
            raise self.server.bad_response()
        return value
