"""Listening: a port of this machine, the key to what is there, and serving until Ctrl-C."""

import os
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from localctx.errors import UsageError

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]


def name_of(host: str) -> str:
    """A Host header without its port."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


def key_of(home: Path, to: str = "ui") -> str:
    """The key of the data folder ``home`` to the window, or something else; made once, readable by its owner alone."""
    file = home / f"{to}.key"
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileExistsError), os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as f:
        f.write(secrets.token_urlsafe(24))
    return file.read_text().strip()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, at ``port`` or (0) at a free one. Raises UsageError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as e:
        sock.close()
        raise UsageError(
            f"nothing can listen at {host}:{port} ({e.strerror})", "choose another with --port, 0 for a free one"
        ) from e
    return sock


class _Server(uvicorn.Server):
    leaving: Callable[[], None]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.leaving()
        super().handle_exit(sig, frame)


def serve(app: App, sock: socket.socket, ready: Callable[[], None], leaving: Callable[[], None] = lambda: None) -> None:
    """Serve until Ctrl-C; ``ready`` is called, once, when requests are answered, ``leaving`` when that comes to an end,
    by a signal handler.
    """
    server = _Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, ws="none"))
    server.leaving = leaving
    threading.Thread(target=_when_started, args=(server, ready), daemon=True).start()
    server.run([sock])


def _when_started(server: uvicorn.Server, ready: Callable[[], None]) -> None:
    while not server.started:
        if server.should_exit:
            return
        threading.Event().wait(0.02)
    ready()
