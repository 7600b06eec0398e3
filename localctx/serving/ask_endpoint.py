"""The server side of ``localctx ask``: a server also answers the questions of commands on the same machine.

A client needs the key in the server's file in the data folder, and must connect from this machine, because documents
are read with the rights of the server's user.
"""

import json
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import iterate_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from localctx.engine.event_json import error_to_line, event_to_line
from localctx.error_log import explain
from localctx.errors import Cancelled, DocumentError, UsageError, UserError
from localctx.serving.ask_request import ASK_PATH, CANCEL_PATH, DIFFERS, AskRequest
from localctx.serving.http import LOOPBACK, App, Receive, Send, host_name
from localctx.serving.worker import EngineWorker, EventStream, Queued, SessionJob
from localctx.settings import Settings

if TYPE_CHECKING:
    from localctx.session import Session

PREFIX = "/localctx/"
CLIENTS = ("127.0.0.1", "::1", "::ffff:127.0.0.1")
MAX_BYTES = 16 << 20  # per request
SIGN_OF_LIFE = 1.0  # seconds without an event after which an empty line is sent
HEADERS = {"x-content-type-options": "nosniff", "cache-control": "no-store"}
CLOSING = UserError("the server is closing", "ask again")


class AskEndpoint:
    """ASGI middleware: answers requests below the path PREFIX from commands that have the ``key``. All other requests
    go to ``app``.

    ``worker`` runs the questions, with the server's ``settings()`` changed by the settings of each question.
    ``stopping`` is an event; setting it ends running questions.
    """

    def __init__(
        self, app: App, worker: EngineWorker, settings: Callable[[], Settings], key: str, stopping: threading.Event
    ) -> None:
        self._app, self._worker, self._settings = app, worker, settings
        self._key, self._stopping = key.encode(), stopping
        self._running = dict[str, EventStream]()  # by the id of the request
        routes = [Route(ASK_PATH, self._ask, methods=["POST"]), Route(CANCEL_PATH, self._cancel, methods=["POST"])]
        self._routes = Starlette(routes=routes, exception_handlers={404: _not_found, 405: _not_found})

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it to the wrapped application."""
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            await self._app(scope, receive, send)
            return
        await (self._refusal(scope, Headers(scope=scope)) or self._routes)(scope, receive, send)

    def _refusal(self, scope: Any, headers: Headers) -> Response | None:
        """Returns the error response for a client that may not ask, or None for a client that may. Browsers may never
        ask.
        """
        if host_name(headers.get("host", "")) not in LOOPBACK:
            return _refuse("this server does not have that host name", 421)
        if (scope["client"] or ("",))[0] not in CLIENTS or "origin" in headers or "sec-fetch-site" in headers:
            return _refuse("only commands on this machine are answered", 403)
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and secrets.compare_digest(given.strip().encode(), self._key):
            return None
        return _refuse("the key is wrong", 401)

    async def _ask(self, request: Request) -> Response:
        try:
            asked = AskRequest.parse(await _body(request))
        except UsageError as e:
            return _refuse(str(e), 400)
        if asked.id in self._running or self._stopping.is_set():
            return _refuse("this question is being answered, or the server is closing", 503)
        try:
            asked.adapted(self._settings())
        except UsageError as e:
            return _refuse(e.problem, DIFFERS)
        stream = self._running[asked.id] = self._worker.submit(_job(asked))
        end = BackgroundTask(self._end, asked.id)  # also runs when the client hangs up
        return StreamingResponse(self._lines(stream), 200, HEADERS, "application/x-ndjson", end)

    async def _cancel(self, request: Request) -> Response:
        body = await _body(request)
        stream = self._running.get(str(body.get("id"))) if isinstance(body, dict) else None
        if stream:
            stream.cancel()
        return JSONResponse({"cancelled": stream is not None}, headers=HEADERS)

    async def _end(self, request_id: str) -> None:
        self._running.pop(request_id).cancel()

    async def _lines(self, stream: EventStream) -> AsyncIterator[str]:
        """Yields a job's events as lines, and empty lines while no events arrive."""
        sent = time.monotonic()
        try:
            async for event in iterate_in_threadpool(iter(stream)):
                if self._stopping.is_set():
                    raise CLOSING
                if not isinstance(event, Queued) or time.monotonic() - sent > SIGN_OF_LIFE:
                    sent = time.monotonic()
                    yield "\n" if isinstance(event, Queued) else event_to_line(event)
        except (UserError, Cancelled) as e:
            yield error_to_line(CLOSING if self._stopping.is_set() else e)
        except Exception as e:
            yield error_to_line(explain(e))


def _job(asked: AskRequest) -> SessionJob:
    """Returns the job that answers a request. The job raises UsageError if the server's settings changed while it was
    queued, so that server and command no longer agree.
    """

    def job(session: "Session") -> Generator[Any, Any, None]:
        session.change(asked.adapted(session.settings))
        for source in asked.sources:
            _check_source(session, source)
        questions = session.workflows.questions
        yield from questions.ask(asked.sources, asked.question, asked.persist, asked.library, asked.until)

    return job


def _check_source(session: "Session", source: str) -> None:
    """Raise DocumentError for a source that is neither an absolute path nor a stored document. In this process, a
    relative path would mean another file.
    """
    if not Path(source).is_absolute() and not session.runtime.read_store(lambda store: store.documents.has(source)):
        raise DocumentError(f"{source} does not exist", "check the name and the folder")


async def _body(request: Request) -> Any:
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > MAX_BYTES:
            return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _refuse(why: str, status: int) -> Response:
    return JSONResponse({"error": why}, status, HEADERS)


async def _not_found(request: Request, error: Exception) -> Response:
    return _refuse("nothing is here", 404)
