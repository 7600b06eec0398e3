"""Starts child processes that handle untrusted input, and kills those that use too much time or memory."""

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

    The process inherits neither environment variables nor the import path. It runs without the module ``site``, which
    halves its start time. It is detached from the terminal, so Ctrl-C reaches only its parent.
    """
    command = [python(), "-I", "-S", "-c", code]
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    if sys.platform == "win32":
        apart = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, creationflags=apart)
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, start_new_session=True)


def python() -> str:
    """Returns the path of the Python interpreter for child processes. On Windows it is the base interpreter: a virtual
    environment's interpreter would start another process, which ChildWatch could not see.
    """
    return str(getattr(sys, "_base_executable", sys.executable)) if sys.platform == "win32" else sys.executable


class ChildWatch(threading.Thread):
    """A thread that kills a child process if ``cancelled()`` is True, if ``wall`` seconds have passed since
    ``restart``, or if the process exceeds the limits set by ``allow``. ``excess`` then names the exceeded limit:
    ``time`` or ``memory``.

    On systems that can limit processes themselves (see ``system.limit_process``), the system's limits act first.
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
        """Set the child's limits: ``seconds`` of processor time since its start, and bytes of ``memory``."""
        self._allowed = seconds, memory

    def restart(self) -> None:
        """Start the time limit ``wall`` again from now."""
        self._deadline = time.monotonic() + self._wall

    def run(self) -> None:
        """Check the child regularly until it is killed or ``ended`` is set."""
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
