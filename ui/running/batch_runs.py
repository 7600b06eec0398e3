"""Runs the window's batch of library documents in the server, whether or not a page shows it."""

import threading
import time
from collections.abc import Collection, Generator, Sequence
from typing import TYPE_CHECKING, Any

from localctx.batch.table.cells import AnswerRow
from localctx.batch.table.columns import TableColumn
from localctx.errors import Cancelled, UsageError, UserError
from localctx.serving.worker import EngineWorker, EventStream, Queued, SessionJob
from localctx.store.store import Store
from localctx.ui.job_events import error_text
from localctx.ui.running.batch_item import FINISHED, PENDING, BatchItem
from localctx.workflows.summary_task import SummaryTask

if TYPE_CHECKING:  # importing torch takes seconds
    from localctx.session import Session


class BatchRuns:
    """Runs one batch at a time.

    Each document is a background job of ``worker``, which runs up to ``max_parallel`` of them at a time and lets
    questions overtake them. ``kept`` says in words with which documents the table is kept current; "" if it is not.
    """

    def __init__(self, worker: EngineWorker, max_parallel: int) -> None:
        self._worker, self._max_parallel = worker, max_parallel
        self._changed = threading.Condition()
        self._threads = list[threading.Thread]()
        self._streams = dict[EventStream, BatchItem]()
        self._open = True
        self._runs = 0  # number of starts and resumes
        self._resumed_at, self._bytes_before = 0.0, 0  # time of the last one, and the bytes done by then
        self.items: Sequence[BatchItem] = []
        self.task, self.columns, self.kept = SummaryTask(), tuple[TableColumn, ...](), ""
        self.running = False
        self.why = ""  # the error that stopped the batch, if any
        self.stopped_at = 0.0  # when it was stopped last
        self.version = 0  # incremented on every change

    def begin(self, items: Sequence[BatchItem], task: SummaryTask, columns: Sequence[TableColumn] = ()) -> None:
        """Run ``task`` on these documents and replace the previous batch. Its answers fill a table of ``columns``, if
        there are any. Raises UsageError while another batch runs; a table that is kept current waits until this ends.
        """
        if self.kept:
            self.pause()
        with self._changed:
            if self.running:
                raise UsageError("other documents are being summarized", "pause that first, or wait for its end")
            self.items, self.task, self.columns, self.kept = list(items), task, tuple(columns), ""
        self.resume_all()

    def show_kept_table(
        self, items: Sequence[BatchItem], task: SummaryTask, columns: Sequence[TableColumn], kept: str
    ) -> None:
        """Make ``items`` the documents of a table that is kept current, unless another batch is shown. Documents that
        it had already stay as they are, and a pause goes on.
        """
        with self._changed:
            before = {item.job: item for item in self.items}
            items = [before.get(item.job, item) for item in items]
            same = len(items) == len(before) and all(item is before.get(item.job) for item in items)
            if same if self.kept else self.items:
                return
            paused = self.paused
            self.items, self.task, self.columns, self.kept = items, task, tuple(columns), kept
            self._notify()
        if not paused:
            self.run_waiting()

    def run_next_idle(self) -> None:
        """Run the next documents that wait until the machine is idle, unless others run or are paused."""
        with self._changed:
            if self.running or self.paused:
                return
            for item in [item for item in self.items if item.state == "later"][: self._max_parallel]:
                item.state = "waiting"
        self.run_waiting()

    def resume_all(self) -> None:
        """Continue with all unfinished documents, also those that wait until the machine is idle."""
        with self._changed:
            for item in self.items:
                item.state = "waiting" if item.state == "later" else item.state
        self.run_waiting()

    def run_waiting(self) -> None:
        """Continue with the unfinished documents that do not wait until the machine is idle."""
        with self._changed:
            self.running, self.why = self._is_pending, ""
            self._runs += 1
            self._resumed_at, self._bytes_before = time.monotonic(), self._bytes("done")
            self._notify()
            if self._open and not self._threads:
                self._start()

    def retry(self) -> None:
        """Reset failed documents and continue."""
        with self._changed:
            for item in self.items:
                if item.state == "failed":
                    item.reset()
        self.resume_all()

    def pause(self, why: str = "") -> None:
        """Stop. Documents in progress start again after ``resume_all``."""
        with self._changed:
            self.running, self.why, self.stopped_at = False, why, time.monotonic()
            streams = list(self._streams)
            self._notify()
        for stream in streams:
            stream.cancel()

    def leave_out(self, documents: Collection[str]) -> None:
        """Stop unfinished ones of these documents (ids), because they are deleted, and wait until they have ended."""
        with self._changed:
            self.items = [i for i in self.items if i.state in FINISHED or i.job.source not in documents]
            streams = [stream for stream, item in self._streams.items() if item.job.source in documents]
            self.running = self.running and self._is_pending
            self._notify()
        for stream in streams:
            stream.cancel()
        with self._changed:
            self._changed.wait_for(lambda: not self._streams.keys() & streams)

    def forget(self) -> None:
        """Stop and drop the list of documents. Results stay in the store."""
        self.pause()
        with self._changed:
            self.items, self.columns, self.kept = [], (), ""
            self._notify()

    def rows(self, store: Store) -> dict[str, AnswerRow]:
        """Returns the table's rows of the documents that have ended, by path, with the values that a person
        corrected.
        """
        from localctx.batch.table.corrections import all_corrections
        from localctx.batch.table.table_file import AnswerTable

        rows = AnswerTable(self.columns, lambda: all_corrections(store))
        for item in self.items:
            if item.entry:
                rows.write(item.entry)
            elif item.state == "failed":
                rows.fail(item.job, item.detail)
        return {row.path: row for row in rows.in_order(item.job.path for item in self.items)}

    def close(self) -> None:
        """Stop and wait for the threads to end."""
        self._open = False
        self.pause()
        for thread in self._threads:
            thread.join()

    @property
    def paused(self) -> bool:
        """True if the batch is stopped although documents were to run."""
        return not self.running and self._is_pending

    @property
    def _is_pending(self) -> bool:
        return any(item.state in PENDING for item in self.items)

    @property
    def seconds_left(self) -> float | None:
        """The estimated number of seconds left, or None while it cannot be estimated.

        It is estimated from the bytes done since the batch was started or resumed; running documents count as half
        done. It is None while the batch is paused, and before its first document is done.
        """
        done, half = self._bytes("done") - self._bytes_before, self._bytes("running") / 2
        if not self.running or not done:
            return None
        rest = half + self._bytes("waiting", "queued", "later")
        return (time.monotonic() - self._resumed_at) / (done + half) * rest

    def _bytes(self, *states: str) -> int:
        return sum(max(1, item.job.nbytes) for item in self.items if item.state in states)

    def _notify(self) -> None:
        self.version += 1
        self._changed.notify_all()

    def _start(self) -> None:
        self._threads = [threading.Thread(target=self._process, daemon=True) for _ in range(self._max_parallel)]
        for thread in self._threads:
            thread.start()

    def _process(self) -> None:
        """Run waiting items one by one until the window closes."""
        while item := self._take():
            run = self._runs
            try:
                self._summarize(item)
            except Cancelled:
                item.set_state("waiting")
            except Exception as e:
                self._fail(item, e, run)
            with self._changed:
                self.running = self.running and self._is_pending
                self._notify()

    def _take(self) -> BatchItem | None:
        def first() -> BatchItem | None:
            return next((item for item in self.items if item.state == "waiting"), None) if self.running else None

        with self._changed:
            self._changed.wait_for(lambda: first() or not self._open)
            if item := first() if self._open else None:
                item.state = "queued"
                self._notify()
            return item

    def _fail(self, item: BatchItem, e: Exception, run: int) -> None:
        """Record an error: a document's own error marks it failed, one that would hit others too pauses the batch."""
        from localctx.batch.run_batch import DOCUMENT_ERRORS

        if isinstance(e, UserError) and not isinstance(e, DOCUMENT_ERRORS):
            item.set_state("waiting")
            if run == self._runs:
                self.pause(error_text(e))
        else:
            item.set_state("failed", error_text(e))

    def _summarize(self, item: BatchItem) -> None:
        """Summarize the document or answer the questions. The result is also stored."""
        from localctx.batch.run_batch import Batch

        task = self.task

        def summarize(session: "Session") -> Generator[Any, Any, None]:
            session.change(task.adapted(session.settings))
            with session.workflows.summaries() as summarizing:
                item.outcome = yield from Batch(summarizing, task, ()).run(item.job)

        item.written = 0
        self._run(item, summarize)
        assert item.outcome, "a job that ends without error has an outcome"
        item.set_state(item.outcome.status, item.outcome.why)

    def _run(self, item: BatchItem, job: SessionJob) -> None:
        """Run a job and update the item with its events. Raises the job's error, Cancelled."""
        with self._changed:
            if not self.running or not any(item is other for other in self.items):  # paused, or left out
                raise Cancelled
            stream = self._worker.submit(job, background=True)
            self._streams[stream] = item
        try:
            for event in stream:
                if stream.cancelled.is_set() and isinstance(event, Queued) and event.position:
                    raise Cancelled  # a cancelled job ends by itself only once it is admitted
                before = item.state, item.detail
                item.handle(event)
                self.version += (item.state, item.detail) != before
        finally:
            with self._changed:
                del self._streams[stream]
                self._changed.notify_all()
