"""Answers as they come: heartbeats while nothing is to be sent, and what ends an answer."""

import asyncio

from localctx.engine.events import Progress, Token
from localctx.serving import answer_stream
from localctx.serving.answer_stream import AnswerPart, AnswerStream, Heartbeat
from localctx.serving.openai_protocol import CompletionRequest
from localctx.serving.worker import Queued
from localctx.settings import Settings

EVENTS = [Queued(2), Progress("reading", 512, 12_000, eta=40.4), Queued(0), Token("Hel", 1), Queued(0), Token("lo!", 2)]


def parts_of(stream: AnswerStream) -> list[AnswerPart | Heartbeat]:
    async def collect() -> list:
        return [part async for part in stream.parts()]

    return asyncio.run(collect())


def stream_of(tmp_path, **more) -> AnswerStream:
    async def events():
        for event in EVENTS:
            yield event

    body = {"messages": [{"role": "user", "content": "Hi."}], **more}
    return AnswerStream(CompletionRequest.parse(body, Settings(tmp_path)), events())


def test_who_waits_is_told_what_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(answer_stream, "HEARTBEAT_INTERVAL", 0)
    told = parts_of(stream_of(tmp_path))
    reading = Heartbeat("reading, 512 of 12000 tokens, 40 s left")
    assert told == [Heartbeat("queued, 2 in line"), reading, reading, AnswerPart(0, "Hel"), AnswerPart(0, "lo!")]
    monkeypatch.setattr(answer_stream, "HEARTBEAT_INTERVAL", 60)
    assert not any(isinstance(part, Heartbeat) for part in parts_of(stream_of(tmp_path)))


def test_a_stop_text_ends_an_answer_and_its_stream(tmp_path):
    stream = stream_of(tmp_path, stop="o!")
    assert "".join(part.text for part in parts_of(stream)) == stream.answers[0].text == "Hell"
    assert (stream.generated, stream.finish(0)) == (2, "stop")
