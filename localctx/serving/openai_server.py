"""OpenAI-compatible HTTP server: chat completions by the local model, several requests at a time.

Requests need the API key, which pages of other sites cannot send, nor can they read responses. A Host header that does
not name this machine is refused (DNS rebinding).
"""

import json
import secrets
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import aclosing
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from localctx.engine.events import Done, Event, Planned, Progress, Token
from localctx.errors import Cancelled, NoRoom, TooLong, UserError
from localctx.serving.ask_endpoint import AskEndpoint
from localctx.serving.http import LOOPBACK, App, access_key, host_name, listen, serve
from localctx.serving.open_servers import new_key, registered
from localctx.serving.openai_protocol import ApiError, CompletionRequest, CompletionResponse, StopTexts, token_usage
from localctx.serving.worker import EngineWorker, EventStream
from localctx.session import Session
from localctx.settings import Settings

MAX_BODY_BYTES = 64 << 20  # of a request
KEEPALIVE_INTERVAL = 1.0  # seconds between two comments sent to a client that waits for the first token
HEADERS = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}


class ApiKeyCheck:
    """ASGI middleware: requests need the ``key`` and a Host header among ``hosts`` (none: any); /health is open."""

    def __init__(self, app: Any, hosts: tuple[str, ...], key: str) -> None:
        self._app, self._hosts, self._key = app, hosts, key.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request: by the wrapped application, or with an error response."""
        refusal = self._refusal(scope, Headers(scope=scope)) if scope["type"] == "http" else None
        await (_error_response(refusal) if refusal else self._app)(scope, receive, send)

    def _refusal(self, scope: Any, headers: Headers) -> ApiError | None:
        if self._hosts and host_name(headers.get("host", "")) not in self._hosts:
            return ApiError("this server does not have that host name", status=421)
        if scope["path"] == "/health":
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and secrets.compare_digest(given.strip().encode(), self._key):
            return None
        return ApiError("send the key that `localctx serve` printed, as Authorization: Bearer", None, 401, "no_key")


class OpenAIServer:
    """Serves the model of ``settings``, up to ``max_parallel`` requests at a time. ``stopping`` ends those that run."""

    def __init__(self, settings: Settings, max_parallel: int) -> None:
        self._settings, self._worker = settings, EngineWorker(settings, "api", max_parallel)
        self._window: float = 0
        self.stopping = threading.Event()

    def load(self) -> Iterator[Event]:
        """Load the model. Yields progress. Raises ModelError."""

        def job(session: Session) -> Generator[Any, Any, None]:
            self._window = session.workflows.max_prompt_tokens
            yield from ()

        yield from (event for event in self._worker.submit(job) if isinstance(event, Progress))

    def close(self) -> None:
        """Cancel all requests and release the model."""
        self._worker.close()

    def answering(self, app: App, key: str) -> AskEndpoint:
        """Return ``app`` together with the endpoint at which commands with the ``key`` ask."""
        return AskEndpoint(app, self._worker, lambda: self._settings, key, self.stopping)

    def app(self) -> Starlette:
        """Return the ASGI application, without the key check."""
        routes = [
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
            Route("/v1/models", self._models),
            Route("/health", self._health),
        ]
        handlers: dict[Any, Any] = {ApiError: _api_error, 404: _not_found, 405: _not_found, Exception: _internal_error}
        return Starlette(routes=routes, exception_handlers=handlers)

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"}, headers=HEADERS)

    async def _models(self, request: Request) -> Response:
        model = {"id": self._settings.model, "object": "model", "created": 0, "owned_by": "localctx"}
        window = {"max_model_len": int(self._window)} if self._window < float("inf") else {}
        return JSONResponse({"object": "list", "data": [{**model, **window}]}, headers=HEADERS)

    async def _complete(self, request: Request) -> Response:
        try:
            completion = CompletionRequest.parse(await _body(request), self._settings)
        except UserError as e:
            raise ApiError(str(e)) from e
        answer = _StreamedCompletion(completion, self._events(request, self._submit(completion)))
        await answer.wait_for_plan()
        if completion.stream:
            return StreamingResponse(answer.stream(), media_type="text/event-stream", headers=HEADERS)
        return JSONResponse(await answer.collect(), headers=HEADERS)

    def _submit(self, completion: CompletionRequest) -> EventStream:
        return self._worker.submit(lambda session: session.workflows.reply(completion.messages, completion.settings))

    async def _events(self, request: Request, stream: EventStream) -> AsyncGenerator[Any, None]:
        """Yield a job's events until the client disconnects, which cancels the job. Raises ApiError."""
        try:
            async for event in iterate_in_threadpool(iter(stream)):
                if self.stopping.is_set() or await request.is_disconnected():
                    raise ApiError("the server is shutting down", status=503)
                yield event
        except TooLong as e:
            problem = f"the context length is exceeded: {e}"
            raise ApiError(problem, "messages", code="context_length_exceeded") from e
        except (NoRoom, Cancelled) as e:
            raise ApiError(str(e) or "the server is shutting down", status=503) from e
        except UserError as e:
            raise ApiError(str(e), status=500) from e
        finally:
            stream.cancel()


class _StreamedCompletion:
    """Turns the events of one request into its response."""

    def __init__(self, request: CompletionRequest, events: AsyncGenerator[Any, None]) -> None:
        self._request, self._events = request, events
        self._response, self._cut = CompletionResponse(request.settings.model), StopTexts(request.stop)
        self._generated, self._finish = 0, "stop"

    async def wait_for_plan(self) -> None:
        """Wait until the request is planned: errors up to here can still set the HTTP status."""
        async for event in self._events:
            if isinstance(event, Planned):
                self._plan = event
                return

    async def collect(self) -> dict[str, Any]:
        """Wait for the end. Returns the answer as one object."""
        text = "".join([text async for text in self._texts()])
        return self._response.completion(text, self._finish, token_usage(self._plan, self._generated))

    async def stream(self) -> AsyncIterator[str]:
        """Yield the answer as server-sent events."""
        try:
            yield _sse(self._response.chunk({"role": "assistant", "content": ""}))
            async for text in self._texts():
                yield _sse(self._response.chunk({"content": text})) if text else ": reading\n\n"
            yield _sse(self._response.chunk({}, self._finish))
            if self._request.include_usage:
                yield _sse(self._response.usage_chunk(token_usage(self._plan, self._generated)))
            yield "data: [DONE]\n\n"
        except ApiError as e:
            yield _sse(e.body)

    async def _texts(self) -> AsyncIterator[str]:
        """Yield parts of the answer's text; an empty one every KEEPALIVE_INTERVAL before the first token."""
        sent = time.monotonic()
        async with aclosing(self._events) as events:
            async for event in events:
                if isinstance(event, Token):
                    self._generated += 1
                    if text := self._cut(event.text):
                        yield text
                    if self._cut.stopped:
                        return
                elif isinstance(event, Done):
                    self._finish = "length" if event.report.stopped == "length" else "stop"
                elif not self._generated and time.monotonic() - sent >= KEEPALIVE_INTERVAL:
                    sent = time.monotonic()
                    yield ""
        if rest := self._cut.flush():
            yield rest


def run(
    settings: Settings,
    host: str,
    port: int,
    max_parallel: int,
    on_event: Callable[[Event], None],
    on_ready: Callable[[str, str], None],
) -> None:
    """Load the model and serve it until Ctrl-C.

    ``on_event`` gets the progress of loading; ``on_ready`` is called with the base URL and the API key once requests
    are answered. Raises UsageError, ModelError.
    """
    sock = listen(host, port)
    name = f"[{host}]" if ":" in host else host
    key, server = access_key(settings.home, "serve"), OpenAIServer(settings, max_parallel)
    try:
        for event in server.load():
            on_event(event)
        checked = ApiKeyCheck(server.app(), LOOPBACK if name in LOOPBACK else (), key)
        port, own_key = sock.getsockname()[1], new_key()
        app = server.answering(checked, own_key)
        with registered(settings.home, host, port, own_key):
            serve(app, sock, lambda: on_ready(f"http://{name}:{port}/v1", key), server.stopping.set)
    finally:
        server.close()


async def _body(request: Request) -> Any:
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > MAX_BODY_BYTES:
            raise ApiError(f"a request may have at most {MAX_BODY_BYTES:,} bytes", status=413)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as e:
        raise ApiError("the request is not JSON") from e


def _error_response(error: ApiError) -> Response:
    return JSONResponse(error.body, error.status, HEADERS)


async def _api_error(request: Request, error: ApiError) -> Response:
    return _error_response(error)


async def _not_found(request: Request, e: Exception) -> Response:
    return _error_response(ApiError("no such path; there are /v1/chat/completions, /v1/models and /health", status=404))


async def _internal_error(request: Request, e: Exception) -> Response:
    return _error_response(ApiError("internal error in localctx; please report it, with its log", status=500))


def _sse(value: Any) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
