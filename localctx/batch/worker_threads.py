"""Apart: jobs are done by workers that know nothing of each other, each in a thread of its own."""

import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from typing import Any, Protocol

from localctx.batch.jobs import DocumentJob
from localctx.batch.run_batch import Outcome
from localctx.engine.events import Event
from localctx.errors import Cancelled

HEARD = 0.1  # seconds after which a stop is handed on


class BatchWorker(Protocol):
    """Does one job after another. ``cancel``, which any thread may call again and again, makes what runs raise
    Cancelled.
    """

    def work(self, job: DocumentJob) -> Generator[Event, None, Outcome]: ...

    def cancel(self) -> object: ...


def run_in_threads(
    open_worker: Callable[[], AbstractContextManager[BatchWorker]],
    jobs: Iterable[DocumentJob],
    count: int,
    stop: threading.Event,
) -> Iterator[tuple[DocumentJob, Event | Outcome]]:
    """What ``count`` workers tell of their jobs, and what becomes of each. ``open_worker`` is called in their threads.

    The first thing that one raises ends all of them, and is raised here; ``stop`` and closing this end them, too.
    """
    crew = _Crew(open_worker, jobs, stop)
    threads = [threading.Thread(target=crew.work, name=f"worker {i}", daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    try:
        while told := crew.hear(threads):
            yield told
        if crew.error:
            raise crew.error
        if stop.is_set():
            raise Cancelled
    finally:
        stop.set()
        while any(thread.is_alive() for thread in threads):
            crew.hear(threads)


class _Crew:
    def __init__(
        self,
        open_worker: Callable[[], AbstractContextManager[BatchWorker]],
        jobs: Iterable[DocumentJob],
        stop: threading.Event,
    ) -> None:
        self._open_worker, self._jobs, self._stop = open_worker, iter(jobs), stop
        self._told, self._turn = queue.SimpleQueue[Any](), threading.Lock()
        self._workers = list[BatchWorker]()
        self.error: BaseException | None = None

    def work(self) -> None:
        """Open a worker and let it do what is to be done, until there is nothing left."""
        try:
            with self._open_worker() as worker:
                self._workers.append(worker)
                while (job := self._next()) is not None:
                    self._told.put((job, self._tell(job, worker.work(job))))
        except BaseException as e:
            self._fail(e)

    def hear(self, threads: Iterable[threading.Thread]) -> tuple[DocumentJob, Event | Outcome] | None:
        """What is told next; None when all ``threads`` have ended. A stop is handed on meanwhile."""
        while True:
            alive = any(thread.is_alive() for thread in threads)
            if self._stop.is_set():
                for worker in list(self._workers):
                    worker.cancel()
            try:
                return self._told.get(timeout=HEARD if alive else 0)
            except queue.Empty:
                if not alive:
                    return None

    def _tell(self, job: DocumentJob, events: Generator[Event, None, Outcome]) -> Outcome:
        """Tell all events of a job; what they were leading to."""
        with closing(events):
            while True:
                try:
                    self._told.put((job, next(events)))
                except StopIteration as end:
                    return end.value

    def _next(self) -> DocumentJob | None:
        with self._turn:
            return None if self._stop.is_set() else next(self._jobs, None)

    def _fail(self, e: BaseException) -> None:
        """The first failure counts; that others are cancelled is its consequence."""
        with self._turn:
            if self.error is None or isinstance(self.error, Cancelled):
                self.error = e
        self._stop.set()
