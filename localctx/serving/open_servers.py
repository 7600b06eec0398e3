"""Registers the servers that are open in a data folder, so that commands of the same user find them.

Each server has a file ``servers/PID-PORT.json``, readable only by its owner. The server holds a lock on this file,
which the system releases when the process ends for any reason. An unlocked file belongs to a server that has ended.
"""

import json
import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from localctx.system import open_own, try_lock
from localctx.version import __version__

FOLDER = "servers"
_LOCAL = {"127.0.0.1": "127.0.0.1", "localhost": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::1": "::1", "::": "::1"}


@dataclass(frozen=True)
class OpenServer:
    """The address of a server on this machine, and the ``key`` that requests need. The server's process ``pid`` started
    at ``started`` (seconds since 1970) and runs localctx ``version``.
    """

    host: str
    port: int
    key: str
    pid: int
    started: float
    version: str = __version__

    @property
    def url(self) -> str:
        """The address as a URL."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def new_key() -> str:
    """Returns a random key for one run of a server."""
    return secrets.token_urlsafe(32)


@contextmanager
def registered(home: Path, host: str, port: int, key: str) -> Iterator[None]:
    """Register a server that listens on ``host`` and ``port`` while the block runs, so that commands find it.

    A server is not registered if it is unreachable at this machine's own addresses, or if the data folder is not
    writable. Commands then answer questions themselves.
    """
    file, lock = home / FOLDER / f"{os.getpid()}-{port}.json", None
    if local := _LOCAL.get(host):
        with suppress(OSError):
            lock = _write(file, OpenServer(local, port, key, os.getpid(), time.time()))
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)
            with suppress(OSError):
                file.unlink()


def open_servers(home: Path) -> list[OpenServer]:
    """Returns the open servers of this version, newest first. Removes the files of servers that have ended."""
    found = [_read(file) for file in (home / FOLDER).glob("*.json")]
    servers = [server for server in found if server and server.version == __version__]
    return sorted(servers, key=lambda server: -server.started)


def _write(file: Path, server: OpenServer) -> int:
    """Write and lock a server's file. The file gets its final name once it is complete and locked. Returns the lock.

    Windows can neither rename an open file nor let another process delete it before it is locked.
    """
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = file if sys.platform == "win32" else file.with_suffix(".new")
    new.unlink(missing_ok=True)
    lock = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        try_lock(lock)
        os.write(lock, json.dumps(asdict(server)).encode())
        if new != file:
            new.rename(file)
    except OSError:
        os.close(lock)
        raise
    return lock


def _read(file: Path) -> OpenServer | None:
    """Returns the server of a file. Returns None if the server has ended, or if other users could have written or read
    the file.
    """
    try:
        with os.fdopen(open_own(file), "rb") as f:
            gone, content = try_lock(f.fileno(), shared=True), f.read()
    except OSError:
        return None
    if gone:
        with suppress(OSError):
            file.unlink()
        return None
    with suppress(ValueError, TypeError):
        return OpenServer(**json.loads(content))
    return None
