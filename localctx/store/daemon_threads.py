"""DaemonThreads: runs functions in daemon threads, which never keep the process from exiting."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class DaemonThreads:
    """Runs functions in at most ``count`` daemon threads. A function that hangs blocks only its own thread.

    A ThreadPoolExecutor would instead wait for its threads when the process exits.
    """

    def __init__(self, count: int) -> None:
        self._count, self._started = count, 0
        self._queue = SimpleQueue[tuple[Future[Any], Callable[[], Any]]]()

    def submit(self, function: Callable[[], T]) -> "Future[T]":
        """Run ``function`` as soon as a thread is free. Returns a future of the result."""
        future = Future[T]()
        self._queue.put((future, function))
        if self._started < self._count:
            self._started += 1
            threading.Thread(target=self._run, name="localctx remote", daemon=True).start()
        return future

    def _run(self) -> None:
        while True:
            future, function = self._queue.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except BaseException as e:  # re-raised by Future.result
                future.set_exception(e)
