"""Locks of a data folder that processes share: who is working there now, and who watches folders.

The system releases them when a process ends, however it ends.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from localctx.system import lock_shared, try_lock

WORK, WATCH = "at-work.lock", "watching.lock"
_LOCKABLE = "r+b" if sys.platform == "win32" else "rb"  # so that a file that may only be read is locked, too


@contextmanager
def at_work(home: Path) -> Iterator[None]:
    """Hold what ``is_at_work`` looks at, together with others. Without the file, nobody looks: none is made."""
    with ExitStack() as stack:
        with suppress(OSError):
            lock = stack.enter_context((home / WORK).open(_LOCKABLE))
            lock_shared(lock.fileno())  # waits for the microseconds that somebody looks
        yield


def is_at_work(home: Path) -> bool:
    """Returns True while any process is ``at_work`` for the data folder."""
    with _opened(home / WORK) as lock:
        return not try_lock(lock)


@contextmanager
def the_watcher(home: Path) -> Iterator[bool]:
    """Yields True if no other process watches folders for this data folder; none can inside the block then."""
    with _opened(home / WATCH) as lock:
        yield try_lock(lock)


@contextmanager
def _opened(file: Path) -> Iterator[int]:
    lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)  # children do not inherit it (PEP 446)
    try:
        yield lock
    finally:
        os.close(lock)
