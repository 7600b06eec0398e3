"""Starts child processes that work on what nobody has checked, and ends those that take too much."""

import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from localctx.budget import measure_use

POLL_SECONDS = 0.2  # between looks at a child process


def start_python(code: str) -> subprocess.Popen[bytes]:
    """Starts a Python process that runs ``code``, with pipes to its standard input and output.

    It has neither this process's environment nor its import path; without ``site`` it starts in half the time. It is
    apart from the terminal, so that Ctrl-C reaches only its parent.
    """
    command = [python(), "-I", "-S", "-c", code]
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    if sys.platform == "win32":
        apart = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, creationflags=apart)
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, start_new_session=True)


def python() -> str:
    """Returns the interpreter. On Windows that of a virtual environment starts another, which would not be watched."""
    return str(getattr(sys, "_base_executable", sys.executable)) if sys.platform == "win32" else sys.executable


class ChildWatch(threading.Thread):
    """Ends a child process once ``cancelled()`` is True, ``wall`` seconds have passed since ``restart``, or it has used
    more than ``allow`` allows; ``excess`` is then what it took too much of.

    Where the system limits processes (see ``system.limit_process``), it is faster: this finds nothing to do there.
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
        """Allow so many ``seconds`` of processor time since the start of the child, and bytes of ``memory``."""
        self._allowed = seconds, memory

    def restart(self) -> None:
        """Begin anew to count the seconds that pass."""
        self._deadline = time.monotonic() + self._wall

    def run(self) -> None:
        """Look at the child until it is ended, or ``ended`` is set."""
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
