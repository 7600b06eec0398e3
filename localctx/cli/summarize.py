"""``summarize``: summarizes many documents, or asks them questions. Reuses results of earlier runs."""

import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.common import (
    answer_options,
    as_json_option,
    model_options,
    ocr_option,
    quiet_option,
    settings_from,
)
from localctx.cli.library.library import SOME_FAILED
from localctx.cli.printing import print_error, print_json_text, print_text, printable_line
from localctx.cli.sections import SectionedCommand, option, setting_option
from localctx.cli.summarize_remote import refuse_local_flags, remote_batch, server_options
from localctx.errors import INTERRUPTED, Cancelled, DocumentError, UsageError, UserError
from localctx.file_names import stored_path

if TYPE_CHECKING:
    from localctx.batch.jobs import DocumentJob
    from localctx.batch.outputs import Output
    from localctx.batch.run_batch import Batch, JobEvents, Outcome, Report
    from localctx.cli.progress import BatchProgress
    from localctx.session import Session
    from localctx.settings import Settings
    from localctx.workflows.summary_task import SummaryTask


SUMMARY_FLAGS = ("length", "style", "language")  # not for answers


@click.command(cls=SectionedCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("-o", "--out", type=click.Path(path_type=Path), metavar="FOLDER", help="A Markdown file per document.")
@option("--jsonl", metavar="FILE", help="A line of JSON per document, added to FILE, or -.")
@click.option("--question", "questions", multiple=True, metavar="Q", help="Ask this instead; may be repeated.")
@click.option("--length", metavar="L", help="short, medium, long, or a number of words (medium).")
@option("--style", metavar="S", help="prose, bullets, simple (prose).", section="Summaries")
@option("--language", metavar="L", help="The language to write in, as German.", section="Summaries")
@setting_option("summaries")
@option("--refine", is_flag=True, help="Refine one summary from section to section.", section="Summaries")
@option(
    "--template",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A template for Markdown files, with $summary.",
    section="Summaries",
)
@option("--force", is_flag=True, help="Compute results again that exist already.", section="Summaries")
@option("--ray", "workers", flag_value="local", help="Workers on this machine, through Ray.", section="Other machines")
@option(
    "--workers", metavar="ADDRESS", help="Workers of a Ray cluster: auto, ray://HOST:10001.", section="Other machines"
)
@option(
    "--ray-cpus",
    type=click.IntRange(1),
    metavar="N",
    help="Cores of each worker (--threads, or 4).",
    section="Other machines",
)
@option(
    "--ray-home",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="A data folder that all workers share.",
    section="Other machines",
)
@option("--keep-pages", is_flag=True, help="Store pages of documents read in full.", section="Memory")
@server_options
@answer_options
@model_options
@ocr_option
@as_json_option
@quiet_option
def summarize(
    paths: tuple[str, ...],
    out: Path | None,
    jsonl: str | None,
    template: Path | None,
    force: bool,
    workers: str | None,
    ray_cpus: int | None,
    ray_home: Path | None,
    keep_pages: bool,
    server: str | None,
    server_model: str | None,
    together: int | None,
    as_json: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Summarize the documents in PATHs: files, folders with all below, patterns; - is a list of them on stdin.

    Documents that are done are skipped when the command is run again, however it ended. A document that does not fit
    the model's window is summarized by sections. Exit code 3 if some documents failed; the others are done.

    \b
    localctx summarize reports/ -o summaries/
    localctx summarize "*.pdf" --jsonl answers.jsonl --question "Who signed it?" --question "When?"
    find . -name "*.md" -mtime -1 | localctx summarize - -o summaries/ --length short
    localctx summarize reports/ -o summaries/ --workers ray://head:10001
    localctx summarize reports/ -o summaries/ --server http://127.0.0.1:8000 --together 16
    """
    from localctx.batch.jobs import IgnoredFile, plan_jobs
    from localctx.batch.run_batch import Batch, Report
    from localctx.batch.side_by_side import MAX_PARALLEL, run_side_by_side
    from localctx.cli.progress import BatchProgress
    from localctx.cli.terminal import Terminal, cancel_on_interrupt, print_json
    from localctx.session import Session

    task, remote = _task(flags), remote_batch(server, server_model, together)
    if remote:
        refuse_local_flags({**flags, "keep_pages": keep_pages or None, "workers": workers})
    if as_json and jsonl == "-":
        raise UsageError("--json and --jsonl - would both be on stdout", "give one of them")
    settings, terminal = task.adapted(settings_from(flags)), Terminal(as_json, quiet)
    report = Report(task, method=task.method(replace(settings, model="a server's") if remote else settings))
    if report.method.extracts:
        terminal.say(f"a summary is made of sentences of the document: {report.method.why}")
    with Session(settings, terminal.show) as session, cancel_on_interrupt(session.cancel), terminal.cleared():
        outputs = _outputs(session, out, jsonl, template, as_json)
        ignore = lambda path, why: report.ignored_files.append(IgnoredFile(stored_path(path), why))  # noqa: E731
        is_output = lambda path: any(output.is_output(path) for output in outputs)  # noqa: E731
        jobs = plan_jobs(paths, sys.stdin.buffer.read, ignore, is_output)
        if not jobs:
            raise DocumentError(f"no document in {', '.join(paths)}", "name files, or folders that have some")
        with session.workflows.summaries() as summarizing, closing(BatchProgress(terminal, jobs)) as progress:
            make_batch = partial(Batch, task=task, outputs=outputs, force=force, persist=keep_pages)
            if remote:
                events: JobEvents = remote.run(settings, jobs, lambda s, lock: make_batch(s, lock=lock))
            elif workers:
                events = _run_on_ray(settings, workers, ray_cpus, ray_home, partial(make_batch, summarizing), jobs)
            else:
                start, limit = make_batch(summarizing).run, together or MAX_PARALLEL
                events = run_side_by_side(start, jobs, session.forward_each, session.runtime.cancelled, limit)
            error = _collect(events, session, report, progress)
    _print_totals(report, terminal, len(jobs))
    if as_json:
        print_json({"documents": [o.to_json() for o in report.in_order(jobs)], "report": report.to_json()})
    _exit(report, error)


def _task(flags: dict[str, Any]) -> "SummaryTask":
    """Returns the task that the flags describe, and removes its flags from ``flags``. Raises UsageError."""
    from localctx.workflows.summary_task import SummaryTask

    options = {name: value for name in SUMMARY_FLAGS if (value := flags.pop(name)) is not None}
    questions, refine = flags.pop("questions"), flags.pop("refine")
    if questions and (options or refine):
        raise UsageError("--length, --style, --language and --refine are for summaries", "leave them out")
    if not questions and flags["max_tokens"] is not None:
        raise UsageError("--max-tokens is for answers", "set the length of summaries with --length")
    return SummaryTask(**options, refine=refine, questions=questions)


def _outputs(
    session: "Session", out: Path | None, jsonl: str | None, template: Path | None, as_json: bool
) -> "list[Output]":
    """Returns the outputs that flags name, by default stdout."""
    from localctx.batch.markdown import SummaryTemplate
    from localctx.batch.outputs import JsonLines, MarkdownFolder, TextStream, json_line

    markdown, outputs = SummaryTemplate(template), list["Output"]()
    if out:
        outputs.append(MarkdownFolder(out, markdown, lambda: session.store))
    if jsonl == "-":
        outputs.append(TextStream(json_line, _print_json_line))
    elif jsonl:
        outputs.append(JsonLines(Path(jsonl)))
    elif not out and not as_json:
        outputs.append(TextStream(markdown.render, _print))
    return outputs


def _print(text: str) -> None:
    from localctx.cli.terminal import without_bars

    with without_bars():
        print_text(text, end="")


def _print_json_line(text: str) -> None:
    from localctx.cli.terminal import without_bars

    with without_bars():
        print_json_text(text)


def _run_on_ray(
    settings: "Settings",
    workers: str,
    cpus: int | None,
    home: Path | None,
    make_batch: "Callable[..., Batch]",
    jobs: "list[DocumentJob]",
) -> "JobEvents":
    from localctx.batch.ray_cluster import RayCluster
    from localctx.batch.ray_generator import RayGenerator

    generator = RayGenerator(RayCluster(settings, workers, cpus or 0, home, len(jobs)))
    return generator.run(make_batch(summarize=generator.summarize), jobs)


def _collect(events: "JobEvents", session: "Session", report: "Report", progress: "BatchProgress") -> UserError | None:
    """Run the batch, show its progress, and add its outcomes to the report. Returns the error that
    stopped it, or None.
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


def _print_totals(report: "Report", terminal: Any, jobs: int) -> None:
    from localctx.batch.jobs import told

    for line in told(report.ignored_files):
        terminal.say(printable_line(line))
    done, skipped, failed = (report.count(status) for status in ("done", "skipped", "failed"))
    speed = f", {report.per_second:,.1f} tokens/s" if done else ""
    terminal.say(f"{done:,} done, {skipped:,} skipped, {failed:,} failed, of {jobs:,}{speed}, {report.seconds:,.0f} s")


def _exit(report: "Report", error: UserError | None) -> None:
    if report.stopped:
        print_error("localctx: stopped; run it again to continue")
        sys.exit(INTERRUPTED)
    if error:
        raise error
    if report.count("failed"):
        sys.exit(SOME_FAILED)
