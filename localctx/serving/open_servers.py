"""The servers that are open in a data folder: a file for each, by which commands of the same user find and may ask it.

The file ``servers/PID-PORT.json`` is readable by its owner alone. Its server holds a lock on it, which the system
releases when the process ends, however it ends: a file that nobody locks is of a server that is gone.
"""

import fcntl
import json
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from localctx.version import __version__

FOLDER = "servers"
_LOCAL = {"127.0.0.1": "127.0.0.1", "localhost": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::1": "::1", "::": "::1"}


@dataclass(frozen=True)
class OpenServer:
    """Where a server of this machine is reached, and the ``key`` that requests need. ``pid`` is its process, which
    ``started`` then (seconds since 1970), of localctx's ``version``.
    """

    host: str
    port: int
    key: str
    pid: int
    started: float
    version: str = __version__

    @property
    def url(self) -> str:
        """The address as people write it."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def new_key() -> str:
    """Returns a random key, for one run of a server."""
    return secrets.token_urlsafe(32)


@contextmanager
def registered(home: Path, host: str, port: int, key: str) -> Iterator[None]:
    """Register a server that listens on ``host`` while the block runs. One that this machine's own addresses do not
    reach is not registered, nor is any where the data folder cannot be written: commands then answer by themselves.
    """
    file, lock = home / FOLDER / f"{os.getpid()}-{port}.json", None
    if local := _LOCAL.get(host):
        with suppress(OSError):
            lock = _write(file, OpenServer(local, port, key, os.getpid(), time.time()))
    try:
        yield
    finally:
        if lock is not None:
            with suppress(OSError):
                file.unlink()
            os.close(lock)


def open_servers(home: Path) -> list[OpenServer]:
    """Returns the open servers of this version, the newest first. Files of those that are gone are removed."""
    found = [_read(file) for file in (home / FOLDER).glob("*.json")]
    servers = [server for server in found if server and server.version == __version__]
    return sorted(servers, key=lambda server: -server.started)


def _write(file: Path, server: OpenServer) -> int:
    """Write and lock a server's file; it has its name once it is whole and locked. Returns the lock."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    lock = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(lock, json.dumps(asdict(server)).encode())
        new.rename(file)
    except OSError:
        os.close(lock)
        raise
    return lock


def _read(file: Path) -> OpenServer | None:
    """Returns the server of a file; None if it is gone, or if others than this user could have written or read it."""
    try:
        opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(opened, "rb") as f:
        about = os.fstat(f.fileno())
        if about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o077 or not stat.S_ISREG(about.st_mode):
            return None
        if not _is_locked(f.fileno()):
            with suppress(OSError):
                file.unlink()
            return None
        with suppress(ValueError, TypeError):
            return OpenServer(**json.loads(f.read()))
    return None


def _is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
