"""Runs a batch's task on documents, writes and stores the results, and skips documents that have a result."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from localctx.batch.jobs import DocumentJob, IgnoredFile
from localctx.batch.outputs import Output, ResultEntry
from localctx.budget import measure_process
from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.events import Event
from localctx.errors import DocumentError, OutOfKVMemory, TooLong
from localctx.store.documents import StoredDocument
from localctx.store.store import Store, store_errors
from localctx.workflows.read_sources import read_sources
from localctx.workflows.summarize.summarize import SummarizeWorkflow
from localctx.workflows.summary_method import SummaryMethod
from localctx.workflows.summary_task import SummaryTask

Value = TypeVar("Value")

DOCUMENT_ERRORS = (DocumentError, TooLong, OutOfKVMemory)  # errors that concern one document only


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job. ``status`` is ``done``, ``skipped`` (done by an earlier run) or ``failed``. ``why`` is the
    reason for a failure, and ``entry`` is the result.

    ``retry`` is True if the job failed but may succeed once other running jobs have ended.
    """

    job: DocumentJob
    status: str
    why: str = ""
    entry: ResultEntry = field(default_factory=dict)
    seconds: float = 0.0
    retry: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return what ``--json`` prints for one document. A document without a result has only its path, status and
        reason.
        """
        return {"path": self.job.path, **self.entry, "status": self.status, "why": self.why}


JobEvents = Generator[tuple[DocumentJob | None, Event | Outcome], None, None]
"""Yields events and outcomes with their job, or with None for events of the whole batch."""


class Batch:
    """Runs ``task`` on documents, either one job after another, or several jobs concurrently as coroutines.

    A result is stored together with its document, then written to all ``outputs``. Later runs and other outputs take it
    from the store, unless ``force`` is True. If ``persist`` is True, KV pages are stored too. ``summarize`` replaces
    ``SummarizeWorkflow.summarize``. Batches in several threads share their outputs through a ``lock``.
    """

    def __init__(
        self,
        summarizing: SummarizeWorkflow,
        task: SummaryTask,
        outputs: Sequence[Output],
        force: bool = False,
        persist: bool = False,
        summarize: Callable[[StoredDocument, SummaryTask, bool], EngineCoroutine[dict[str, Any]]] | None = None,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._summarizing, self._task, self._outputs = summarizing, task, outputs
        self._force, self._persist, self._summarize = force, persist, summarize or summarizing.summarize
        self._lock = lock or nullcontext()
        self._running = set[str]()

    def run(self, job: DocumentJob) -> EngineCoroutine[Outcome]:
        """Run a job. An error that concerns only this job's document becomes a failed outcome. Raises Cancelled,
        StoreError, ModelError.
        """
        start = time.perf_counter()
        self._summarizing.runtime.check_cancelled()
        try:
            document = self._read(job)
            if document[0].id in self._running:  # the same text under another name
                return Outcome(job, "failed", f"{job.source} is running under another name", retry=True)
            stored = None if self._force else self._stored_result(document)
            result = stored or (yield from self._compute(document))
        except DOCUMENT_ERRORS as e:
            spent = time.perf_counter() - start
            return Outcome(job, "failed", str(e), seconds=spent, retry=isinstance(e, OutOfKVMemory))
        named = {"document": document[0].id, "name": document[0].name, "path": job.path}
        entry = {**named, "status": "done", "recipe": self._recipe, **_named_after(document, result)}
        status, why = "skipped" if stored else "done", ""
        if not stored:
            self._store(document, result)  # first, so that after a kill it is only written and not computed again
        try:
            self._write(entry)
        except BrokenPipeError:  # stdout was closed
            raise
        except OSError as e:
            status, why = "failed", f"its result cannot be written ({e}); free some space, and run this again"
        return Outcome(job, status, why, entry, time.perf_counter() - start)

    def _compute(self, document: StoredDocument) -> EngineCoroutine[dict[str, Any]]:
        self._running.add(document[0].id)
        if self._force:
            recipes = self._task.recipes(self._summarizing.runtime.settings)
            self._read_store(lambda store: store.results.remove(document[0].id, recipes))
        try:
            return (yield from self._summarize(document, self._task, self._persist))
        finally:
            self._running.remove(document[0].id)

    @cached_property
    def _recipe(self) -> str:
        return self._task.recipe(self._summarizing.runtime.settings)

    def _read(self, job: DocumentJob) -> StoredDocument:
        return read_sources(self._summarizing.runtime, [job.source])[0]

    def _stored_result(self, document: StoredDocument) -> dict[str, Any] | None:
        return self._read_store(lambda store: store.results.get(document[0].id, self._recipe))

    def _read_store(self, read: Callable[[Store], Value]) -> Value | None:
        return self._summarizing.runtime.read_store(read)

    def _write(self, entry: ResultEntry) -> None:
        with self._lock:
            for output in self._outputs:
                if self._force or not output.has(entry):
                    output.write(entry)

    def _store(self, document: StoredDocument, result: dict[str, Any]) -> None:
        store = self._summarizing.runtime.store
        row, text, spans = document
        with store_errors(store.home), store.db.atomic():
            store.documents.add(row, text, spans)
            store.results.put(row.id, self._recipe, result)
            store.results.remove_parts(row.id, self._recipe)


def _named_after(document: StoredDocument, result: Any) -> Any:
    """Returns a stored result with citations that name this document, instead of another file with the same text."""
    if isinstance(result, list):
        return [_named_after(document, part) for part in result]
    if not isinstance(result, dict):
        return result
    name = {"name": document.name} if result.get("document") == document.id and "name" in result else {}
    return {key: _named_after(document, value) for key, value in result.items()} | name


@dataclass
class Report:
    """The report on a batch: the outcomes of its jobs, the ``method`` of its summaries, and the ignored files."""

    task: SummaryTask
    method: SummaryMethod
    ignored_files: list[IgnoredFile] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    stopped: bool = False
    kv_peak: int = 0  # bytes of KV on the device at once
    started: float = field(default_factory=time.perf_counter)

    def count(self, status: str) -> int:
        """Returns the number of documents with this ``status``: done, skipped or failed."""
        return sum(outcome.status == status for outcome in self.outcomes)

    def in_order(self, jobs: Sequence[DocumentJob]) -> list[Outcome]:
        """Returns the outcomes of the ended jobs, in the order of ``jobs``."""
        ended = {outcome.job: outcome for outcome in self.outcomes}
        return [ended[job] for job in jobs if job in ended]

    @property
    def tokens(self) -> int:
        """The number of tokens that were computed: prefilled (without reused ones) and generated."""
        done = (o.entry["tokens"] for o in self.outcomes if o.status == "done")
        return sum(t["prefilled"] + t["generated"] for t in done)

    @property
    def per_second(self) -> float:
        """The number of tokens that were computed per second."""
        return round(self.tokens / self.seconds, 1)

    @property
    def seconds(self) -> float:
        """The number of seconds since the batch started."""
        return round(time.perf_counter() - self.started, 3)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON, without the results of the documents."""
        failed = [{"path": o.job.path, "why": o.why} for o in self.outcomes if o.status == "failed"]
        return {
            "task": self.task.to_json(),
            "summaries": {"method": self.method.name, "why": self.method.why},
            "done": self.count("done"),
            "skipped": self.count("skipped"),
            "failed": failed,
            "passed_over": [vars(file) for file in self.ignored_files],
            "tokens": self.tokens,
            "tokens_per_second": self.per_second,
            "seconds": self.seconds,
            "memory": {"kv_peak_bytes": self.kv_peak, "peak_bytes": measure_process().peak},
            "stopped": self.stopped,
        }
