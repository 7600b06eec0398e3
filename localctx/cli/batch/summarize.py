"""``summarize``: summarizes many documents, or asks them questions. Reuses results of earlier runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.batch.batch_command import BatchOptions, batch_options, run_batch
from localctx.cli.common import (
    answer_options,
    as_json_option,
    model_options,
    ocr_option,
    quiet_option,
    settings_from,
)
from localctx.cli.printing import print_json_text, print_text
from localctx.cli.sections import SectionedCommand, option, setting_option
from localctx.errors import UsageError

if TYPE_CHECKING:
    from localctx.batch.outputs import Output
    from localctx.session import Session
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
@batch_options
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
    from localctx.cli.terminal import Terminal, print_json

    task, options = _task(flags), BatchOptions.take(flags)
    if as_json and jsonl == "-":
        raise UsageError("--json and --jsonl - would both print to stdout", "give one of them")
    settings, terminal = task.adapted(settings_from(flags)), Terminal(as_json, quiet)
    make_outputs = lambda session: _outputs(session, out, jsonl, template, as_json)  # noqa: E731
    end = run_batch(paths, task, settings, make_outputs, options, terminal)
    if as_json:
        print_json({"documents": [o.to_json() for o in end.report.in_order(end.jobs)], "report": end.report.to_json()})
    end.exit()


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
    """Returns the outputs that the flags name. Without such flags, the output is stdout."""
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
