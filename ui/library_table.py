"""Listing: the library as HTML: the documents there are, files on their way in, passages that were found."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from localctx.engine.events import Progress
from localctx.errors import format_bytes
from localctx.library.add import Added
from localctx.library.search import Passage, SearchResult, query_pattern
from localctx.serving.worker import Queued
from localctx.store.documents import DocumentRow
from localctx.store.store import Store
from localctx.ui.render import escape, note

AROUND = 800  # characters shown before and after a passage
SNIPPET = 160  # characters of it shown while it is closed
SHOWN = 60  # files of a queue that are listed; of more, those that failed and the newest
_HEADS = ("Name", "Characters", "Pages", "Tokens kept", "On disk", "Last used")
_EMPTY = (
    "The library is empty. Drop documents into the field beside this, or name a folder of this machine; they are read "
    "here and stay here."
)


# --- Documents


def documents(store: Store, filtered: str) -> str:
    """A table of the documents whose names have ``filtered`` in them, each with a box to tick."""
    rows = store.documents.all()
    shown = [d for d in rows if filtered.strip().lower() in d.name.lower()]
    if not shown:
        return note(f"No name has {filtered.strip()!r} in it." if rows else _EMPTY)
    heads = "".join(f'<th scope="col">{head}</th>' for head in _HEADS)
    tick_all = '<th><input type="checkbox" class="lc-all" aria-label="Choose all"></th>'
    body = "".join(_row(store, d) for d in shown)
    return f'<table class="lc-table"><thead><tr>{tick_all}{heads}</tr></thead><tbody>{body}</tbody></table>'


def _row(store: Store, d: DocumentRow) -> str:
    _, tokens, nbytes = store.caches.usage(d.id)
    pages = store.documents.count_spans(d.id, "page")
    used = datetime.fromtimestamp(d.used).strftime("%Y-%m-%d")
    figures = (_count(d.chars), _count(pages), _count(tokens), format_bytes(nbytes) if nbytes else "", used)
    cells = "".join(f'<td data-of="{head}">{cell}</td>' for head, cell in zip(_HEADS[1:], figures, strict=True))
    signs = "".join(
        f'<span class="lc-sign">{s}</span>' for s in ("pinned" * d.pinned, "older version" * bool(d.superseded)) if s
    )
    tick = f'<input type="checkbox" class="lc-pick" id="pick-{d.id}" value="{d.id}">'
    name = f'<label for="pick-{d.id}" title="{escape(d.path)}">{escape(d.name)}</label>'
    return f'<tr><td>{tick}</td><th scope="row">{name} {signs}</th>{cells}</tr>'


def _count(n: int) -> str:
    return f"{n:,}" if n else ""


# --- Files on their way in


@dataclass
class IncomingFile:
    """A file on its way into the library, under the ``name`` it is shown by."""

    path: str
    name: str
    status: str = "waiting"
    done: int = 0
    total: int = 0
    told: str = ""
    seconds: float = 0.0
    id: str = ""

    def hear(self, event: Any) -> None:
        """Take in what happens to it."""
        match event:
            case Queued() if event.place:
                self.told = f"{event.place} before it"
            case Queued() | Progress():
                self.status, self.told = "reading", ""
                if isinstance(event, Progress):
                    self.done, self.total = event.done, event.total
            case Added():
                self.status, self.seconds, self.id = event.status, event.seconds, event.id
                pages = f"{event.pages:,} pages, " if event.pages else ""
                self.told = f"{pages}{event.characters:,} characters"
                if event.why:
                    self.fail(event.why)

    def fail(self, why: str) -> None:
        """It was not read, and why; the place an upload lies at says nothing to who dropped it."""
        self.status, self.told = "failed", why.replace(self.path, self.name)

    def stop(self) -> None:
        """It is not to be read any more, if it was not."""
        if self.status in ("waiting", "reading"):
            self.status, self.told = "stopped", ""


def queue(entries: Sequence[IncomingFile]) -> str:
    """How far each file is."""
    over = [e for e in entries if e.status not in ("waiting", "reading")]
    failed = sum(e.status == "failed" for e in over)
    counts = f"{len(over):,} of {len(entries):,} files" + (f", {failed:,} failed" if failed else "")
    bar = f'<progress max="{len(entries)}" value="{len(over)}" aria-label="files"></progress>'
    lines = "".join(_line(e) for e in _worth_a_line(entries, len(over)))
    return f'<div class="lc-status" role="status">{counts}{bar}</div><ul class="lc-queue">{lines}</ul>'


def _worth_a_line(entries: Sequence[IncomingFile], over: int) -> list[IncomingFile]:
    if len(entries) <= SHOWN:
        return list(entries)
    near = range(max(0, over - SHOWN // 2), over + SHOWN // 2)
    return [e for i, e in enumerate(entries) if i in near or e.status == "failed"][-3 * SHOWN :]


def _line(e: IncomingFile) -> str:
    pages = f"page {e.done:,} of {e.total:,}" if e.status == "reading" and e.total else ""
    seconds = f"{e.seconds:.1f} s" if e.seconds else ""
    kind = e.status.replace(" ", "-")
    told = ", ".join(filter(None, (pages, e.told, seconds)))
    return f'<li class="lc-{kind}"><b>{escape(e.name)}</b> <i>{e.status}</i> <span>{escape(told)}</span></li>'


# --- Passages


def hits(found: SearchResult, words: str, text_of: Callable[[str], str]) -> str:
    """Passages with the words marked; each opens in its surroundings. ``text_of`` gives a document's text by id."""
    if not found.passages:
        return note(f"Nothing found in {found.chunks:,} passages." if found.chunks else _EMPTY)
    pattern = query_pattern(words)
    return "".join(_hit(i, p, pattern, text_of(p.document)) for i, p in enumerate(found.passages, 1))


def _hit(number: int, p: Passage, pattern: re.Pattern[str] | None, text: str) -> str:
    where = escape(", ".join(filter(None, [p.page and f"page {p.page}", p.heading])))
    before, after = text[max(0, p.start - AROUND) : p.start], text[p.end : p.end + AROUND]
    return (
        f'<details class="lc-hit"><summary><b>{number}. {escape(p.name)}</b> <small>{where}</small>'
        f"<span>{_marked(_snippet(p.text, pattern), pattern)}</span></summary>"
        f"<blockquote><i>{escape(before)}</i>{_marked(p.text, pattern)}<i>{escape(after)}</i></blockquote>"
        f"<small>characters {p.start:,} to {p.end:,}</small></details>"
    )


def _snippet(text: str, pattern: re.Pattern[str] | None) -> str:
    """A line of the passage, from a little before the first of the words."""
    first = pattern.search(text) if pattern else None
    start = max(0, first.start() - SNIPPET // 4) if first else 0
    line = " ".join(text[start : start + SNIPPET].split())
    return f"{'… ' * bool(start)}{line}{' …' * (start + SNIPPET < len(text))}"


def _marked(text: str, pattern: re.Pattern[str] | None) -> str:
    if not pattern:
        return escape(text)
    parts, at = [], 0
    for found in pattern.finditer(text):
        parts += [escape(text[at : found.start()]), f"<mark>{escape(found.group())}</mark>"]
        at = found.end()
    return "".join([*parts, escape(text[at:])])
