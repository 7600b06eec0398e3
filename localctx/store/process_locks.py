"""Locks between the processes that use one data folder. They show whether any process is using the folder, and ensure
that only one process watches folders and only one keeps a table up to date.

The operating system releases the locks when a process ends, even after a crash.
"""

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from localctx.system import lock_shared, try_lock

WORK, WATCH = "at-work.lock", "watching.lock"
_LOCKABLE = "r+b" if sys.platform == "win32" else "rb"  # elsewhere a read-only file can be locked too


@contextmanager
def at_work(home: Path) -> Iterator[None]:
    """Hold a lock while the block runs, so that other processes see that this process uses the data folder
    (``is_at_work``). If there is no lock file, no lock is held, and no file is created.
    """
    with ExitStack() as stack:
        with suppress(OSError):
            lock = stack.enter_context((home / WORK).open(_LOCKABLE))
            lock_shared(lock.fileno())  # waits only the microseconds during which is_at_work tests the lock
        yield


def is_at_work(home: Path) -> bool:
    """Returns True while any process holds the lock of ``at_work`` for the data folder. A folder that does not exist is
    used by none.
    """
    try:
        with _opened(home / WORK) as lock:
            return not try_lock(lock)
    except FileNotFoundError:
        return False


@contextmanager
def the_watcher(home: Path) -> Iterator[bool]:
    """Try to become the only process that watches folders for the data folder ``home``, while the block runs. Yields
    False if another process does that.
    """
    with _opened(home / WATCH) as lock:
        yield try_lock(lock)


@contextmanager
def the_table_writer(home: Path, table: Path) -> Iterator[bool]:
    """Try to become the only process that keeps the file ``table`` up to date, while the block runs. Yields False if
    another process of the data folder does that.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = hashlib.sha256(os.path.normcase(os.fspath(table)).encode(errors="surrogateescape")).hexdigest()
    with _opened(home / f"table-{name[:16]}.lock") as lock:
        yield try_lock(lock)


@contextmanager
def _opened(file: Path) -> Iterator[int]:
    lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)  # children do not inherit it (PEP 446)
    try:
        yield lock
    finally:
        os.close(lock)
