"""Differences between Windows and POSIX: file locks, syncing to disk, links, private files and process limits."""

import os
import random
import signal
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

if sys.platform == "win32":
    import _winapi
    import msvcrt
    import shutil

    BINARY = os.O_BINARY
else:
    import fcntl
    import resource

    BINARY = 0
"""The flag with which ``os.open`` does not translate line ends."""

_LOCKED_AT, _HOLDERS = 1 << 30, 1024  # Windows: first byte of a lock, beyond any content; most shared locks at once
_LOOK_SECONDS = 0.001  # between attempts to lock


def try_lock(file: int, shared: bool = False) -> bool:
    """Lock an open ``file`` (a descriptor), exclusively or ``shared``, until it is closed or this process ends. Returns
    False if another open file holds a conflicting lock. Raises OSError.

    Windows can only lock byte ranges exclusively. There a shared lock takes one byte of a range, an exclusive lock
    takes the whole range, and the file must be open for writing.
    """
    return _try_lock(file, shared)


def lock_shared(file: int) -> None:
    """Take a shared lock, like ``try_lock``. Waits while another open file holds an exclusive lock."""
    while not try_lock(file, shared=True):
        time.sleep(_LOOK_SECONDS)


if sys.platform == "win32":

    def _try_lock(file: int, shared: bool) -> bool:
        first = random.randrange(_HOLDERS)
        places = ((first + i) % _HOLDERS for i in range(_HOLDERS)) if shared else (0,)
        return any(_lock_bytes(file, _LOCKED_AT + at, 1 if shared else _HOLDERS) for at in places)

    def _lock_bytes(file: int, start: int, count: int) -> bool:
        before = os.lseek(file, 0, os.SEEK_CUR)
        os.lseek(file, start, os.SEEK_SET)  # locks start at the current file position
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, count)
        except PermissionError:
            return False
        finally:
            os.lseek(file, before, os.SEEK_SET)
        return True

else:

    def _try_lock(file: int, shared: bool) -> bool:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def open_own(file: Path) -> int:
    """Open a file that belongs to this user and that no other user can read or write. Returns its descriptor. Links are
    not followed, and pipes do not block. Raises OSError, or PermissionError for a file of another user.

    On Windows this is not checked, because the data folder's permissions decide: Python makes folders of mode 700
    accessible to their owner only.
    """
    if sys.platform == "win32":
        if file.is_symlink():
            raise PermissionError(f"{file} is a link")
        return os.open(file, os.O_RDWR | BINARY | os.O_NOINHERIT)
    opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    about = os.fstat(opened)
    if about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o077 or not stat.S_ISREG(about.st_mode):
        os.close(opened)
        raise PermissionError(f"{file} is not this user's alone")
    return opened


def open_without_waiting(path: str, flags: int) -> int:
    """Open a file like ``os.open``, but do not wait if it is a named pipe without a writer, which would block forever.
    Such a pipe reads as empty. This is an ``opener`` for Python's ``open``.
    """
    if sys.platform == "win32":
        return os.open(path, flags)  # Windows has no pipes among its files
    opened = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(opened, True)
    return opened


def sync(path: Path) -> None:
    """Flush the bytes of a file, or the names in a folder, to disk. Raises OSError.

    On Windows a folder cannot be flushed, but NTFS journals names by itself.
    """
    if sys.platform == "win32" and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def link(path: Path, target: Path) -> None:
    """Make ``path`` a link to the file or folder ``target``. Raises OSError.

    On Windows symbolic links need a privilege, so ``path`` becomes a junction, a hard link or a copy.
    """
    if sys.platform != "win32":
        path.symlink_to(target)
    elif target.is_dir():
        _winapi.CreateJunction(str(target), str(path))
    else:
        with suppress(OSError):
            os.link(target, path)
        if not path.exists():
            shutil.copyfile(target, path)


def limit_process(seconds: int, memory: int) -> None:
    """Limit this process to ``seconds`` of processor time since its start and ``memory`` bytes of address space. It may
    write no core files and no other files. Limits that the system lacks are skipped: all of them on Windows,
    some on macOS.

    ``child_process.ChildWatch`` checks time and memory on all systems.
    """
    if sys.platform != "win32":
        limits = {"RLIMIT_CPU": seconds, "RLIMIT_AS": memory, "RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0}
        for name, limit in limits.items():
            with suppress(AttributeError, ValueError, OSError):
                _, hard = resource.getrlimit(kind := getattr(resource, name))
                resource.setrlimit(kind, (limit, hard))  # the hard limit stays, so that the soft one can be raised


def processors() -> int:
    """Returns the number of processors that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def interrupt(signum: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C: raise KeyboardInterrupt, or end the process at once if a module is being imported.

    An interrupted import would leave half a module, which then raises misleading errors.
    """
    if not _is_importing(frame):
        raise KeyboardInterrupt
    with suppress(OSError):
        os.write(2, b"localctx: stopped\n")
    os._exit(128 + signal.SIGINT)  # as a shell reports Ctrl-C


def _is_importing(frame: FrameType | None) -> bool:
    while frame:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
