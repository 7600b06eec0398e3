"""Fills a table of answers: the local model answers the question of each column about each document."""

from collections.abc import Sequence

from localctx.batch.jobs import DocumentJob, plan_jobs
from localctx.batch.run_batch import Batch, Outcome
from localctx.batch.side_by_side import run_side_by_side
from localctx.batch.table.cells import AnswerRow
from localctx.batch.table.columns import TableColumn, check_columns
from localctx.batch.table.corrections import all_corrections
from localctx.batch.table.table_file import AnswerTable
from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.scheduler import ForwardFunction
from localctx.errors import DocumentError
from localctx.store.documents import DocumentRow
from localctx.workflows.summarize.summarize import SummarizeWorkflow
from localctx.workflows.summary_task import SummaryTask


def questions_of(columns: Sequence[TableColumn]) -> SummaryTask:
    """Returns the task that puts the questions of ``columns`` to a document. Raises UsageError."""
    return SummaryTask(questions=tuple(dict.fromkeys(column.question for column in check_columns(columns))))


def fill_table(
    summarizing: SummarizeWorkflow, compute: ForwardFunction, sources: Sequence[str], columns: Sequence[TableColumn]
) -> list[AnswerRow]:
    """Put the questions of the columns to the documents in ``sources`` (files, folders and patterns). Returns a row for
    each document.

    A file that cannot be read has a row without cells. Raises UserError.
    """
    jobs, store = plan_jobs(sources, lambda: b"", lambda *ignored: None), summarizing.runtime.store
    if not jobs:
        raise DocumentError(f"no document in {', '.join(sources)}", "name files, or folders that have some")
    rows = AnswerTable(columns, lambda: all_corrections(store))
    batch = Batch(summarizing, questions_of(columns), [rows])
    events = run_side_by_side(batch.run, jobs, compute, summarizing.runtime.cancelled)
    rows.note_failures(event for _, event in events if isinstance(event, Outcome))
    return rows.in_order(job.path for job in jobs)


def fill_stored(
    summarizing: SummarizeWorkflow, documents: Sequence[DocumentRow], columns: Sequence[TableColumn]
) -> EngineCoroutine[list[AnswerRow]]:
    """Put the questions of the columns to stored documents, one document after another. Returns a row for each
    document.

    Answers of earlier runs are not generated again. Raises Cancelled, StoreError, ModelError.
    """
    rows = AnswerTable(columns, lambda: all_corrections(summarizing.runtime.store))
    batch, jobs = Batch(summarizing, questions_of(columns), [rows]), [DocumentJob.stored(row) for row in documents]
    for job in jobs:
        rows.note_failures([(yield from batch.run(job))])
    return rows.in_order(job.path for job in jobs)
