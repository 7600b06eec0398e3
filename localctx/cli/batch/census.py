"""``census``: puts one question to every passage of many documents, and says how many were asked."""

import sys
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.ask import open_session, show_events
from localctx.cli.common import answer_options, as_json_option, model_options, ocr_option, quiet_option
from localctx.cli.printing import print_error, print_line
from localctx.cli.sections import SectionedCommand
from localctx.errors import INTERRUPTED, UsageError

if TYPE_CHECKING:
    from localctx.batch.census import CensusDocuments

SOME_FAILED = 3


@click.command(cls=SectionedCommand)
@click.argument("words", nargs=-1, required=True, metavar="PATH... QUESTION")
@click.option("--best", type=click.IntRange(0), default=0, metavar="N", help="Ask only the N likeliest passages.")
@answer_options
@model_options
@ocr_option
@as_json_option
@quiet_option
def census(words: tuple[str, ...], best: int, as_json: bool, quiet: bool, **flags: Any) -> None:
    """Ask every passage of the documents in PATHs one QUESTION: list all, count all, and know that none was left out.

    Every answer has its place. The last line says how many passages were asked, and how many answered, may have
    answered, or did not. Answers are kept: after Ctrl-C or a kill, the same command goes on. The exit code is 3 if a
    file could not be read.

    \b
    localctx census contracts/ "Which law governs the contract?"
    localctx census letters/ minutes.pdf "Who asks for a refund?" --json
    """
    from localctx.batch.census import read_documents
    from localctx.cli.terminal import print_json
    from localctx.library.folders.find import find_documents

    *paths, question = words
    if not paths or not question.strip():
        raise UsageError("census takes files or folders, and a question", 'for example: localctx census notes/ "Who?"')
    with open_session(flags, as_json, quiet) as (session, terminal):
        files = list(find_documents(paths, lambda path, why: terminal.say(f"{path} {why}: ignored")))
        with session.workflows.library() as library:
            documents = read_documents(library, files, terminal.show)
        terminal.clear()
        _print_unread(documents, as_json)
        done = show_events(session.run(session.workflows.questions.census(documents.ids, question, best)), terminal)
        terminal.end_answer()
    certificate = documents.certificate(done.report.everywhere)
    if as_json:
        print_json({**done.report.to_json(), "certificate": certificate.to_json()})
    else:
        print_line("")
        print_line(str(certificate))
    if done.failed:
        print_error(f"localctx: {done.failed}")
        sys.exit(1)
    if done.report.stopped == "cancelled":
        sys.exit(INTERRUPTED)
    if documents.unread:
        sys.exit(SOME_FAILED)


def _print_unread(documents: "CensusDocuments", as_json: bool) -> None:
    for _, why in () if as_json else documents.unread:
        print_error(f"localctx: {why}")
