"""``summarize``: a folder of documents, as many at once as memory holds; what is done is not done again."""

import sys
from collections.abc import Callable, Generator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.common import (
    CANCELLED,
    answer_options,
    as_json_option,
    model_options,
    ocr_option,
    plain,
    quiet_option,
    settings_of,
)
from localctx.cli.library import SOME_FAILED
from localctx.cli.summarize_remote import find_there, refuse_flags_elsewhere, server_options
from localctx.errors import Cancelled, DocumentError, UsageError, UserError

if TYPE_CHECKING:
    from localctx.batch.jobs import DocumentJob
    from localctx.batch.outputs import Output
    from localctx.batch.run_batch import Batch, Outcome, Report
    from localctx.cli.progress import BatchProgress
    from localctx.engine.events import Event
    from localctx.session import Session
    from localctx.settings import Settings
    from localctx.workflows.summary_task import SummaryTask

    Told = Generator[tuple[DocumentJob | None, Event | Outcome], None, None]

HOW = ("length", "style", "language")  # flags about summaries, not about answers


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("-o", "--out", type=click.Path(path_type=Path), metavar="FOLDER", help="A Markdown file per document.")
@click.option("--jsonl", metavar="FILE", help="A line of JSON per document, added to FILE; - is stdout.")
@click.option("--question", "questions", multiple=True, metavar="Q", help="Ask this of every document instead; again.")
@click.option("--length", metavar="L", help="short, medium, long, or a number of words (medium).")
@click.option("--style", metavar="S", help="prose, bullets, simple (prose).")
@click.option("--language", metavar="L", help="The language to write in, as German.")
@click.option("--refine", is_flag=True, help="Carry the summary through a long document, section by section.")
@click.option(
    "--template", type=click.Path(path_type=Path), metavar="FILE", help="What a Markdown file is like, with $summary."
)
@click.option("--force", is_flag=True, help="Do again what was done.")
@click.option("--ray", "workers", flag_value="local", help="Workers on this machine's GPUs or cores, through Ray.")
@click.option("--workers", metavar="ADDRESS", help="Workers of a Ray cluster: auto, ray://HOST:10001, local.")
@click.option("--ray-cpus", type=click.IntRange(1), metavar="N", help="Cores of each worker (--threads, or 4).")
@click.option(
    "--ray-home",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="The workers' data folder, where they share one (each its own).",
)
@click.option("--keep-pages", is_flag=True, help="Keep the pages of what is read whole, for questions later.")
@server_options
@as_json_option
@quiet_option
@answer_options
@model_options
@ocr_option
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

    What was done is skipped when the command is run again, however it ended. A document that does not fit the model's
    window is summarized by sections. Exit code 3 when some failed; the rest is done.

    \b
    localctx summarize reports/ -o summaries/
    localctx summarize "*.pdf" --jsonl answers.jsonl --question "Who signed it?" --question "When?"
    find . -name "*.md" -mtime -1 | localctx summarize - -o summaries/ --length short
    localctx summarize reports/ -o summaries/ --workers ray://head:10001
    localctx summarize reports/ -o summaries/ --server http://127.0.0.1:8000 --together 16
    """
    from localctx.batch.jobs import plan_jobs, shown
    from localctx.batch.run_batch import Batch, Report
    from localctx.batch.side_by_side import MOST, run_side_by_side
    from localctx.cli.progress import BatchProgress
    from localctx.cli.terminal import Terminal, print_json, stopping
    from localctx.session import Session

    task, there = _task(flags), find_there(server, server_model, together)
    if there:
        refuse_flags_elsewhere({**flags, "keep_pages": keep_pages or None, "workers": workers})
    if as_json and jsonl == "-":
        raise UsageError("--json and --jsonl - would both be on stdout", "give one of them")
    settings, terminal, report = task.adapted(settings_of(flags)), Terminal(as_json, quiet), Report(task)
    with Session(settings, terminal.show) as session, stopping(session.cancel), terminal.cleared():
        outputs = _outputs(session, out, jsonl, template, as_json)
        passed = lambda path, why: report.passed_over.append({"path": shown(path), "why": why})  # noqa: E731
        wrote = lambda path: any(output.wrote(path) for output in outputs)  # noqa: E731
        jobs = plan_jobs(paths, sys.stdin.buffer.read, passed, wrote)
        if not jobs:
            raise DocumentError(f"no document in {', '.join(paths)}", "name files, or folders that hold some")
        with session.workflows.summaries() as summarizing, closing(BatchProgress(terminal, jobs)) as board:
            make = partial(Batch, task=task, outputs=outputs, force=force, keep=keep_pages)
            if there:
                told: Told = there.work_off(settings, jobs, lambda s, lock: make(s, lock=lock))
            elif workers:
                told = _on_ray(settings, workers, ray_cpus, ray_home, partial(make, summarizing), jobs)
            else:
                work = make(summarizing).work
                told = run_side_by_side(work, jobs, session.forward_each, session.runtime.cancelled, together or MOST)
            wrong = _work_off(told, session, report, board)
    _tell(report, terminal, len(jobs))
    if as_json:
        print_json({"documents": [o.to_json() for o in report.in_order(jobs)], "report": report.to_json()})
    _leave(report, wrong)


def _task(flags: dict[str, Any]) -> "SummaryTask":
    """What is wanted; its flags are taken out of ``flags``. Raises UsageError."""
    from localctx.workflows.summary_task import SummaryTask

    said = {name: value for name in HOW if (value := flags.pop(name)) is not None}
    questions, refine = flags.pop("questions"), flags.pop("refine")
    if questions and (said or refine):
        raise UsageError("--length, --style, --language and --refine are for summaries", "leave them out")
    if not questions and flags["max_tokens"] is not None:
        raise UsageError("--max-tokens is for answers", "say how long summaries are with --length")
    return SummaryTask(**said, refine=refine, questions=questions)


def _outputs(
    session: "Session", out: Path | None, jsonl: str | None, template: Path | None, as_json: bool
) -> "list[Output]":
    """Where results go; to stdout, where nothing else is said."""
    from localctx.batch.markdown import SummaryTemplate
    from localctx.batch.outputs import Folder, Lines, Screen, line

    page, outputs = SummaryTemplate(template), list["Output"]()
    if out:
        outputs.append(Folder(out, page, lambda: session.store))
    if jsonl == "-":
        outputs.append(Screen(line, _print))
    elif jsonl:
        outputs.append(Lines(Path(jsonl)))
    elif not out and not as_json:
        outputs.append(Screen(page.render, _print))
    return outputs


def _print(text: str) -> None:
    from localctx.cli.terminal import beside_bars

    with beside_bars():
        sys.stdout.write(text)
        sys.stdout.flush()


def _on_ray(
    settings: "Settings",
    workers: str,
    cpus: int | None,
    home: Path | None,
    make: "Callable[..., Batch]",
    jobs: "list[DocumentJob]",
) -> "Told":
    from localctx.batch.ray_generator import RayCluster, RayGenerator

    spread = RayGenerator(RayCluster(settings, workers, cpus or 0, home, len(jobs)))
    return spread.run(make(of=spread.of), jobs)


def _work_off(told: "Told", session: "Session", report: "Report", board: "BatchProgress") -> UserError | None:
    """Hear the jobs out; what stopped them, if it was not Ctrl-C."""
    from localctx.batch.run_batch import Outcome

    try:
        with closing(told):
            for job, what in told:
                report.kv_peak = max(report.kv_peak, session.in_use.kv.get("device", 0))
                if isinstance(what, Outcome):
                    report.outcomes.append(what)
                    board.ended(_line(what, len(report.outcomes), board.count), what)
                else:
                    board.show(job, what)
    except (Cancelled, KeyboardInterrupt):
        report.stopped = True
    except UserError as e:  # not of one document: it would be the same with the next
        return e
    return None


def _line(o: "Outcome", number: int, of: int) -> str:
    if o.status == "failed":
        return plain(o.why)
    told = f"[{number}/{of}] {o.job.source}: {o.status}"
    if o.status == "done":
        t = o.entry["tokens"]
        told += f", {t['prompt']:,} tokens read ({t['reused']:,} reused), {t['generated']:,} written, {o.seconds:.1f} s"
    return plain(told)


def _tell(report: "Report", terminal: Any, jobs: int) -> None:
    for p in report.passed_over:
        terminal.say(plain(f"{p['path']} {p['why']}: passed over"))
    done, skipped, failed = (report.count(status) for status in ("done", "skipped", "failed"))
    speed = f", {report.per_second:,.1f} tokens/s" if done else ""
    terminal.say(f"{done:,} done, {skipped:,} skipped, {failed:,} failed, of {jobs:,}{speed}, {report.seconds:,.0f} s")


def _leave(report: "Report", wrong: UserError | None) -> None:
    if report.stopped:
        print("localctx: stopped; run it again to go on", file=sys.stderr)
        sys.exit(CANCELLED)
    if wrong:
        raise wrong
    if report.count("failed"):
        sys.exit(SOME_FAILED)
