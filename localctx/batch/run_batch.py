"""Running a batch: a job is skipped, done or has failed; what was done outlives the process that did it."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from localctx.batch.jobs import DocumentJob, shown
from localctx.batch.outputs import Output, ResultEntry
from localctx.budget import measure_process
from localctx.engine.coroutine import EngineCoroutine
from localctx.errors import DocumentError, NoRoom, TooLong
from localctx.store.documents import StoredDocument
from localctx.store.store import Store, store_errors
from localctx.workflows.read_sources import read_sources
from localctx.workflows.summarize import SummarizeWorkflow
from localctx.workflows.summary_task import SummaryTask

LookedUp = TypeVar("LookedUp")

DOCUMENT_ERRORS = (DocumentError, TooLong, NoRoom)  # what is wrong with one document alone


@dataclass(frozen=True)
class Outcome:
    """What became of a job: ``status`` is done, skipped (it was done before) or failed, and ``why``; its result.

    ``again``: it may be otherwise when others that are in work now have ended.
    """

    job: DocumentJob
    status: str
    why: str = ""
    entry: ResultEntry = field(default_factory=dict)
    seconds: float = 0.0
    again: bool = False

    def to_json(self) -> dict[str, Any]:
        """What ``--json`` prints of one document; of a failed one there is only where it is, and why."""
        return {"path": shown(self.job.path), **self.entry, "status": self.status, "why": self.why}


class Batch:
    """Does ``task`` on one job after another, or on several whose steps are run together.

    A result is written to all ``outputs`` and then entered in the store, document and all: from there a later run, and
    another output, has it without any computing. ``force`` does again what was done, ``keep`` keeps pages, ``of``
    stands for ``SummarizeWorkflow.of``. Several batches, in a thread each, share outputs by a ``lock`` on them.
    """

    def __init__(
        self,
        summarizing: SummarizeWorkflow,
        task: SummaryTask,
        outputs: Sequence[Output],
        force: bool = False,
        keep: bool = False,
        of: Callable[[StoredDocument, SummaryTask, bool], EngineCoroutine[dict[str, Any]]] | None = None,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._summarizing, self._task, self._outputs = summarizing, task, outputs
        self._force, self._keep, self._of = force, keep, of or summarizing.summarize
        self._lock = lock or nullcontext()
        self._in_work = set[str]()

    def work(self, job: DocumentJob) -> EngineCoroutine[Outcome]:
        """Do a job. Raises Cancelled, StoreError, ModelError; what is wrong with the document alone is its outcome."""
        start = time.perf_counter()
        self._summarizing.runtime.check_cancelled()
        try:
            held = self._read(job)
            if held[0].id in self._in_work:  # the same text under another name
                return Outcome(job, "failed", f"{job.source} is in work", again=True)
            kept = None if self._force else self._kept(held)
            result = kept or (yield from self._compute(held))
        except DOCUMENT_ERRORS as e:
            spent = time.perf_counter() - start
            return Outcome(job, "failed", str(e), seconds=spent, again=isinstance(e, NoRoom))
        named = {"document": held[0].id, "name": held[0].name, "path": job.path}
        entry = {**named, "status": "done", "recipe": self._recipe, **result}
        status, why = "skipped" if kept else "done", ""
        try:
            self._write(entry)
        except BrokenPipeError:  # who reads the screen has gone
            raise
        except OSError as e:
            status, why = "failed", f"its result cannot be written ({e}); free some space, and run this again"
        finally:
            if not kept:
                self._enter(held, result)
        return Outcome(job, status, why, entry, time.perf_counter() - start)

    def _compute(self, held: StoredDocument) -> EngineCoroutine[dict[str, Any]]:
        self._in_work.add(held[0].id)
        if self._force:
            self._look_up(lambda store: store.results.remove_parts(held[0].id, self._recipe))
        try:
            return (yield from self._of(held, self._task, self._keep))
        finally:
            self._in_work.remove(held[0].id)

    @cached_property
    def _recipe(self) -> str:
        return self._task.recipe(self._summarizing.runtime.settings)

    def _read(self, job: DocumentJob) -> StoredDocument:
        try:
            job.path.encode()
        except UnicodeEncodeError as e:
            raise DocumentError(f"{shown(job.path)} has a name that is not UTF-8", "rename it") from e
        return read_sources(self._summarizing.runtime, [job.source])[0]

    def _kept(self, held: StoredDocument) -> dict[str, Any] | None:
        return self._look_up(lambda store: store.results.get(held[0].id, self._recipe))

    def _look_up(self, look: Callable[[Store], LookedUp]) -> LookedUp | None:
        return self._summarizing.runtime.read_store(look)

    def _write(self, entry: ResultEntry) -> None:
        with self._lock:
            for output in self._outputs:
                if self._force or not output.has(entry):
                    output.write(entry)

    def _enter(self, held: StoredDocument, result: dict[str, Any]) -> None:
        store = self._summarizing.runtime.store
        row, text, spans = held
        with store_errors(store.home), store.db.atomic():
            store.documents.add(row, text, spans)
            store.results.put(row.id, self._recipe, result)
            store.results.remove_parts(row.id, self._recipe)


@dataclass
class Report:
    """What a batch came to. ``passed_over``: what folders hold that is no document."""

    task: SummaryTask
    passed_over: list[dict[str, str]] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    stopped: bool = False
    kv_peak: int = 0  # bytes of KV on the device at once
    started: float = field(default_factory=time.perf_counter)

    def count(self, status: str) -> int:
        """How many documents are done, skipped or failed."""
        return sum(outcome.status == status for outcome in self.outcomes)

    def in_order(self, jobs: Sequence[DocumentJob]) -> list[Outcome]:
        """What became of ``jobs`` that have ended, in their order."""
        ended = {outcome.job: outcome for outcome in self.outcomes}
        return [ended[job] for job in jobs if job in ended]

    @property
    def tokens(self) -> int:
        """Tokens computed: read and not reused, and generated."""
        done = (o.entry["tokens"] for o in self.outcomes if o.status == "done")
        return sum(t["prefilled"] + t["generated"] for t in done)

    @property
    def per_second(self) -> float:
        """Tokens computed per second."""
        return round(self.tokens / self.seconds, 1)

    @property
    def seconds(self) -> float:
        """Since the batch began."""
        return round(time.perf_counter() - self.started, 3)

    def to_json(self) -> dict[str, Any]:
        """The report, without the documents."""
        failed = [{"path": shown(o.job.path), "why": o.why} for o in self.outcomes if o.status == "failed"]
        return {
            "task": self.task.to_json(),
            "done": self.count("done"),
            "skipped": self.count("skipped"),
            "failed": failed,
            "passed_over": self.passed_over,
            "tokens": self.tokens,
            "tokens_per_second": self.per_second,
            "seconds": self.seconds,
            "memory": {"kv_peak_bytes": self.kv_peak, "peak_bytes": measure_process().peak},
            "stopped": self.stopped,
        }
