"""Batches: the window's batch of documents. It runs in the server, whether or not a page looks at it."""

import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from localctx.batch.jobs import DocumentJob, shown
from localctx.engine.events import Progress, Token
from localctx.errors import Cancelled, UsageError, UserError
from localctx.serving.worker import EngineWorker, EventStream, Queued
from localctx.serving.worker import SessionJob as Work
from localctx.ui.job_events import in_words
from localctx.workflows.summary_task import SummaryTask

if TYPE_CHECKING:  # torch, and seconds
    from localctx.batch.run_batch import Outcome
    from localctx.session import Session

OVER = ("done", "skipped", "failed")
_ON_ITS_WAY = ("reading", "in line", "in work")


@dataclass
class BatchItem:
    """A document of a batch, under the ``name`` it is shown by.

    ``state`` is waiting, reading, ready (its text is known by the id ``document``), in line, in work, or one of OVER;
    ``told`` how far that is, or why it failed.
    """

    job: DocumentJob
    name: str
    document: str = ""
    state: str = "waiting"
    told: str = ""
    written: int = 0
    outcome: "Outcome | None" = None

    @property
    def entry(self) -> dict[str, Any]:
        """What was made of it; empty where nothing was."""
        return dict(self.outcome.entry) if self.outcome else {}

    @property
    def tokens(self) -> int:
        """Tokens read and written for it."""
        spent = self.entry.get("tokens", {})
        return spent.get("prompt", 0) + spent.get("generated", 0)

    @property
    def seconds(self) -> float:
        """What it took, since it was begun."""
        return self.outcome.seconds if self.outcome else 0.0

    def hear(self, event: Any) -> None:
        """Take in what happens to it."""
        if self.state == "in line" and not (isinstance(event, Queued) and event.place):
            self.state = "in work"
        match event:
            case Progress():
                figures = f": {event.done:,} / {event.total:,} {event.unit}" if event.total else " ..."
                self.told = event.phase + figures
            case Token():
                self.written += 1
                self.told = f"{self.written:,} tokens written"

    def end(self, state: str, told: str = "") -> None:
        """How it is now, and why; the place an upload lies at says nothing to who dropped it."""
        self.state, self.told = state, told.replace(self.job.source, self.name)

    def again(self) -> None:
        """As if nothing had been tried."""
        self.document, self.state, self.told, self.written, self.outcome = "", "waiting", "", 0, None


class BatchRuns:
    """One batch at a time. Files are read at the ``shelver``, one after the other; each document is then a patient turn
    of its own at the ``desk``, where up to ``together`` are served, and those who ask go before them.
    """

    def __init__(self, desk: EngineWorker, shelver: EngineWorker, together: int) -> None:
        self._desk, self._shelver, self._together = desk, shelver, together
        self._changed = threading.Condition()
        self._threads = list[threading.Thread]()
        self._turns = set[EventStream]()
        self._open = True
        self._runs = 0  # times that it was begun or resumed
        self._since, self._before = 0.0, 0  # when it last was, and the bytes that were done then
        self.items: Sequence[BatchItem] = []
        self.task = SummaryTask()
        self.running = False
        self.why = ""  # what stopped it, if not the user
        self.version = 0  # rises with every change

    def begin(self, items: Sequence[BatchItem], task: SummaryTask) -> None:
        """Do ``task`` on these, in place of those before. Raises UsageError while a batch runs."""
        with self._changed:
            if self.running:
                raise UsageError("a batch is on its way", "pause it first, or wait for its end")
            self.items, self.task = list(items), task
        self.resume()

    def resume(self) -> None:
        """Go on with what is not done."""
        with self._changed:
            self.running, self.why = any(item.state not in OVER for item in self.items), ""
            self._runs += 1
            self._since, self._before = time.monotonic(), self._bytes("done")
            self._tell()
            if self._open and not self._threads:
                self._start()

    def retry(self) -> None:
        """Do again what failed, and go on."""
        with self._changed:
            for item in self.items:
                if item.state == "failed":
                    item.again()
        self.resume()

    def pause(self, why: str = "") -> None:
        """Stop; what is in work is done again later."""
        with self._changed:
            self.running, self.why = False, why
            turns = list(self._turns)
            self._tell()
        for turn in turns:
            turn.cancel()

    def forget(self) -> None:
        """Stop, and have no batch. Results stay where they are kept."""
        self.pause()
        with self._changed:
            self.items = []
            self._tell()

    def close(self) -> None:
        """Stop, and end."""
        self._open = False
        self.pause()
        for thread in self._threads:
            thread.join()

    @property
    def busy(self) -> bool:
        """Whether something happens: also what stops is on its way."""
        return self.running or any(item.state in _ON_ITS_WAY for item in self.items)

    @property
    def seconds_left(self) -> float | None:
        """By what was done since it was begun or resumed, and the bytes of the rest; None before anything was.

        What is in work is taken for half done.
        """
        done, half = self._bytes("done") - self._before, self._bytes("in work") / 2
        if not self.running or not done:
            return None
        rest = half + self._bytes("waiting", "reading", "ready", "in line")
        return (time.monotonic() - self._since) / (done + half) * rest

    def _bytes(self, *states: str) -> int:
        return sum(max(1, item.job.nbytes) for item in self.items if item.state in states)

    def _tell(self) -> None:
        self.version += 1
        self._changed.notify_all()

    def _start(self) -> None:
        """A thread that has files read, and one for each document in work."""
        roles = [("waiting", "reading", self._read), *[("ready", "in line", self._work)] * self._together]
        self._threads = [threading.Thread(target=self._serve, args=role, daemon=True) for role in roles]
        for thread in self._threads:
            thread.start()

    def _serve(self, state: str, meanwhile: str, do: Callable[[BatchItem], None]) -> None:
        """Take items that are in this ``state`` on, until the end."""
        while item := self._take(state, meanwhile):
            run = self._runs
            try:
                do(item)
            except Cancelled:
                item.end(state)
            except Exception as e:
                self._failed(item, e, state, run)
            with self._changed:
                self.running = self.running and any(other.state not in OVER for other in self.items)
                self._tell()

    def _take(self, state: str, meanwhile: str) -> BatchItem | None:
        def first() -> BatchItem | None:
            return next((item for item in self.items if item.state == state), None) if self.running else None

        with self._changed:
            self._changed.wait_for(lambda: first() or not self._open)
            if item := first() if self._open else None:
                item.state = meanwhile
                self._tell()
            return item

    def _failed(self, item: BatchItem, e: Exception, state: str, run: int) -> None:
        """What is wrong with one document leaves the rest alone; what would be wrong with the next as well stops the
        run that it is of.
        """
        from localctx.batch.run_batch import DOCUMENT_ERRORS

        if isinstance(e, UserError) and not isinstance(e, DOCUMENT_ERRORS):
            item.end(state)
            if run == self._runs:
                self.pause(str(e))
        else:
            item.end("failed", in_words(e))

    def _read(self, item: BatchItem) -> None:
        """Read its file into the library, though its turn may be hours away: an upload is gone by then."""

        def read(session: "Session") -> Generator[Any, None, None]:
            item.document = session.workflows.store([item.job.source])[0]
            yield from ()

        if shown(item.job.path) == item.job.path:  # else who works on it says what is wrong with its name
            self._follow(item, self._shelver, read)
        item.end("ready")

    def _work(self, item: BatchItem) -> None:
        """Summarize it, or ask it; what was made is in the store by then."""
        from localctx.batch.run_batch import Batch

        task, job = self.task, replace(item.job, source=item.document or item.job.source)

        def work(session: "Session") -> Generator[Any, Any, None]:
            session.change(task.adapted(session.settings))
            with session.workflows.summaries() as summarizing:
                item.outcome = yield from Batch(summarizing, task, ()).work(job)

        item.written = 0
        self._follow(item, self._desk, work)
        assert item.outcome, "a turn that ends well has an outcome"
        item.end(item.outcome.status, item.outcome.why)

    def _follow(self, item: BatchItem, desk: EngineWorker, work: Work) -> None:
        """Let an item hear of its turn at a desk, to the end. Raises what the job raised, Cancelled."""
        with self._changed:
            if not self.running:
                raise Cancelled
            turn = desk.take_turn(work, patient=True)
            self._turns.add(turn)
        try:
            for event in turn:
                before = item.state, item.told
                item.hear(event)
                self.version += (item.state, item.told) != before
        finally:
            with self._changed:
                self._turns.discard(turn)
