"""Runs the jobs of a batch in several threads, each with its own worker."""

import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from typing import Any, Protocol

from localctx.batch.jobs import DocumentJob
from localctx.batch.run_batch import Outcome
from localctx.engine.events import Event
from localctx.errors import Cancelled

POLL_INTERVAL = 0.1  # seconds after which workers are cancelled once the batch is stopped


class BatchWorker(Protocol):
    """Runs the jobs of a batch in one thread, one after another.

    ``cancel`` makes the running job raise Cancelled. Any thread may call ``cancel``, also repeatedly.
    """

    def run(self, job: DocumentJob) -> Generator[Event, None, Outcome]: ...

    def cancel(self) -> object: ...


def run_in_threads(
    open_worker: Callable[[], AbstractContextManager[BatchWorker]],
    jobs: Iterable[DocumentJob],
    count: int,
    stop: threading.Event,
) -> Iterator[tuple[DocumentJob, Event | Outcome]]:
    """Run ``jobs`` with ``count`` workers, each in a thread of its own. Yields pairs of a job and an event; the last
    pair of each job has its outcome instead.

    ``open_worker`` is called in each thread. The first error of a worker stops all workers and is raised here. If
    ``stop`` is set, Cancelled is raised. Closing the iterator stops the workers too.
    """
    pool = _WorkerPool(open_worker, jobs, stop)
    threads = [threading.Thread(target=pool.run_worker, name=f"worker {i}", daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    try:
        while message := pool.receive(threads):
            yield message
        if pool.error:
            raise pool.error
        if stop.is_set():
            raise Cancelled
    finally:
        stop.set()
        while any(thread.is_alive() for thread in threads):
            pool.receive(threads)


class _WorkerPool:
    """The state that all threads of a batch share: the jobs, a queue of messages to the main thread, and the first
    error.
    """

    def __init__(
        self,
        open_worker: Callable[[], AbstractContextManager[BatchWorker]],
        jobs: Iterable[DocumentJob],
        stop: threading.Event,
    ) -> None:
        self._open_worker, self._jobs, self._stop = open_worker, iter(jobs), stop
        self._messages, self._lock = queue.SimpleQueue[Any](), threading.Lock()
        self._workers = list[BatchWorker]()
        self.error: BaseException | None = None

    def run_worker(self) -> None:
        """Open a worker and run jobs until none is left. Each thread runs this method."""
        try:
            with self._open_worker() as worker:
                self._workers.append(worker)
                while (job := self._next_job()) is not None:
                    self._messages.put((job, self._forward(job, worker.run(job))))
        except BaseException as e:
            self._fail(e)

    def receive(self, threads: Iterable[threading.Thread]) -> tuple[DocumentJob, Event | Outcome] | None:
        """Return the next message, or None when all ``threads`` have ended. Cancels the workers if ``stop`` is set."""
        while True:
            alive = any(thread.is_alive() for thread in threads)
            if self._stop.is_set():
                for worker in list(self._workers):
                    worker.cancel()
            try:
                return self._messages.get(timeout=POLL_INTERVAL if alive else 0)
            except queue.Empty:
                if not alive:
                    return None

    def _forward(self, job: DocumentJob, events: Generator[Event, None, Outcome]) -> Outcome:
        """Send all events of a job to the main thread. Returns the outcome of the job."""
        with closing(events):
            while True:
                try:
                    self._messages.put((job, next(events)))
                except StopIteration as end:
                    return end.value

    def _next_job(self) -> DocumentJob | None:
        with self._lock:
            return None if self._stop.is_set() else next(self._jobs, None)

    def _fail(self, e: BaseException) -> None:
        """Stop all workers. The first error is kept, because the other workers raise Cancelled only as a
        consequence.
        """
        with self._lock:
            if self.error is None or isinstance(self.error, Cancelled):
                self.error = e
        self._stop.set()
