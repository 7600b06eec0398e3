"""Starts child processes that handle untrusted input, and ends those that use too much time or memory."""

import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from localctx.budget import measure_use

POLL_SECONDS = 0.2  # between checks of a child process


def start_python(code: str) -> subprocess.Popen[bytes]:
    """Start a Python process that runs ``code``, with pipes to its standard input and output.

    It inherits neither this process's environment nor its import path. Without ``site`` it starts in half the time. It
    is detached from the terminal, so Ctrl-C reaches only its parent.
    """
    command = [python(), "-I", "-S", "-c", code]
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    if sys.platform == "win32":
        apart = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, creationflags=apart)
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, start_new_session=True)


def python() -> str:
    """Returns the interpreter. On Windows a virtual environment's interpreter starts another one, which would not be
    watched.
    """
    return str(getattr(sys, "_base_executable", sys.executable)) if sys.platform == "win32" else sys.executable


class ChildWatch(threading.Thread):
    """Ends a child process once ``cancelled()`` is True, ``wall`` seconds have passed since ``restart``, or it exceeds
    the limits set by ``allow``. ``excess`` then names the exceeded limit.

    Where the system limits processes (see ``system.limit_process``), the system acts first.
    """

    def __init__(
        self, child: subprocess.Popen[bytes], wall: float, cancelled: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__(daemon=True)
        self.ended, self.excess = threading.Event(), ""
        self._child, self._wall, self._cancelled = child, wall, cancelled
        self.allow(math.inf, math.inf)
        self.restart()

    def allow(self, seconds: float, memory: float) -> None:
        """Allow this many ``seconds`` of processor time since the child's start, and bytes of ``memory``."""
        self._allowed = seconds, memory

    def restart(self) -> None:
        """Restart the wall clock."""
        self._deadline = time.monotonic() + self._wall

    def run(self) -> None:
        """Check the child until it is killed or ``ended`` is set."""
        while not self.ended.wait(POLL_SECONDS):
            if excess := self._look():
                self.excess = excess
                self._child.kill()
                break

    def _look(self) -> str:
        if time.monotonic() >= self._deadline or self._cancelled():
            return "time"
        (seconds, memory), (most_seconds, most_memory) = measure_use(self._child.pid), self._allowed
        if seconds > most_seconds:
            return "time"
        return "memory" if memory > most_memory else ""
