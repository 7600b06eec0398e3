"""Caller: asks a server one question after another, from one thread, and is patient with it."""

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

PAUSES = (1, 2, 4, 8, 16, 32)  # seconds before trying again
BEAT = 0.2  # seconds between two words on how far an answer is
LONGEST = 64  # characters for each token that was asked for; a longer answer has no end
_THOUGHT = re.compile(r"\A\s*<think>.*?(</think>|\Z)", re.DOTALL)  # what some models say before they answer

T = TypeVar("T")


@dataclass
class ServerAnswer:
    """An answer: its ``text``, whether it is ``whole``, the ``pieces`` it came in, and its tokens (``usage``) as the
    server counts them, if it does.
    """

    text: str = ""
    whole: bool = True
    pieces: int = 0
    usage: Mapping[str, Any] | None = None


class ServerClient:
    """Asks ``server`` through ``wire``, as ``settings`` say: greedily, where they say nothing."""

    def __init__(self, server: RemoteServer, wire: HttpConnection, settings: Settings) -> None:
        self.server, self._wire, self._settings = server, wire, settings

    def find(self, name: str | None) -> Generator[Event, None, None]:
        """Find the model ``name``, or the only one. Raises ModelError, UsageError."""

        def once() -> Generator[Event, None, None]:
            self.server.find(self._wire, name)
            yield from ()

        yield from self._patiently(once)

    def ask(self, content: str, most: int) -> Generator[Event, None, ServerAnswer]:
        """The answer, of at most so many tokens.

        Raises TooLong, DocumentError where another text may be answered, ModelError where none will, Cancelled.
        """
        return (yield from self._patiently(lambda: self._ask(content, most)))

    def _patiently(self, once: Callable[[], Generator[Event, None, T]]) -> Generator[Event, None, T]:
        """What is tried ``once``, and again while the server may recover."""
        for seconds in PAUSES:
            try:
                return (yield from once())
            except RetryLater as e:
                yield Note(f"{e.error.problem}; again in {max(seconds, e.after):g} s")
                self._wire.pause(max(seconds, e.after))
        try:
            return (yield from once())
        except RetryLater as e:
            if e.of_all or not self.server.spoke:
                raise e.error from e
            raise DocumentError(e.error.problem, e.error.remedy) from e  # others are answered there

    def _ask(self, content: str, most: int) -> Generator[Event, None, ServerAnswer]:
        try:
            with self._wire.send("POST", "chat/completions", self._body(content, most)) as reply:
                if reply.status != 200:
                    raise self.server.refusal(self._wire, reply)
                said = (yield from self._streamed(reply, most)) if reply.streams else self._at_once(reply)
        except ConnectionBroken as e:
            self.server.streams = e.unreachable and self.server.streams
            raise self.server.broken(e) from e
        self.server.spoke = True
        said.text = _THOUGHT.sub("", said.text).strip()
        if not said.text and not said.whole:
            why = f"{self.server.model} said nothing in {most:,} tokens"
            raise DocumentError(why, "choose a model that does not think aloud, or let that server switch it off")
        return said

    def _body(self, content: str, most: int) -> dict[str, Any]:
        s, streams = self._settings, self.server.streams
        sampled = {name: value for name, value in (("top_p", s.top_p), ("top_k", s.top_k)) if value not in (0, 1.0)}
        return {
            "model": self.server.model,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": most,
            "temperature": s.temperature,
            "seed": s.seed or 0,
            **sampled,
            **({"stream": True, "stream_options": {"include_usage": True}} if streams else {"stream": False}),
        }

    def _streamed(self, reply: HttpReply, most: int) -> Generator[Event, None, ServerAnswer]:
        said, ended, told = ServerAnswer(), False, 0.0
        for event in self._events(reply):
            ended = self._take(said, event) or ended
            if time.monotonic() - told >= BEAT:
                told = time.monotonic()
                yield Progress("writing", said.pieces, most)
            if len(said.text) > LONGEST * most:
                raise self.server.nonsense()
        if not ended:
            raise ConnectionBroken("in the middle of an answer")
        return said

    def _take(self, said: ServerAnswer, event: dict[str, Any]) -> bool:
        """Add a piece to what was said; whether it is the last."""
        ended = False
        try:
            said.usage = event.get("usage") or said.usage
            for choice in event.get("choices") or ():
                piece, finish = (choice.get("delta") or {}).get("content") or "", choice.get("finish_reason")
                said.text, said.pieces = said.text + piece, said.pieces + bool(piece)
                ended, said.whole = ended or bool(finish), said.whole and finish != "length"
        except (AttributeError, TypeError) as e:
            raise self.server.nonsense() from e
        return ended

    def _events(self, reply: HttpReply) -> Iterator[dict[str, Any]]:
        """What the server tells (server-sent events). Raises Broken where it tells of a mistake."""
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

    def _at_once(self, reply: HttpReply) -> ServerAnswer:
        """An answer in one piece."""
        found = self._object(reply.text())
        try:
            choice = found["choices"][0]
            text, whole = choice["message"]["content"] or "", choice.get("finish_reason") != "length"
        except (KeyError, IndexError, TypeError, AttributeError) as e:
            raise self.server.nonsense() from e
        return ServerAnswer(str(text), whole, 0, found.get("usage"))

    def _object(self, text: str) -> dict[str, Any]:
        try:
            found = json.loads(text)
        except ValueError as e:
            raise self.server.nonsense() from e
        if not isinstance(found, dict):
            raise self.server.nonsense()
        return found
