"""Shows events on a terminal: the answer on stdout, everything else on stderr. Progress bars need a terminal as
stderr.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from tqdm import tqdm

from localctx.cli.printing import print_error, print_json_text, print_line, print_text, printable_line, visible_line
from localctx.document_parts import NEAREST, NOT_SURE, tell_part
from localctx.engine.events import (
    Done,
    Event,
    Evicted,
    NearestPassage,
    Note,
    PassageAnswered,
    Planned,
    Progress,
    Quoted,
    SentenceChecked,
    Token,
)
from localctx.system import interrupt

MAX_QUOTE = 600  # characters of the quotation printed before an answer
_TIERS = {"host": "in RAM", "disk": "on disk"}  # the tiers below the device
_BAR = "{desc} {bar:24} {n:,}/{total:,}{postfix} {rate_fmt}, {remaining} left"


class Terminal:
    """Prints events on the terminal. ``as_json`` hides the text of answers, ``quiet`` hides everything but the answers.

    If there are several ``answers``, each has a number and lines of its own. ``quoted`` is the citation that was
    printed above or below the last answer. If ``numbers`` is True, each sentence is followed by the number of its
    source.
    """

    def __init__(self, as_json: bool = False, quiet: bool = False, answers: int = 1) -> None:
        self._several = answers > 1
        self._json, self._quiet = as_json, quiet
        self.interactive = sys.stderr.isatty() and not quiet
        self._bar: tqdm | None = None
        self._phase = ""
        self._wrote = False
        self._answer, self._space = 0, ""  # index of the current answer, and its pending trailing white space
        self.numbers = self.interactive and sys.stdout.isatty() and not (as_json or self._several)
        self.quoted: dict[str, Any] | None = None

    def show(self, event: Event) -> None:
        """Print one event. The event Done only removes the bar, because the command itself prints the report."""
        match event:
            case Progress():
                self._progress(event)
            case Planned():
                self._plan(event)
            case Note():
                self.say(event.text)
            case Quoted() if not self._json:
                self._quote(event)
            case NearestPassage() if not self._json:
                self._nearest(event)
            case Token() if not self._json:
                self._token(event)
            case SentenceChecked() if not self._json:
                self._number(event.sentence)
            case Evicted():
                self._evicted(event)
            case PassageAnswered():
                self._passage_answered(event)
            case Done():
                self.clear()

    def say(self, text: str) -> None:
        """Print a line on stderr, unless quiet."""
        self.clear()
        if not self._quiet:
            print_error(f"localctx: {text}")

    def hint(self, text: str) -> None:
        """Print a line on stderr, but only if stderr is a terminal and the command is not quiet."""
        self.clear()
        if self.interactive:
            print_error(text)

    def end_answer(self) -> None:
        """End the line of the streamed answer."""
        self.clear()
        if self._wrote:
            self._write("", end=True)
            print_line("")
        self._wrote = False

    def tell_query(self, query: str) -> None:
        """Print below an answer the query that computed it, unless quiet or as JSON."""
        self.end_answer()
        if not (self._quiet or self._json):
            print_text(f"\nQuery: {query}")

    def clear(self) -> None:
        """Remove the progress bar."""
        if self._bar is not None:
            self._bar.close()
        self._bar, self._phase = None, ""

    @contextmanager
    def cleared(self) -> Iterator[None]:
        """Remove the progress bar at the end of the ``with`` block, also after an error."""
        try:
            yield
        finally:
            self.clear()

    def _token(self, token: Token) -> None:
        self.clear()
        if token.answer != self._answer:
            self.end_answer()
            self._answer = token.answer
        text = token.text if self._wrote else token.text.lstrip()
        if text and not self._wrote and self._several:
            text = f"{token.answer + 1}: {text}"
        self._wrote = self._wrote or bool(text)
        self._write(text)

    def _write(self, text: str, end: bool = False) -> None:
        """Print part of the answer. On a terminal, white space at the end of the part is held back, because a source
        number may come before it.
        """
        text = self._space + text
        shown = text.rstrip() if self.numbers and not end else text
        self._space = text[len(shown) :]
        print_text(shown, end="")

    def _number(self, sentence: dict[str, Any]) -> None:
        """Print the number of a sentence's source after the sentence, on a terminal. A pipe gets no numbers."""
        if self.numbers and sentence["source"] and self._wrote:
            print_text(f" [{sentence['number']}]", end="")

    def _quote(self, quoted: Quoted) -> None:
        self.clear()
        self.quoted = quoted.citation
        print_text(f"{format_citation(quoted.citation, MAX_QUOTE)}\n")

    def quote_below(self, citations: Sequence[dict[str, Any]]) -> None:
        """Print an answer's sources below it, unless one was quoted above."""
        if self.quoted or self._quiet or self._json or self._several:
            return
        self.end_answer()
        for citation in citations:
            self.quoted = citation
            print_text(f"\n{format_citation(citation, MAX_QUOTE)}")

    def doubt(self, closest: Sequence[dict[str, Any]]) -> None:
        """Print below an answer that no passage supports it, and the closest passage, if there is one."""
        if self._quiet or self._json or self._several:
            return
        self.end_answer()
        passage = "".join(f" {NEAREST}: {format_citation(citation, MAX_QUOTE)}" for citation in closest)
        print_text(f"\n{NOT_SURE}{passage}")
        self.quoted = next(iter(closest), None)

    def _nearest(self, nearest: NearestPassage) -> None:
        """Print the nearest passage below an answer which says that no passage answers the question."""
        self.end_answer()
        if not self._quiet:
            print_text(f"\n{NEAREST}: {format_citation(nearest.citation, MAX_QUOTE)}")

    def _plan(self, p: Planned) -> None:
        eta = f", about {p.seconds:.0f} s" if p.seconds and p.seconds >= 1 else ""
        lower = [f"{_mib(n)} {_TIERS[tier]}" for tier, n in p.tiers.items() if n and tier in _TIERS]
        placed = f", of which {', '.join(lower)}" if lower else ""
        kv = f"{_mib(p.kv_bytes)} of KV ({p.codec}){placed}"
        self.hint(f"{p.mode}: {p.tokens:,} tokens, {p.reused:,} reused, {kv}{eta}")
        if p.unusual:
            self.hint(p.reason)

    def _evicted(self, e: Evicted) -> None:
        if self._bar is not None:
            self._bar.set_postfix_str(f"{e.keeper} dropped {e.tokens:,}", refresh=False)

    def _passage_answered(self, event: PassageAnswered) -> None:
        """Print one passage's answer if stderr is a terminal. The report repeats this answer in its groups."""
        c = event.citation
        place = tell_part(c["page"]) if c["page"] else f"from character {c['start']:,}"
        if self.interactive:
            with without_bars():
                print_error(printable_line(f"{event.answer} ({c['name']}, {place})"))

    def _progress(self, p: Progress) -> None:
        if not self.interactive:
            return
        if p.phase != self._phase:
            self.clear()
            self._phase, unit = p.phase, "B" if p.unit == "bytes" else f" {p.unit}"
            self._bar = tqdm(
                total=p.total or None,
                initial=p.reused,
                desc=visible_line(p.phase),
                file=sys.stderr,
                leave=False,
                ncols=bar_columns(),
                bar_format=_BAR if p.total else "{desc} ... {elapsed}",
                unit=unit,
                unit_scale=unit == "B",
                postfix=f"{p.reused:,} reused" if p.phase == "reading" else None,
            )
        if self._bar is not None:
            self._bar.update(p.done - self._bar.n)
            self._bar.refresh()


def bar_columns() -> int | None:
    """Returns 80 if the terminal does not know its width, because tqdm draws no bar then. Returns None if it does, so
    that tqdm follows it.
    """
    with suppress(OSError):
        return None if os.get_terminal_size(sys.stderr.fileno()).columns else 80
    return None


def format_citation(c: dict[str, Any], max_chars: int) -> str:
    """Returns a citation as one line: up to ``max_chars`` of its quote, document, page and heading."""
    places = [c["name"], c["page"] and tell_part(c["page"]), c["heading"] and f'under "{c["heading"]}"']
    return printable_line(f"{shortened(c['quote'], max_chars)} ({', '.join(filter(None, places))})")


def shortened(text: str, max_chars: int) -> str:
    """Returns up to ``max_chars`` of a text as one line in quotation marks, cut between words."""
    words = text if len(text) <= max_chars else text[:max_chars].rsplit(None, 1)[0] + " ..."
    return printable_line(f'"{words}"')


def without_bars() -> AbstractContextManager[None]:
    """Hide progress bars while the block runs, so that lines can be printed."""
    return tqdm.external_write_mode(sys.stderr)


@contextmanager
def cancel_on_interrupt(cancel: Callable[[], bool]) -> Iterator[None]:
    """Call ``cancel`` on Ctrl-C inside the ``with`` block.

    If it returns False, because nothing runs or it was already called, KeyboardInterrupt is raised.
    """

    def stop(signum: int, frame: Any) -> None:
        if not cancel():
            interrupt(signum, frame)

    with _handled(signal.SIGINT, stop):
        yield


@contextmanager
def interrupt_on_termination() -> Iterator[None]:
    """While the block runs, convert SIGTERM (``kill``, ``timeout``) to one KeyboardInterrupt."""

    def interrupt(signum: int, frame: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # ``timeout`` sends it twice
        raise KeyboardInterrupt

    with _handled(signal.SIGTERM, interrupt):
        yield


@contextmanager
def _handled(number: signal.Signals, handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Call ``handler`` on a signal inside the ``with`` block."""
    previous = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, previous)


def print_json(value: Any, indent: int | None = 2) -> None:
    """Print a JSON value on stdout, with ``indent`` spaces, or on one line if ``indent`` is None."""
    print_json_text(json.dumps(value, ensure_ascii=False, indent=indent))


def table(rows: list[dict[str, Any]]) -> str:
    """Returns a table as text: columns with their names at the top, numbers aligned to the right."""
    if not rows:
        return ""
    heads = list(rows[0])
    cells = [heads, *[[_cell(r[h]) for h in heads] for r in rows]]
    widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
    right = [isinstance(rows[0][h], int | float) for h in heads]
    return "\n".join(
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)).rstrip()
        for line in cells
    )


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else visible_line(str(value))


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.0f} MiB"
