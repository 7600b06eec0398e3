"""Defines what ``summarize`` and ``table`` share: the flags of a batch, its run with progress, and its exit code."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.batch.remote_batch import RemoteBatch, refuse_local_flags, remote_batch, server_options
from localctx.cli.library.library import SOME_FAILED
from localctx.cli.printing import print_error, printable_line
from localctx.cli.sections import option
from localctx.errors import INTERRUPTED, Cancelled, DocumentError, UserError
from localctx.file_names import stored_path

if TYPE_CHECKING:
    from localctx.batch.jobs import DocumentJob
    from localctx.batch.outputs import Output
    from localctx.batch.run_batch import Batch, JobEvents, Outcome, Report
    from localctx.cli.progress import BatchProgress
    from localctx.cli.terminal import Terminal
    from localctx.session import Session
    from localctx.settings import Settings
    from localctx.workflows.summary_method import SummaryMethod
    from localctx.workflows.summary_task import SummaryTask


@dataclass(frozen=True)
class BatchOptions:
    """The values of the flags that ``batch_options`` adds to a command."""

    force: bool
    workers: str | None
    ray_cpus: int | None
    ray_home: Path | None
    keep_pages: bool
    server: str | None
    server_model: str | None
    together: int | None

    @classmethod
    def take(cls, flags: dict[str, Any]) -> "BatchOptions":
        """Returns the batch options in ``flags``, and removes them from ``flags``. Raises UsageError for flags that
        cannot be combined.
        """
        options = cls(**{field.name: flags.pop(field.name) for field in fields(cls)})
        if options.server:
            refuse_local_flags({**flags, "keep_pages": options.keep_pages or None, "workers": options.workers})
        return options


def batch_options(command: Callable) -> Callable:
    """Decorate a command with the flags of a batch. They choose the machines that compute it, and whether results that
    exist are computed again.
    """
    elsewhere: dict[str, Any] = {"section": "Other machines"}
    folder = click.Path(path_type=Path)
    for add in (
        server_options,
        option("--ray-home", type=folder, metavar="FOLDER", help="A data folder that all workers share.", **elsewhere),
        option(
            "--ray-cpus",
            type=click.IntRange(1),
            metavar="N",
            help="Cores of each worker (--threads, or 4).",
            **elsewhere,
        ),
        option("--workers", metavar="ADDRESS", help="Workers of a Ray cluster: auto, ray://HOST:10001.", **elsewhere),
        option("--ray", "workers", flag_value="local", help="Workers on this machine, through Ray.", **elsewhere),
        option("--keep-pages", is_flag=True, help="Store pages of documents read in full.", section="Memory"),
        option("--force", is_flag=True, help="Compute results again that exist already.", section="Reading"),
    ):
        command = add(command)
    return command


@dataclass(frozen=True)
class BatchEnd:
    """The result of running a batch: its ``jobs``, its ``report``, and the ``error`` that ended it early (None: no
    error).
    """

    jobs: "Sequence[DocumentJob]"
    report: "Report"
    error: UserError | None

    def exit(self) -> None:
        """End the command with an exit code, if the batch did not end well: 130 if it was stopped, 1 or 2 after an
        ``error``, and 3 if some documents failed.
        """
        if self.report.stopped:
            print_error("localctx: stopped; run it again to continue")
            sys.exit(INTERRUPTED)
        if self.error:
            raise self.error
        if self.report.count("failed"):
            sys.exit(SOME_FAILED)


@dataclass(frozen=True)
class OpenBatch:
    """A batch with an open ``session``. It can do ``task`` for several sets of documents, one set after another
    (rounds).

    ``remote`` is the server that computes, or None for this machine.
    """

    session: "Session"
    task: "SummaryTask"
    method: "SummaryMethod"
    outputs: "Sequence[Output]"
    options: BatchOptions
    remote: "RemoteBatch | None"
    terminal: "Terminal"

    def plan(self, paths: Sequence[str], report: "Report") -> "list[DocumentJob]":
        """Returns the jobs for the documents in ``paths``, and adds the ignored files to the report. Raises
        UserError.
        """
        from localctx.batch.jobs import IgnoredFile, plan_jobs

        ignore = lambda path, why: report.ignored_files.append(IgnoredFile(stored_path(path), why))  # noqa: E731
        is_output = lambda path: any(output.is_output(path) for output in self.outputs)  # noqa: E731
        jobs = plan_jobs(paths, sys.stdin.buffer.read, ignore, is_output)
        if not jobs:
            raise DocumentError(f"no document in {', '.join(paths)}", "name files, or folders that have some")
        return jobs

    def report(self) -> "Report":
        """Returns a new report, for a round that begins now."""
        from localctx.batch.run_batch import Report

        return Report(self.task, self.method)

    def run(self, jobs: "list[DocumentJob]", report: "Report", force: bool) -> BatchEnd:
        """Do the task for the documents of ``jobs``, write the outputs, show the progress, and fill ``report``. If
        ``force``, results are computed again. An error that concerns all documents is not raised, but is part of the
        result.
        """
        from localctx.cli.progress import BatchProgress

        with closing(BatchProgress(self.terminal, jobs)) as progress:
            error = _collect(self._events(jobs, force), self.session, report, progress)
        return BatchEnd(jobs, report, error)

    def _events(self, jobs: "list[DocumentJob]", force: bool) -> "JobEvents":
        """Run the jobs on this computer's model, on a server, or on workers of Ray."""
        from localctx.batch.run_batch import Batch
        from localctx.batch.side_by_side import MAX_PARALLEL, run_side_by_side

        session, options, settings = self.session, self.options, self.session.settings
        make_batch = partial(Batch, task=self.task, outputs=self.outputs, force=force, persist=options.keep_pages)
        with session.workflows.summaries() as summarizing:
            if self.remote:
                yield from self.remote.run(settings, jobs, lambda s, lock: make_batch(s, lock=lock))
            elif options.workers:
                yield from _run_on_ray(settings, options, partial(make_batch, summarizing), jobs)
            else:
                start, limit = make_batch(summarizing).run, options.together or MAX_PARALLEL
                yield from run_side_by_side(start, jobs, session.forward_each, session.runtime.cancelled, limit)


@contextmanager
def open_batch(
    task: "SummaryTask",
    settings: "Settings",
    make_outputs: "Callable[[Session], Sequence[Output]]",
    options: BatchOptions,
    terminal: "Terminal",
) -> Iterator[OpenBatch]:
    """Open a session for ``task``. Results are written to the outputs that ``make_outputs`` returns. Ctrl-C stops the
    session's work. Raises UserError.
    """
    from localctx.cli.terminal import cancel_on_interrupt
    from localctx.session import Session

    remote = remote_batch(options.server, options.server_model, options.together)
    method = task.method(replace(settings, model="a server's") if remote else settings)
    if method.extracts:
        terminal.say(f"a summary is made of sentences of the document: {method.why}")
    with Session(settings, terminal.show) as session, cancel_on_interrupt(session.cancel), terminal.cleared():
        yield OpenBatch(session, task, method, make_outputs(session), options, remote, terminal)


def run_batch(
    paths: Sequence[str],
    task: "SummaryTask",
    settings: "Settings",
    make_outputs: "Callable[[Session], Sequence[Output]]",
    options: BatchOptions,
    terminal: "Terminal",
    check_jobs: "Callable[[Sequence[DocumentJob]], object]" = lambda jobs: None,
) -> BatchEnd:
    """Do ``task`` for the documents in ``paths``, write results to the outputs that ``make_outputs`` returns, and show
    the progress.

    ``check_jobs`` is called with the documents before the work begins, and may raise an error. Raises UserError before
    the work begins. A later error is not raised, but is part of the result.
    """
    with open_batch(task, settings, make_outputs, options, terminal) as batch:
        report = batch.report()
        jobs = batch.plan(paths, report)
        check_jobs(jobs)
        end = batch.run(jobs, report, options.force)
    _print_totals(report, terminal, len(jobs))
    return end


def _run_on_ray(
    settings: "Settings", options: BatchOptions, make_batch: "Callable[..., Batch]", jobs: "list[DocumentJob]"
) -> "JobEvents":
    from localctx.batch.ray_cluster import RayCluster
    from localctx.batch.ray_generator import RayGenerator

    assert options.workers
    cluster = RayCluster(settings, options.workers, options.ray_cpus or 0, options.ray_home, len(jobs))
    generator = RayGenerator(cluster)
    return generator.run(make_batch(summarize=generator.summarize), jobs)


def _collect(events: "JobEvents", session: "Session", report: "Report", progress: "BatchProgress") -> UserError | None:
    """Run the batch, show its progress, and add its outcomes to the report. Returns the error that ended the batch
    early, or None.
    """
    from localctx.batch.run_batch import Outcome

    try:
        with closing(events):
            for job, event in events:
                report.kv_peak = max(report.kv_peak, session.in_use.kv.get("device", 0))
                if isinstance(event, Outcome):
                    report.outcomes.append(event)
                    progress.ended(_line(event, len(report.outcomes), progress.count), event)
                else:
                    progress.show(job, event)
    except (Cancelled, KeyboardInterrupt):
        report.stopped = True
    except UserError as e:  # concerns all documents
        return e
    return None


def _line(o: "Outcome", number: int, total: int) -> str:
    if o.status == "failed":
        return printable_line(o.why)
    text = f"[{number}/{total}] {o.job.source}: {o.status}"
    if o.status == "done":
        t = o.entry["tokens"]
        text += f", {t['prompt']:,} tokens read ({t['reused']:,} reused), {t['generated']:,} written, {o.seconds:.1f} s"
    return printable_line(text)


def _print_totals(report: "Report", terminal: "Terminal", jobs: int) -> None:
    from localctx.batch.jobs import told

    for line in told(report.ignored_files):
        terminal.say(printable_line(line))
    done, skipped, failed = (report.count(status) for status in ("done", "skipped", "failed"))
    speed = f", {report.per_second:,.1f} tokens/s" if done else ""
    terminal.say(f"{done:,} done, {skipped:,} skipped, {failed:,} failed, of {jobs:,}{speed}, {report.seconds:,.0f} s")
