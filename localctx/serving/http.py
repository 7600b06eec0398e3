"""Serves HTTP: opens a listening socket, keeps an access key, and runs an ASGI server until Ctrl-C."""

import asyncio
import os
import secrets
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol

from localctx.error_log import explain
from localctx.errors import UsageError
from localctx.network import is_this_machine, refuse_offline

REQUEST_SECONDS = 30.0  # for a request's headers and body, plus
BYTES_PER_SECOND = 20_000  # minimum rate of a large body
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_INCOMPLETE = (h11.IDLE, h11.SEND_BODY)

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]


def host_name(host: str) -> str:
    """Returns the host in a Host header, without the port."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


def access_key(home: Path, name: str = "ui") -> str:
    """Returns the key in ``home/NAME.key``.

    The file is made on first use; only its owner can read it.
    """
    file = home / f"{name}.key"
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileExistsError), os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
        f.write(secrets.token_urlsafe(24).encode())
    return file.read_text("ascii").strip()


def listen(host: str, port: int) -> socket.socket:
    """Returns a listening socket on ``port``, or on any free port if ``port`` is 0. Raises UsageError."""
    if not is_this_machine(host) or host in ("0.0.0.0", "::", ""):
        refuse_offline(f"{host} can be reached from other machines", "leave out --host, or --offline")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    if sys.platform == "win32":  # on Windows SO_REUSEADDR would share the port with another listener
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
    else:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as e:
        sock.close()
        raise UsageError(
            f"cannot listen on {host}:{port} ({e.strerror})", "choose another port with --port; 0 takes a free one"
        ) from e
    return sock


class ErrorGuard:
    """ASGI middleware: if a request fails unexpectedly, the response is a one-line error, and the details go into the
    error log.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Let the wrapped application answer, or report that it failed."""
        started = False

        async def note_start(message: Any) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, note_start)
        except ClientDisconnect:
            pass  # the client no longer waits for the response
        except Exception as e:
            line = f"localctx: {explain(e)}\n".encode()
            if scope["type"] == "http" and not started:
                headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
                await send({"type": "http.response.start", "status": 500, "headers": headers})
                await send({"type": "http.response.body", "body": line})


class _NotifyingServer(uvicorn.Server):
    """A uvicorn server that calls ``on_shutdown`` before it handles the signal that ends it."""

    on_shutdown: Callable[[], None]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.on_shutdown()
        super().handle_exit(sig, frame)


def server_config(app: App) -> uvicorn.Config:
    """Returns uvicorn's configuration for ``app``.

    Error responses have one line, incomplete requests time out, and logs go to the error log.
    """
    return uvicorn.Config(
        ErrorGuard(app),
        http=RequestTimeoutProtocol,
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=1,
    )


def serve(
    app: App, sock: socket.socket, on_ready: Callable[[], None], on_shutdown: Callable[[], None] = lambda: None
) -> None:
    """Serve ``app`` until Ctrl-C.

    Calls ``on_ready`` once, from another thread, when requests are answered, and ``on_shutdown`` from the signal
    handler, before connections are closed.
    """
    server = _NotifyingServer(server_config(app))
    server.on_shutdown = on_shutdown
    threading.Thread(target=_call_when_started, args=(server, on_ready), daemon=True).start()
    server.run([sock])


def _call_when_started(server: uvicorn.Server, on_ready: Callable[[], None]) -> None:
    while not server.started:
        if server.should_exit:
            return
        threading.Event().wait(0.02)
    on_ready()


class RequestTimeoutProtocol(H11Protocol):
    """Closes an HTTP/1.1 connection if its request is not complete after REQUEST_SECONDS. Otherwise the connection
    could stay open forever.

    For the first request, the time counts from connecting; for a later one, from its first byte. Each byte received
    extends the time by 1 / BYTES_PER_SECOND. While the application does not read, the time does not run out.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout of a new connection, which must send a complete request in time."""
        super().connection_made(transport)
        self._since: float | None = self.loop.time()
        self._received = 0
        self._timer = self.loop.call_later(REQUEST_SECONDS, self._look)

    def data_received(self, data: bytes) -> None:
        """Receive part of a request, and extend the timeout."""
        if self._since is None:
            self._since, self._received = self.loop.time(), 0
        self._received += len(data)
        super().data_received(data)
        if self.conn.their_state not in _INCOMPLETE:
            self._since = None

    def connection_lost(self, exc: Exception | None) -> None:
        """End the timeout of a closed connection."""
        self._timer.cancel()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def _look(self) -> None:
        left = REQUEST_SECONDS
        if self._since is not None and not self.flow.read_paused:
            left += self._since + self._received / BYTES_PER_SECOND - self.loop.time()
        if left <= 0:
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(left + 0.01, self._look)
