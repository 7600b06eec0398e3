"""Server: OpenAI's chat completions over HTTP, by the model of this machine. Questions are answered together.

Who asks has the key. Pages of other sites can neither send it nor read what is answered; a name that is not this
machine's is refused (DNS rebinding).
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
from localctx.serving.http import LOOPBACK, key_of, listen, name_of, serve
from localctx.serving.openai_protocol import ApiError, CompletionRequest, CompletionResponse, StopTexts, usage
from localctx.serving.worker import EngineWorker, EventStream
from localctx.session import Session
from localctx.settings import Settings

MOST_BYTES = 64 << 20  # of a request
BEAT = 1.0  # seconds between two words to who waits for the first token
HEADERS = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}


class ApiKeyCheck:
    """Lets through who names one of the ``hosts`` (none: any) and has the ``key``; everybody may ask for the health."""

    def __init__(self, app: Any, hosts: tuple[str, ...], key: str) -> None:
        self._app, self._hosts, self._key = app, hosts, key.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """An ASGI application around another."""
        refusal = self._refusal(scope, Headers(scope=scope)) if scope["type"] == "http" else None
        await (_told(refusal) if refusal else self._app)(scope, receive, send)

    def _refusal(self, scope: Any, headers: Headers) -> ApiError | None:
        if self._hosts and name_of(headers.get("host", "")) not in self._hosts:
            return ApiError("this server is not at that name", status=421)
        if scope["path"] == "/health":
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and secrets.compare_digest(given.strip().encode(), self._key):
            return None
        return ApiError("send the key that `localctx serve` printed, as Authorization: Bearer", None, 401, "no_key")


class OpenAIServer:
    """The model that ``settings`` name, at a desk that serves so many requests ``together``."""

    def __init__(self, settings: Settings, together: int) -> None:
        self._settings, self._desk = settings, EngineWorker(settings, "api", together)
        self._window: float = 0
        self.leaving = threading.Event()

    def load(self) -> Iterator[Event]:
        """Load the model. Raises ModelError."""

        def job(session: Session) -> Generator[Any, Any, None]:
            self._window = session.workflows.max_prompt_tokens
            yield from ()

        yield from (event for event in self._desk.take_turn(job) if isinstance(event, Progress))

    def close(self) -> None:
        """Stop what runs."""
        self._desk.close()

    def app(self) -> Starlette:
        """What answers."""
        routes = [
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
            Route("/v1/models", self._models),
            Route("/health", self._health),
        ]
        handlers: dict[Any, Any] = {ApiError: _refuse, 404: _nothing, 405: _nothing, Exception: _fault}
        return Starlette(routes=routes, exception_handlers=handlers)

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"}, headers=HEADERS)

    async def _models(self, request: Request) -> Response:
        model = {"id": self._settings.model, "object": "model", "created": 0, "owned_by": "localctx"}
        window = {"max_model_len": int(self._window)} if self._window < float("inf") else {}
        return JSONResponse({"object": "list", "data": [{**model, **window}]}, headers=HEADERS)

    async def _complete(self, request: Request) -> Response:
        try:
            wanted = CompletionRequest.parse(await _body(request), self._settings)
        except UserError as e:
            raise ApiError(str(e)) from e
        answer = _Answer(wanted, self._heard(request, self._turn(wanted)))
        await answer.begin()
        if wanted.streams:
            return StreamingResponse(answer.stream(), media_type="text/event-stream", headers=HEADERS)
        return JSONResponse(await answer.whole(), headers=HEADERS)

    def _turn(self, wanted: CompletionRequest) -> EventStream:
        return self._desk.take_turn(lambda session: session.workflows.reply(wanted.messages, wanted.settings))

    async def _heard(self, request: Request, turn: EventStream) -> AsyncGenerator[Any, None]:
        """The events of a turn, as long as who asked is there. Raises Refused."""
        try:
            async for event in iterate_in_threadpool(iter(turn)):
                if self.leaving.is_set() or await request.is_disconnected():
                    raise ApiError("this server stops", status=503)
                yield event
        except TooLong as e:
            said = f"the context length is exceeded: {e}"
            raise ApiError(said, "messages", code="context_length_exceeded") from e
        except (NoRoom, Cancelled) as e:
            raise ApiError(str(e) or "this server stops", status=503) from e
        except UserError as e:
            raise ApiError(str(e), status=500) from e
        finally:
            turn.cancel()


class _Answer:
    """An answer on its way: what is planned, then its text."""

    def __init__(self, wanted: CompletionRequest, events: AsyncGenerator[Any, None]) -> None:
        self._wanted, self._events = wanted, events
        self._completion, self._until = CompletionResponse(wanted.settings.model), StopTexts(wanted.stop)
        self._generated, self._finish = 0, "stop"

    async def begin(self) -> None:
        """Wait until it is planned: what is refused before has a status of its own."""
        async for event in self._events:
            if isinstance(event, Planned):
                self._plan = event
                return

    async def whole(self) -> dict[str, Any]:
        """The answer in one object."""
        text = "".join([text async for text in self._texts()])
        return self._completion.whole(text, self._finish, usage(self._plan, self._generated))

    async def stream(self) -> AsyncIterator[str]:
        """Server-sent events."""
        try:
            yield _event(self._completion.piece({"role": "assistant", "content": ""}))
            async for text in self._texts():
                yield _event(self._completion.piece({"content": text})) if text else ": reading\n\n"
            yield _event(self._completion.piece({}, self._finish))
            if self._wanted.counts:
                yield _event(self._completion.counted(usage(self._plan, self._generated)))
            yield "data: [DONE]\n\n"
        except ApiError as e:
            yield _event(e.body)

    async def _texts(self) -> AsyncIterator[str]:
        """Pieces of the answer; nothing, now and then, while it is not begun."""
        told = time.monotonic()
        async with aclosing(self._events) as events:
            async for event in events:
                if isinstance(event, Token):
                    self._generated += 1
                    if text := self._until(event.text):
                        yield text
                    if self._until.met:
                        return
                elif isinstance(event, Done):
                    self._finish = "length" if event.report.stopped == "length" else "stop"
                elif not self._generated and time.monotonic() - told >= BEAT:
                    told = time.monotonic()
                    yield ""
        if rest := self._until.rest():
            yield rest


def run(settings: Settings, host: str, port: int, together: int, show: Callable[[Event], None], ready: Any) -> None:
    """Serve until Ctrl-C. ``show`` hears of the model being loaded, ``ready`` is told the address and the key.

    Raises UsageError, ModelError.
    """
    sock = listen(host, port)
    name = f"[{host}]" if ":" in host else host
    key, server = key_of(settings.home, "serve"), OpenAIServer(settings, together)
    try:
        for event in server.load():
            show(event)
        gate = ApiKeyCheck(server.app(), LOOPBACK if name in LOOPBACK else (), key)
        serve(gate, sock, lambda: ready(f"http://{name}:{sock.getsockname()[1]}/v1", key), server.leaving.set)
    finally:
        server.close()


async def _body(request: Request) -> Any:
    data = b""
    async for some in request.stream():
        data += some
        if len(data) > MOST_BYTES:
            raise ApiError(f"a request has at most {MOST_BYTES:,} bytes", status=413)
    try:
        return json.loads(data)
    except ValueError as e:
        raise ApiError("the request is not JSON") from e


def _told(refused: ApiError) -> Response:
    return JSONResponse(refused.body, refused.status, HEADERS)


async def _refuse(request: Request, refused: ApiError) -> Response:
    return _told(refused)


async def _nothing(request: Request, e: Exception) -> Response:
    return _told(ApiError("nothing is here; there are /v1/chat/completions, /v1/models and /health", status=404))


async def _fault(request: Request, e: Exception) -> Response:
    return _told(ApiError("a fault in localctx, please report it; its log says more", status=500))


def _event(value: Any) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
