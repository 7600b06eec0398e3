"""DaemonThreads: functions run in threads that never keep the process from ending, with a time limit on results."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class DaemonThreads:
    """Runs functions in at most ``count`` daemon threads. A function that hangs occupies its thread, nothing else.

    The executors of the standard library wait for their threads when the process ends.
    """

    def __init__(self, count: int) -> None:
        self._count, self._started = count, 0
        self._queue = SimpleQueue[tuple[Future[Any], Callable[[], Any]]]()

    def submit(self, function: Callable[[], T]) -> "Future[T]":
        """Run ``function`` when a thread is free."""
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
            except BaseException as e:  # raised where the result is waited for
                future.set_exception(e)
