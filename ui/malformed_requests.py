"""Refuses requests that gradio's own page never sends and that would make gradio fail."""

import json
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import gradio as gr
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse

from localctx.serving.http import App, Receive, Send

PREFIX = "/gradio_api/"
EVENTS = (f"{PREFIX}run/", f"{PREFIX}queue/join")
MAX_BODY = 64 << 20  # bytes; an event has the page's values, and may have a long pasted text
MAX_NAME = 255  # bytes of a path segment, and characters of a content type; libraries fail on longer ones
NOT_UNDERSTOOD = "localctx does not understand this request; load the page again"
_misread = ContextVar[list[bool] | None]("_misread", default=None)


def note_misread() -> None:
    """Record that the current request has values that do not fit its event, so that the request is answered with status
    422.
    """
    if (notes := _misread.get()) is not None:
        notes.append(True)


class RequestCheck:
    """ASGI middleware: refuses requests to gradio that gradio cannot handle.

    A body must be a JSON object, and an event must be defined in the ``page``.
    """

    def __init__(self, app: App, page: gr.Blocks) -> None:
        self._app, self._page = app, page

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Pass a request to the wrapped application, or refuse it."""
        path = scope.get("path", "")
        kind = Headers(scope=scope).get("content-type", "") if scope["type"] == "http" else ""
        if any(len(part.encode(errors="replace")) > MAX_NAME for part in path.split("/")):
            await PlainTextResponse("Nothing is here.", 404)(scope, receive, send)
        elif len(kind) > MAX_NAME:
            await PlainTextResponse(NOT_UNDERSTOOD, 400)(scope, receive, send)
        elif scope["type"] == "http" and scope["method"] == "POST" and self._is_checked(path):
            await self._check(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_checked(self, path: str) -> bool:
        return path.startswith(PREFIX) and not path.startswith(f"{PREFIX}upload")

    async def _check(self, scope: Any, receive: Receive, send: Send) -> None:
        messages, body = list[Any](), b""
        while not messages or messages[-1].get("more_body"):
            messages.append(await receive())
            body += messages[-1].get("body", b"")
            if messages[-1]["type"] == "http.disconnect":
                return
            if len(body) > MAX_BODY:
                await PlainTextResponse("This request is too large.", 413)(scope, receive, send)
                return
        if not self._is_fine(scope["path"], body):
            await PlainTextResponse(NOT_UNDERSTOOD, 400)(scope, receive, send)
            return
        notes = list[bool]()
        token = _misread.set(notes)
        try:
            await self._app(scope, _replayed(messages, receive), _with_status(send, notes))
        finally:
            _misread.reset(token)

    def _is_fine(self, path: str, body: bytes) -> bool:
        """True if gradio can handle the body of the request. An empty body is allowed, except for events."""
        if not body:
            return not path.startswith(EVENTS)
        try:
            value = json.loads(body)
            json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # no lone surrogates, no NaN
        except (ValueError, RecursionError):
            return False
        return isinstance(value, dict) and (not path.startswith(EVENTS) or self._is_event(value))

    def _is_event(self, value: dict[str, Any]) -> bool:
        index, data = value.get("fn_index"), value.get("data")
        function = self._page.fns.get(index) if isinstance(index, int) else None
        if function is None or function.fn is None:
            return False
        return isinstance(data, list) and len(data) == len(function.inputs)


def _replayed(messages: list[Any], receive: Receive) -> Receive:
    waiting: Iterator[Any] = iter(messages)

    async def receive_again() -> Any:
        message = next(waiting, None)
        return message if message is not None else await receive()

    return receive_again


def _with_status(send: Send, notes: list[bool]) -> Send:
    """Wrap ``send``, so that the status is 422 instead of 500 if ``note_misread`` was called."""

    async def send_with_status(message: Any) -> None:
        if message["type"] == "http.response.start" and message["status"] == 500 and notes:
            message = {**message, "status": 422}
        await send(message)

    return send_with_status
