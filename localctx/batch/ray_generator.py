"""Runs a batch on a Ray cluster. This process reads the files, writes the results and owns the store."""

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from localctx.batch.jobs import DocumentJob
from localctx.batch.ray_cluster import JOBS_PER_WORKER, RayCluster
from localctx.batch.run_batch import Batch, JobEvents, Outcome
from localctx.engine.coroutine import CoroutineRunner
from localctx.engine.events import Event, Progress
from localctx.store.documents import StoredDocument
from localctx.workflows.summary_task import SummaryTask


class RayGenerator:
    """Runs the jobs of a batch on a Ray cluster. The thread that iterates over ``run`` reads the files and writes the
    results.
    """

    def __init__(self, cluster: RayCluster) -> None:
        self._cluster = cluster
        self._running = dict[Future[Any], tuple[DocumentJob, CoroutineRunner[Outcome]]]()
        self._waiting = deque[DocumentJob]()
        self._retries = list[DocumentJob]()

    def summarize(
        self, document: StoredDocument, task: SummaryTask, persist: bool
    ) -> Generator[Any, Any, dict[str, Any]]:
        """Do ``task`` for a document on the cluster, as a coroutine. Yields the future of the result, then notes, and
        returns the result.
        """
        notes = list[Event]()
        result: dict[str, Any] = yield self._pool.submit(self._cluster.summarize, document, task, persist, notes.append)
        yield from notes
        return result

    def run(self, batch: Batch, jobs: Iterable[DocumentJob]) -> JobEvents:
        """Run ``jobs`` of a ``batch`` that was made with this object's ``summarize``. Yields the events and outcomes of
        the jobs.

        Raises the errors of ``RayCluster`` and ``Batch.run``.
        """
        yield None, Progress("workers", 0, 1)
        self._waiting.extend(jobs)
        with self._cluster, ThreadPoolExecutor(self._cluster.max_parallel) as self._pool:
            workers = self._cluster.max_parallel // JOBS_PER_WORKER
            yield None, Progress("workers", workers, workers)
            try:
                while self._waiting or self._running:
                    while self._waiting and len(self._running) < self._cluster.max_parallel:
                        yield from self._start(batch, self._waiting.popleft())
                    yield from self._wait()
            except BaseException:
                self._cluster.cancel()
                raise

    def _start(self, batch: Batch, job: DocumentJob) -> JobEvents:
        runner = CoroutineRunner(batch.run(job))
        runner.resume()
        return self._advance(job, runner)

    def _wait(self) -> JobEvents:
        """Wait until a result arrives, then resume the jobs of all finished results."""
        for future in wait(self._running, return_when=FIRST_COMPLETED).done:
            job, runner = self._running.pop(future)
            try:
                result = future.result()
            except Exception as e:
                runner.fail(e)
            else:
                runner.resume(result)
            yield from self._advance(job, runner)

    def _advance(self, job: DocumentJob, runner: CoroutineRunner[Outcome]) -> JobEvents:
        """Yield a job's events up to its next future or its outcome."""
        while not runner.ended:
            yielded: Any = runner.yielded
            if isinstance(yielded, Future):
                self._running[yielded] = job, runner
                return
            yield job, yielded
            runner.resume()
        if runner.result.retry and self._running:
            self._retries.append(job)
            return
        yield job, runner.result
        self._waiting.extend(self._retries)
        self._retries.clear()
