"""Answers POST /v1/chat/completions, /v1/completions and /v1/responses, streamed or as one object."""

import json
import re
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from localctx.errors import (
    Cancelled,
    DocumentError,
    ModelError,
    NothingFound,
    OutOfKVMemory,
    TooLong,
    UsageError,
    UserError,
)
from localctx.serving.answer_stream import AnswerStream, Heartbeat
from localctx.serving.api_error import ApiError
from localctx.serving.api_metrics import ApiMetrics
from localctx.serving.openai_protocol import CompletionRequest, CompletionResponse, token_usage, tool_call
from localctx.serving.request_body import HEADERS, json_body
from localctx.serving.responses_protocol import ResponseObject, parse_response_request
from localctx.serving.text_protocol import TextResponse, parse_text_request
from localctx.serving.worker import EngineWorker, EventStream
from localctx.settings import Settings

_COMMAND = re.compile(r"(?<!\w)--[a-z]|\blocalctx [a-z]|LOCALCTX_")
SHUTTING_DOWN = "the server is shutting down"
Parse = Callable[[Any, Settings], CompletionRequest]
Writer = Callable[[AnswerStream], AsyncIterator[str]]


class AnswerEndpoints:
    """Answers requests with jobs that ``worker`` runs under ``settings``.

    ``stopping`` is an event; setting it ends running jobs. ``metrics`` counts tokens.
    """

    def __init__(
        self, worker: EngineWorker, settings: Settings, stopping: threading.Event, metrics: ApiMetrics
    ) -> None:
        self._worker, self._settings, self._stopping, self._metrics = worker, settings, stopping, metrics

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions: answer a conversation."""
        return await self._answer(request, CompletionRequest.parse, _chat_object, _chat_events)

    async def complete(self, request: Request) -> Response:
        """POST /v1/completions: continue a raw text."""
        return await self._answer(request, parse_text_request, _text_object, _text_events)

    async def respond(self, request: Request) -> Response:
        """POST /v1/responses: answer a conversation, without stored state."""
        return await self._answer(request, parse_response_request, _response_object, _response_events)

    async def _answer(
        self, request: Request, parse: Parse, build: Callable[[AnswerStream], dict[str, Any]], write: Writer
    ) -> Response:
        completion = await run_in_threadpool(parse, await json_body(request), self._settings)
        stream = AnswerStream(completion, self.events(request, self._submit(completion)))
        await stream.wait_for_plan()
        if completion.stream:
            body = self._counted(stream, write(stream))
            return StreamingResponse(body, media_type="text/event-stream", headers=HEADERS)
        try:
            await stream.collect()
        finally:
            self._metrics.answered(stream.plan, stream.generated)
        return JSONResponse(build(stream), headers=HEADERS)

    def _submit(self, completion: CompletionRequest) -> EventStream:
        return self._worker.submit(lambda session: session.workflows.reply(completion.asked))

    async def _counted(self, stream: AnswerStream, lines: AsyncIterator[str]) -> AsyncIterator[str]:
        """Yields ``lines``, then counts the tokens of the answers. An ApiError that ends the stream is sent as an
        event.
        """
        try:
            async for line in lines:
                yield line
        except ApiError as e:
            yield sse(e.body)
        finally:
            self._metrics.answered(stream.plan, stream.generated)

    async def events(self, request: Request, stream: EventStream) -> AsyncGenerator[Any, None]:
        """Yields the events of a job from its ``stream``.

        If the client of ``request`` disconnects, the job is cancelled. Raises ApiError.
        """
        try:
            async for event in iterate_in_threadpool(iter(stream)):
                if self._stopping.is_set() or await request.is_disconnected():
                    raise ApiError(SHUTTING_DOWN, status=503)
                yield event
        except (UserError, Cancelled) as e:
            raise api_error_of(e) from e
        finally:
            stream.cancel()


def api_error_of(error: UserError | Cancelled) -> ApiError:
    """Returns the API error for a job that ended with ``error``."""
    told = _without_commands(error) if isinstance(error, UserError) else SHUTTING_DOWN
    if isinstance(error, TooLong):
        return ApiError(f"the context length is exceeded: {told}", "messages", code="context_length_exceeded")
    if isinstance(error, OutOfKVMemory | Cancelled):
        return ApiError(told, status=503)
    if isinstance(error, DocumentError | NothingFound):
        return ApiError(told, status=404, code="not_found")
    refused = isinstance(error, UsageError | ModelError)  # for example, a chat template refuses messages
    return ApiError(told, status=400 if refused else 500)


def _without_commands(error: UserError) -> str:
    """Returns the text of an error. A remedy that names commands or flags is left out, because a client of the API
    cannot use them.
    """
    return error.problem if _COMMAND.search(error.remedy) else str(error)


def sse(value: Any, kind: str = "") -> str:
    """Returns a server-sent event with ``value`` as JSON. ``kind`` is its event type, if it has one."""
    return (f"event: {kind}\n" if kind else "") + f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


def _heartbeat(beat: Heartbeat) -> str:
    """Returns a heartbeat as a comment in the stream, which clients skip."""
    return f": {beat.doing}\n\n"


def _chat_object(stream: AnswerStream) -> dict[str, Any]:
    response, wanted = _response_of(stream), stream.request.asked.controls.top is not None
    choices = [
        response.choice(i, a.text, stream.finish(i), a.likely if wanted else None, a.calls, _annotations(stream))
        for i, a in enumerate(stream.answers)
    ]
    return response.completion(choices, _usage(stream))


async def _chat_events(stream: AnswerStream) -> AsyncIterator[str]:
    response, request, calls = _response_of(stream), stream.request, [0] * len(stream.answers)
    for i in range(len(stream.answers)):
        yield sse(response.chunk({"role": "assistant", "content": ""}, index=i))
    async for part in stream.parts():
        if isinstance(part, Heartbeat):
            yield _heartbeat(part)
            continue
        likely = [part.likely] if part.likely else None
        yield sse(response.chunk({"content": part.text}, index=part.index, likely=likely))
    for i, answer in enumerate(stream.answers):
        delta: dict[str, Any] = {}
        if answer.calls:
            delta["tool_calls"] = [{"index": n, **tool_call(call)} for n, call in enumerate(answer.calls, calls[i])]
        if cited := _annotations(stream):
            delta["annotations"] = cited
        if delta:
            yield sse(response.chunk(delta, index=i))
        yield sse(response.chunk({}, stream.finish(i), index=i))
    if request.include_usage:
        yield sse(response.usage_chunk(_usage(stream)))
    yield "data: [DONE]\n\n"


def _text_object(stream: AnswerStream) -> dict[str, Any]:
    return TextResponse.of(stream).completion(stream, _usage(stream))


async def _text_events(stream: AnswerStream) -> AsyncIterator[str]:
    response, request = TextResponse.of(stream), stream.request
    if request.echo:
        for i in range(len(stream.answers)):
            yield sse(response.chunk(i, request.echo))
    async for part in stream.parts():
        if isinstance(part, Heartbeat):
            yield _heartbeat(part)
        else:
            yield sse(response.chunk(part.index, part.text, likely=part.likely, offset=part.offset))
    for i in range(len(stream.answers)):
        yield sse(response.chunk(i, "", stream.finish(i)))
    if request.include_usage:
        yield sse(response.usage_chunk(_usage(stream)))
    yield "data: [DONE]\n\n"


def _response_object(stream: AnswerStream) -> dict[str, Any]:
    stream.cited = _annotations(stream, flat=True)
    return ResponseObject(stream).whole("completed")


async def _response_events(stream: AnswerStream) -> AsyncIterator[str]:
    response = ResponseObject(stream)
    for event in response.begin():
        yield sse(event, event["type"])
    async for part in stream.parts():
        if isinstance(part, Heartbeat):
            yield _heartbeat(part)
        elif part.text:
            event = response.delta(part.text)
            yield sse(event, event["type"])
    stream.cited = _annotations(stream, flat=True)
    for event in response.end():
        yield sse(event, event["type"])


def _response_of(stream: AnswerStream) -> CompletionResponse:
    return CompletionResponse(stream.request.asked.settings.model)


def _usage(stream: AnswerStream) -> dict[str, Any]:
    assert stream.plan, "an answer that ended was planned"
    return token_usage(stream.plan, stream.generated)


def _annotations(stream: AnswerStream, flat: bool = False) -> list[dict[str, Any]]:
    """Returns the citations as annotations of a chat message or, if ``flat``, of a response's text."""
    found = []
    for i, one in enumerate(stream.cited):
        keys = ("quote", "page", "heading", "start", "end")
        cited = {"file_id": one["document"], "filename": one["name"], "index": i, **{k: one.get(k) for k in keys}}
        found.append({"type": "file_citation", **cited} if flat else {"type": "file_citation", "file_citation": cited})
    return found
