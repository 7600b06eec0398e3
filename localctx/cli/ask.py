"""``ask`` and ``prepare``: what needs a model."""

import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.advice import advise_once
from localctx.cli.common import (
    CANCELLED,
    answer_options,
    as_json_option,
    model_options,
    ocr_option,
    quiet_option,
    settings_of,
)
from localctx.errors import UsageError, UserError, format_bytes

if TYPE_CHECKING:
    from localctx.cli.terminal import Terminal
    from localctx.engine.events import Event
    from localctx.session import Session

QUOTED = 200  # characters of a quote that are shown


@click.command()
@click.argument("words", nargs=-1, metavar="FILE... QUESTION")
@as_json_option
@quiet_option
@click.option("--library", is_flag=True, help="Ask all documents of the library; no FILE is needed.")
@click.option("--no-keep", is_flag=True, help="Leave nothing of these documents on the disk.")
@answer_options
@model_options
@ocr_option
def ask(words: tuple[str, ...], as_json: bool, quiet: bool, library: bool, no_keep: bool, **flags: Any) -> None:
    """Answer QUESTION from FILEs (text, Markdown, HTML, PDF, docx, EPUB; - is standard input), or from the library.

    Documents that fit the model's window are read whole; of longer ones the passages that promise most.

    \b
    localctx ask README.md "How do I run the tests?"
    git log | localctx ask - "What changed most?"
    localctx ask --library "Who signed the lease?"
    """
    if library and len(words) != 1:
        raise UsageError("--library takes a question and no files", "add files with: localctx library add FILE")
    if library and no_keep:
        raise UsageError("--library reads what is kept", "leave out --no-keep")
    if not library and len(words) < 2:
        raise UsageError("ask takes files and a question", 'for example: localctx ask README.md "What is this?"')
    *files, question = words
    if not question.strip():
        raise UsageError("the question is empty", "put it last, in quotes")
    if files.count("-") > 1:
        raise UsageError("standard input (-) can be read only once", "name it once")
    from localctx.cli.terminal import print_json

    with open_session(flags, as_json, quiet) as (session, terminal):
        done = follow(session.stream(question, files, persist=not no_keep, library=library), terminal)
        terminal.end_answer()
        report = done.report.to_json()
        if as_json:
            print_json(report)
        tell(report, session.settings.max_tokens, terminal)
    if not (as_json or quiet or no_keep or done.failed or report["stopped"] == "cancelled"):
        advise_once(session.settings, terminal)
    _leave(report["stopped"], done.failed)


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@as_json_option
@quiet_option
@model_options
@ocr_option
def prepare(files: tuple[str, ...], as_json: bool, quiet: bool, **flags: Any) -> None:
    """Read FILEs now and keep their pages, so that later questions start at once.

    \b
    localctx prepare book.txt notes/*.md
    """
    from localctx.cli.terminal import print_json

    reports, failures, stopped = [], list[UserError | str](), "eos"
    with open_session(flags, as_json, quiet) as (session, terminal):
        for file in files:
            try:
                done = follow(session.prepare(file), terminal)
            except UserError as e:
                terminal.clear()
                print(f"localctx: {e}", file=sys.stderr)
                failures.append(e)
                if not _about_document(e):
                    break
                continue
            r, stopped = done.report.to_json(), done.report.stopped
            reports.append(r)
            if not as_json:
                t = r["tokens"]
                print(
                    f"{r['name']}: {r['kept']['tokens']:,} of {t['prompt']:,} tokens kept "
                    f"({t['reused']:,} were already), {format_bytes(r['kept']['bytes'])}, "
                    f"{r['seconds']['prefill']:.1f} s",
                    flush=True,
                )
            if done.failed or stopped == "cancelled":
                failures += [done.failed] if done.failed else []
                break
    if as_json:
        print_json({"documents": reports, "failed": [str(f) for f in failures]})
    if failures and isinstance(failures[-1], UserError):
        sys.exit(failures[-1].exit_code)
    _leave(stopped, failures[-1] if failures else None)


class open_session:
    """A session and the terminal that shows it, closed at the end; Ctrl-C stops what runs."""

    def __init__(self, flags: dict[str, Any], as_json: bool, quiet: bool) -> None:
        from localctx.cli.terminal import Terminal, stopping
        from localctx.session import Session

        settings = settings_of(flags)
        self.terminal = Terminal(as_json, quiet, settings.n)
        self.session = Session(settings, self.terminal.show)
        self._stopping = stopping(self.session.cancel)

    def __enter__(self) -> "tuple[Session, Terminal]":
        self._stopping.__enter__()
        return self.session, self.terminal

    def __exit__(self, *exc: Any) -> None:
        self._stopping.__exit__(*exc)
        self.terminal.clear()
        self.session.close()


def follow(events: "Generator[Event, None, None]", terminal: "Terminal") -> Any:
    """Show events to the end; the last one, Done. Whatever stops it, what was read is kept before the store closes."""
    event: Any = None
    with closing(events):
        for event in events:
            terminal.show(event)
    return event


def _about_document(e: UserError) -> bool:
    from localctx.errors import DocumentError, TooLong

    return isinstance(e, DocumentError | TooLong)


def _leave(stopped: str, failed: object) -> None:
    if failed:
        print(f"localctx: {failed}", file=sys.stderr)
        sys.exit(1)
    if stopped == "cancelled":
        sys.exit(CANCELLED)


def tell(report: dict[str, Any], most: int, terminal: "Terminal") -> None:
    """What is to be said after an answer of at most ``most`` tokens."""
    from localctx.cli.terminal import cited

    if report["stopped"] == "length":
        terminal.say(_cut(report, most))
    if report["stopped"] == "repeated":
        terminal.say("the answer went in circles and was ended there; a larger model helps (localctx models list)")
    for line in _dropped(report):
        terminal.say(line)
    more = [c for c in report["citations"] if c != terminal.quoted]
    for citation in more:
        terminal.aside(f"{'also' if terminal.quoted else 'see'} {cited(citation, QUOTED)}")
    terminal.quoted = None
    terminal.aside(_summary(report))


def _cut(r: dict[str, Any], most: int) -> str:
    """Why the answer, or the longest of several, ends in the middle."""
    longest = r["tokens"]["longest"]
    why = "the model's window is full; ask a shorter part" if longest < most else "see --max-tokens"
    which = "the answer was" if len(r["answers"]) == 1 else "an answer was"
    return f"{which} cut at {longest:,} tokens; {why}"


def _dropped(r: dict[str, Any]) -> Iterator[str]:
    """What the answer did not see, if anything."""
    kv = r["kv"]
    if kv["evicted"]:
        prompt = r["tokens"]["prompt"]
        gone = round(sum((min(e["stop"], prompt) - min(e["start"], prompt)) * (1 - e["kept"]) for e in kv["evicted"]))
        where = ", ".join(f"{e['start']:,}-{e['stop']:,}" for e in kv["evicted"][:3])
        more = ", ..." if len(kv["evicted"]) > 3 else ""
        yield f"{kv['keeper']} dropped {gone:,} of {prompt:,} tokens (from {where}{more}): not all was seen"


def _summary(r: dict[str, Any]) -> str:
    t, s, ranking = r["tokens"], r["seconds"], r["ranking"]
    speed = f", {(t['generated'] - 1) / s['decode']:.1f} tokens/s" if t["generated"] > 1 and s["decode"] else ""
    ranked = f" ({ranking['passages']} passages)" if ranking else ""
    reused, of = (ranking["reused"], ranking["tokens"]) if ranking else (t["reused"], t["prompt"])
    return f"reused {reused:,} / {of:,} tokens{ranked}, first token after {s['first_token']:.2f} s{speed}"
