"""``ask`` and ``prepare``: answer a question about documents, or prefill documents for later questions."""

import sys
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.advice import advise_once
from localctx.cli.common import (
    answer_options,
    as_json_option,
    model_options,
    ocr_option,
    quiet_option,
    settings_from,
    until_option,
)
from localctx.cli.printing import print_error, print_line
from localctx.cli.sections import SectionedCommand, option
from localctx.errors import INTERRUPTED, UsageError, UserError, format_bytes
from localctx.file_names import shown_name

if TYPE_CHECKING:
    from localctx.cli.terminal import Terminal
    from localctx.engine.events import Event
    from localctx.serving.ask_client import DelegatedAnswer
    from localctx.session import Session
    from localctx.settings import Settings

MAX_QUOTE = 200  # characters


@click.command(cls=SectionedCommand)
@click.argument("words", nargs=-1, metavar="FILE... QUESTION")
@click.option("--library", is_flag=True, help="Ask all documents of the library, without FILEs.")
@until_option
@click.option("--no-keep", is_flag=True, help="Store nothing of these documents on disk.")
@option("--alone", is_flag=True, section="Engine", help="Answer in this process, not by an open server.")
@answer_options
@model_options
@ocr_option
@as_json_option
@quiet_option
def ask(
    words: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    library: bool,
    no_keep: bool,
    alone: bool,
    until: str,
    **flags: Any,
) -> None:
    """Answer QUESTION from FILEs (PDF, Word, slides, e-mail, text ...; - is standard input), or from the library.

    Documents are read whole up to the length that the model uses well; of longer ones only the most relevant passages.
    An open `localctx serve` or `localctx ui` with the same model and settings answers at once; none is started.

    \b
    localctx ask lease.pdf "When is the rent due?"
    git log | localctx ask - "What changed most?"
    localctx ask novel.epub "Who is the stranger?" --until 40%
    localctx ask novel.epub "List all horses." --mode everywhere
    localctx ask --library "Who signed the lease?"
    """
    if library and len(words) != 1:
        raise UsageError("--library takes a question and no files", "add files with: localctx library add FILE")
    if library and no_keep:
        raise UsageError("--library reads stored documents", "leave out --no-keep")
    if not library and len(words) < 2:
        raise UsageError("ask takes files and a question", 'for example: localctx ask README.md "What is this?"')
    *files, question = words
    question = shown_name(question)
    if not question.strip():
        raise UsageError("the question is empty", "put it last, in quotes")
    if until and (library or len(files) > 1):
        raise UsageError("--until needs exactly one document", "ask one file, or leave out --until")
    if files.count("-") > 1:
        raise UsageError("standard input (-) can be read only once", "name it once")
    from localctx.cli.terminal import Terminal, print_json

    settings = settings_from(flags)
    terminal = Terminal(as_json, quiet, settings.n)
    how = {"persist": not no_keep, "library": library, "until": until}
    with open_answer(question, files, how, settings, terminal, alone) as (events, answered_by):
        done = show_events(events, terminal)
        terminal.end_answer()
        report = done.report.to_json()
        if as_json:
            print_json({**report, "answered_by": answered_by})
        print_notes(report, settings.max_tokens, terminal)
    if not (as_json or quiet or no_keep or done.failed or report["stopped"] == "cancelled"):
        advise_once(settings, terminal)
    _exit(report["stopped"], done.failed)


@click.command(cls=SectionedCommand)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@model_options
@ocr_option
@as_json_option
@quiet_option
def prepare(files: tuple[str, ...], as_json: bool, quiet: bool, **flags: Any) -> None:
    """Read FILEs now and store their pages, so that later questions start at once.

    \b
    localctx prepare book.txt notes/*.md
    """
    from localctx.cli.terminal import print_json

    reports, failures, stopped = [], list[UserError | str](), "eos"
    with open_session(flags, as_json, quiet) as (session, terminal):
        for file in files:
            try:
                done = show_events(session.prepare(file), terminal)
            except UserError as e:
                terminal.clear()
                print_error(f"localctx: {e}")
                failures.append(e)
                if not _concerns_document(e):
                    break
                continue
            r, stopped = done.report.to_json(), done.report.stopped
            reports.append(r)
            if not as_json:
                t = r["tokens"]
                print_line(
                    f"{r['name']}: {r['kept']['tokens']:,} of {t['prompt']:,} tokens kept "
                    f"({t['reused']:,} were already), {format_bytes(r['kept']['bytes'])}, "
                    f"{r['seconds']['prefill']:.1f} s",
                )
            if done.failed or stopped == "cancelled":
                failures += [done.failed] if done.failed else []
                break
    if as_json:
        print_json({"documents": reports, "failed": [str(f) for f in failures]})
    if failures and isinstance(failures[-1], UserError):
        sys.exit(failures[-1].exit_code)
    _exit(stopped, failures[-1] if failures else None)


@contextmanager
def open_session(flags: dict[str, Any], as_json: bool, quiet: bool) -> "Iterator[tuple[Session, Terminal]]":
    """Open a session and the terminal that shows its events. Ctrl-C cancels the running job."""
    from localctx.cli.terminal import Terminal

    settings = settings_from(flags)
    terminal = Terminal(as_json, quiet, settings.n)
    with session_shown(settings, terminal) as session:
        yield session, terminal


@contextmanager
def session_shown(settings: "Settings", terminal: "Terminal") -> "Iterator[Session]":
    """Open a session whose progress ``terminal`` shows. Ctrl-C cancels the running job."""
    from localctx.cli.terminal import cancel_on_interrupt
    from localctx.session import Session

    with closing(Session(settings, terminal.show)) as session, terminal.cleared(), cancel_on_interrupt(session.cancel):
        yield session


@contextmanager
def open_answer(
    question: str, files: list[str], how: dict[str, Any], settings: "Settings", terminal: "Terminal", alone: bool
) -> "Iterator[tuple[Generator[Event, None, None], str]]":
    """Open the answer to a question, by an open server or, if no server answers, by a session of this process. Yields
    the events of the answer and the name of the answerer: the server's address, or ``command`` for this process.

    ``how`` has further arguments of ``Session.stream``. If ``alone``, no server is asked. Ctrl-C cancels the answer.
    """
    from localctx.cli.terminal import cancel_on_interrupt

    if not alone and (there := _ask_server(question, files, how, settings, terminal)):
        with closing(there.events()) as events, terminal.cleared(), cancel_on_interrupt(there.cancel):
            yield events, there.url
        return
    with session_shown(settings, terminal) as session:
        yield session.stream(question, files, **how), "command"


def _ask_server(
    question: str, files: list[str], how: dict[str, Any], settings: "Settings", terminal: "Terminal"
) -> "DelegatedAnswer | None":
    """Returns the answer of an open server, or None if no server answers.

    No server is asked if standard input is a source, because a server cannot read this process's input.
    """
    from localctx.serving.ask_client import ask_open_server, given_paths
    from localctx.serving.ask_request import AskRequest

    if "-" in files:
        return None
    request = AskRequest.of(question, files, settings, **how)
    return ask_open_server(request, given_paths(files), settings.home, terminal.hint)


def show_events(events: "Generator[Event, None, None]", terminal: "Terminal") -> Any:
    """Show all events, and return the last event, which is Done.

    On an error the generator is closed while the store is still open.
    """
    event: Any = None
    with closing(events):
        for event in events:
            terminal.show(event)
    return event


def _concerns_document(e: UserError) -> bool:
    from localctx.errors import DocumentError, TooLong

    return isinstance(e, DocumentError | TooLong)


def _exit(stopped: str, failed: object) -> None:
    if failed:
        print_error(f"localctx: {failed}")
        sys.exit(1)
    if stopped == "cancelled":
        sys.exit(INTERRUPTED)


def print_notes(report: dict[str, Any], max_tokens: int, terminal: "Terminal") -> None:
    """Print the notes, citations and cost of an answer that was limited to ``max_tokens``."""
    from localctx.cli.terminal import format_citation, shortened
    from localctx.engine.request_report import BY_WORDS

    if "query" in report:
        terminal.tell_query(report["query"])
    if report["stopped"] == "length":
        terminal.say(_length_note(report, max_tokens))
    if report["stopped"] == "repeated":
        terminal.say("the answer repeated itself and was ended there; a larger model helps (localctx models list)")
    for line in _eviction_notes(report):
        terminal.say(line)
    everywhere = report["mode"] == "everywhere"  # its text already names the places
    sources = _numbered(report["sentences"])
    numbered = sources if terminal.numbers else []
    for number, source in numbered:
        terminal.hint(f"[{number}] {format_citation(source, MAX_QUOTE)}")
    first = sources if report["mode"] == "compared" else sources[:1]
    below = [] if numbered else [source for _, source in first] or _checked(report)
    terminal.quote_below(below)
    if not below and _is_unsure(report):
        terminal.doubt(report["citations"][:1])
    shown = [source for _, source in numbered] + below + [terminal.quoted]
    others = [c for c in report["citations"] if not everywhere and not any(_is_part(c, one) for one in shown)]
    for citation in others:
        terminal.hint(f"{'also' if terminal.quoted else 'see'} {format_citation(citation, MAX_QUOTE)}")
    if any(citation["source"] == "words" for citation in others):
        terminal.hint(BY_WORDS)
    for sentence in report["sentences"]:
        if sentence["support"] == "unsupported":
            words = report["answer"][sentence["start"] : sentence["end"]]
            terminal.hint(f"no passage supports: {shortened(words, MAX_QUOTE)}")
    terminal.quoted = None
    terminal.hint(_summary(report))


def _checked(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the citation that a bare yes or no was checked against, which is done if the answer has a confidence."""
    from localctx.library.wording.yes_no import clause_after

    is_checked = report["confidence"] is not None and clause_after(report["answer"]) is not None
    return report["citations"][:1] if is_checked else []


def _is_unsure(report: dict[str, Any]) -> bool:
    """Returns True if no passage supports the answer to a question about documents."""
    from localctx.library.citations.sentence_sources import is_unsure

    supports = {sentence["support"] for sentence in report["sentences"]}
    return report["mode"] in ("full", "retrieve") and is_unsure(report["answer"], supports, False)


def _numbered(sentences: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    """Returns pairs of a source number and a citation, for the sentences of an answer that have a source."""
    return list({s["number"]: s["source"] for s in sentences if s["source"]}.items())


def _is_part(citation: dict[str, Any], shown: dict[str, Any] | None) -> bool:
    """Returns True if a citation's text is part of the citation ``shown``."""
    return (
        shown is not None
        and citation["document"] == shown["document"]
        and shown["start"] <= citation["start"]
        and citation["end"] <= shown["end"]
    )


def _length_note(r: dict[str, Any], max_tokens: int) -> str:
    """Returns a note that says why the answer, or the longest of several answers, was cut."""
    longest = r["tokens"]["longest"]
    why = "the model's window is full; ask a shorter part" if longest < max_tokens else "see --max-tokens"
    which = "the answer was" if len(r["answers"]) == 1 else "an answer was"
    return f"{which} cut at {longest:,} tokens; {why}"


def _eviction_notes(r: dict[str, Any]) -> Iterator[str]:
    """Yields a note if the answer did not see all tokens of the prompt."""
    kv = r["kv"]
    if kv["evicted"]:
        from localctx.engine.request_report import dropped_tokens

        prompt = r["tokens"]["prompt"]
        dropped = dropped_tokens(kv["evicted"], prompt)
        if kv["keeper"] == "full":
            seen = f"{prompt - dropped:,}, those of the passages most like the question"
            yield f"all {prompt:,} tokens were read, and the answer saw {seen}; --mode full shows it all"
            return
        where = ", ".join(f"{e['start']:,}-{e['stop']:,}" for e in kv["evicted"][:3])
        more = ", ..." if len(kv["evicted"]) > 3 else ""
        tokens = f"{dropped:,} of {prompt:,} tokens (from {where}{more})"
        yield f"{kv['keeper']} dropped {tokens}: the answer did not see them"


def _summary(r: dict[str, Any]) -> str:
    t, s, ranking = r["tokens"], r["seconds"], r["ranking"]
    speed = f", {(t['generated'] - 1) / s['decode']:.1f} tokens/s" if t["generated"] > 1 and s["decode"] else ""
    passages = ranking["passages"] if ranking else r["everywhere"]["passages"] if r["mode"] == "everywhere" else 0
    ranked = f" ({passages:,} passages)" if passages else ""
    reused, total = (ranking["reused"], ranking["tokens"]) if ranking else (t["reused"], t["prompt"])
    return f"reused {reused:,} / {total:,} tokens{ranked}, first token after {s['first_token']:.2f} s{speed}"
