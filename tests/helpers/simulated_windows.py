"""Windows, as far as Linux can pass for it: without the modules and functions that only POSIX has, and with a stand-in
for its locks of byte ranges. ``install`` turns a process into one there; ``python`` is an interpreter whose processes,
started with ``-c``, all are.
"""

import os
import signal
import struct
import sys
import types
from pathlib import Path

ABSENT_MODULES = ("fcntl", "grp", "pwd", "resource", "termios", "tty", "pty")
ABSENT_IN_OS = (
    *("fork", "getuid", "geteuid", "nice", "posix_fadvise", "posix_fallocate", "pread", "pwrite"),
    *("sched_getaffinity", "statvfs", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"),
)
ABSENT_IN_SIGNAL = ("SIGKILL", "SIGXCPU", "SIGHUP")


def install(*libraries: str) -> None:
    """Turns this process into one on Windows, for what is imported from now on: the standard library and ``libraries``
    have the system that there is.
    """
    import asyncio  # noqa: F401 (chooses by the system when it is imported)
    import subprocess
    import tempfile  # noqa: F401

    for library in libraries:
        __import__(library)
    sys.modules["msvcrt"] = _msvcrt()
    sys.modules["_winapi"] = types.ModuleType("_winapi")
    subprocess.CREATE_NEW_PROCESS_GROUP = subprocess.CREATE_NO_WINDOW = 0
    for name in ABSENT_MODULES:
        sys.modules[name] = None
    sys.modules["os"] = _without(os, ABSENT_IN_OS, O_BINARY=0, O_NOINHERIT=0)
    sys.modules["signal"] = _without(signal, ABSENT_IN_SIGNAL)
    sys.platform = "win32"


def _without(module: types.ModuleType, names: tuple[str, ...], **others: int) -> types.ModuleType:
    """A copy of a module without some names, and with ``others``."""
    copy = types.ModuleType(module.__name__)
    copy.__dict__.update({name: value for name, value in vars(module).items() if name not in names} | others)
    return copy


def python(folder: Path, *libraries: str) -> Path:
    """Writes an interpreter into ``folder`` whose processes are on Windows, as ``install`` says."""
    script = folder / "python"
    path = [str(Path(__file__).parent), *sys.path]
    start = f"import sys; sys.path[:] = {path!r}; import simulated_windows; simulated_windows.install(*{libraries!r}); "
    lines = (
        f"#!{sys.executable} -S",
        "import os, sys",
        "*options, code = sys.argv[1:]",
        f"os.execv({sys.executable!r}, [{sys.executable!r}, *options, {start!r} + code])",
    )
    script.write_text("\n".join(lines) + "\n", encoding="utf-8")
    script.chmod(0o700)
    return script


def _msvcrt() -> types.ModuleType:
    """``locking`` by Linux's locks of open files, which conflict as those of Windows do: by handle, and by byte."""
    import fcntl

    module = types.ModuleType("msvcrt")
    module.LK_NBLCK = 2

    def locking(file: int, mode: int, count: int) -> None:
        assert mode == module.LK_NBLCK
        wanted = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_CUR, 0, count, 0)
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, wanted)
        except BlockingIOError as e:
            raise PermissionError(13, "Permission denied") from e

    module.locking = locking
    return module
