"""Renders the library as HTML: the table of documents, the files being read, and search results."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from localctx.document_parts import count_parts, tell_part
from localctx.engine.events import Progress
from localctx.errors import format_bytes
from localctx.library.add import Added
from localctx.library.search.search import Passage, SearchResult, query_pattern
from localctx.library.wording.word_forms import content_forms
from localctx.serving.worker import Queued
from localctx.store.document_files import DocumentFile
from localctx.store.documents import DocumentRow
from localctx.store.store import Store
from localctx.ui.markdown_signs import without_signs
from localctx.ui.reading.source_list import file_kind, length, not_read
from localctx.ui.render import bar, escape, note
from localctx.ui.viewer.document_viewer import open_link

AROUND = 800  # characters shown before and after a passage
SNIPPET = 160  # characters of a passage shown while its text is collapsed
# files listed while they are read; of more files, only failed ones and those near the current one are listed
MAX_LINES = 60
_HEADS = ("Name", "Length", "State", "Last used")
_EMPTY = (
    "The library is empty. Drop documents into the field beside this, or type the path of a folder on this computer. "
    "They stay on it."
)


# --- Documents


def documents(store: Store, model: str, text: str, collection: int | None = None) -> str:
    """Returns a table of the documents whose names contain ``text``. Each row has a checkbox, and says whether
    ``model`` has read the document.

    With ``collection`` (an id), the table has only the documents of that collection.
    """
    rows, names, files = store.documents.all(), store.collections.names(), store.documents.files.all()
    if collection is not None:
        inside = set(store.collections.documents(collection))
        rows = [d for d in rows if d.id in inside]
    copies = {d.id: [file for file in files.get(d.id, ()) if file.path != d.path] for d in rows}
    part = text.strip().lower()
    matching = [d for d in rows if any(part in name.lower() for name in (d.name, *(c.name for c in copies[d.id])))]
    if not matching:
        empty = _EMPTY if collection is None else "This collection has no documents yet."
        return note(f"No name has “{text.strip()}” in it." if rows else empty)
    heads = "".join(f'<th scope="col">{head}</th>' for head in _HEADS)
    tick_all = '<th><input type="checkbox" class="lc-all" aria-label="Choose all"></th>'
    read = store.caches.prepared_documents(model)
    body = "".join(_row(store, d, d.id in read, copies[d.id], names.get(d.id, ())) for d in matching)
    return f'<table class="lc-table"><thead><tr>{tick_all}{heads}</tr></thead><tbody>{body}</tbody></table>'


def _row(
    store: Store, d: DocumentRow, is_read: bool, copies: Sequence[DocumentFile], collections: Sequence[str]
) -> str:
    _, _, nbytes = store.caches.usage(d.id)
    state = f'<span title="{format_bytes(nbytes)} on disk">Ready</span>' if is_read else "Not read yet"
    figures = (length(store, d), state, _day(datetime.fromtimestamp(d.used).date()))
    cells = "".join(f'<td data-of="{head}">{cell}</td>' for head, cell in zip(_HEADS[1:], figures, strict=True))
    signs = "".join(
        f'<span class="lc-sign">{escape(s)}</span>'
        for s in ("pinned" * d.pinned, "older version" * bool(d.superseded), *collections)
        if s
    )
    classes = "lc-pick" + " lc-pinned" * d.pinned
    tick = f'<input type="checkbox" class="{classes}" value="{d.id}" aria-label="{escape(d.name)}">'
    name = f'<span title="{escape(d.path)}">{open_link(d.id, d.name)}</span>'
    name += "".join(f' <small title="{escape(c.path)}">and {escape(_copy_name(c, d))}</small>' for c in copies)
    kind = f'<i class="lc-kind">{file_kind(d.name)}</i>'
    return f'<tr><td>{tick}</td><th scope="row"><div>{kind}{name} {signs}</div>{not_read(d)}</th>{cells}</tr>'


def _copy_name(copy: DocumentFile, d: DocumentRow) -> str:
    """Returns the name of ``copy``, another file with the text of ``d``. If both have the same name, the folder is
    added.
    """
    path = Path(copy.path)
    return f"{path.parent.name}/{copy.name}" if copy.name == d.name else copy.name


def _day(day: date) -> str:
    """Returns a day as text: "today", or the date. The year is left out if it is the current year."""
    today = date.today()
    return "today" if day == today else f"{day:%d %b}" if day.year == today.year else f"{day:%d %b %Y}"


# --- Files that are being read


@dataclass
class IncomingFile:
    """A file that is being read into the library, shown as ``name``.

    ``id`` is the id of the file's document once the file is read.
    """

    path: str
    name: str
    status: str = "waiting"
    done: int = 0
    total: int = 0
    detail: str = ""
    seconds: float = 0.0
    id: str = ""

    def handle(self, event: Any) -> None:
        """Update the status and detail from an event of the file's job."""
        match event:
            case Queued() if event.position:
                self.detail = f"{event.position} before it"
            case Queued() | Progress():
                self.status, self.detail = "reading", ""
                if isinstance(event, Progress):
                    self.done, self.total = event.done, event.total
            case Added():
                self.status, self.seconds, self.id = event.status, event.seconds, event.id
                pages = f"{count_parts(event.part, event.pages)}, " if event.pages else ""
                self.detail = f"{pages}{event.characters:,} characters"
                if event.why:
                    self.fail(event.why)

    def fail(self, why: str) -> None:
        """Mark the file as failed. In the reason, the path of the file is replaced by its name."""
        self.status, self.detail = "failed", why.replace(self.path, self.name)

    def stop(self) -> None:
        """Mark the file as stopped unless it has ended."""
        if self.status in ("waiting", "reading"):
            self.status, self.detail = "stopped", ""


def queue(entries: Sequence[IncomingFile]) -> str:
    """Returns the overall progress of the files being read, and a line for each listed file."""
    ended = [e for e in entries if e.status not in ("waiting", "reading")]
    failed = sum(e.status == "failed" for e in ended)
    counts = f"{len(ended):,} of {len(entries):,} files" + (f", {failed:,} failed" if failed else "")
    shown = bar(len(ended) - failed, len(entries), "files", "failing" if failed else "")
    lines = "".join(_line(e) for e in _listed(entries, len(ended)))
    return f'<div class="lc-status" role="status">{counts}{shown}</div><ul class="lc-queue">{lines}</ul>'


def _listed(entries: Sequence[IncomingFile], ended: int) -> list[IncomingFile]:
    if len(entries) <= MAX_LINES:
        return list(entries)
    near = range(max(0, ended - MAX_LINES // 2), ended + MAX_LINES // 2)
    return [e for i, e in enumerate(entries) if i in near or e.status == "failed"][-3 * MAX_LINES :]


def _line(e: IncomingFile) -> str:
    pages = f"page {e.done:,} of {e.total:,}" if e.status == "reading" and e.total else ""
    seconds = f"{e.seconds:.1f} s" if e.seconds else ""
    kind = e.status.replace(" ", "-")
    detail = ", ".join(filter(None, (pages, e.detail, seconds)))
    return f'<li class="lc-{kind}"><b>{escape(e.name)}</b> <i>{e.status}</i> <span>{escape(detail)}</span></li>'


# --- Search results


def hits(result: SearchResult, words: str, text_of: Callable[[str], str]) -> str:
    """Returns the passages found as HTML, with the words marked: first those with a word of the search, then similar
    ones. Each passage can be expanded to show the text around it.

    ``text_of`` returns a document's text by its id.
    """
    if not result.passages:
        return note(f"Nothing found in {result.chunks:,} passages." if result.chunks else _EMPTY)
    pattern = query_pattern(words)
    asked = content_forms(words)
    having = [p for p in result.passages if _places(p, pattern) or asked & content_forms(p.text)]
    similar = [p for p in result.passages if p not in having]
    shown = [_hit(i, p, pattern, text_of(p.document)) for i, p in enumerate([*having, *similar], 1)]
    if pattern and similar:
        about = "Without these words, but similar:" if having else "No passage has these words. Similar ones:"
        shown.insert(len(having), note(about))
    return "".join(shown)


def _hit(number: int, p: Passage, pattern: re.Pattern[str] | None, text: str) -> str:
    older, places = "older version" if p.superseded else "", _places(p, pattern)
    first = places[0] if places else (p.start, p.end)
    page = p.page_at(first[0])
    where = escape(", ".join(filter(None, [older, page and tell_part(page), p.heading])))
    around = text[max(0, p.start - AROUND) : p.start], p.text, text[p.end : p.end + AROUND]
    before, found, after = (without_signs(part, p.name) for part in around)
    return (
        f'<div class="lc-hit"><details><summary><b>{number}. {escape(p.name)}</b> <small>{where}</small>'
        f"<span>{_marked(_snippet(found, pattern), pattern)}</span></summary>"
        f"<blockquote><i>{escape(before)}</i>{_marked(found, pattern)}<i>{escape(after)}</i></blockquote>"
        f"</details>{open_link(p.document, p.name, _open_text(page), *first, places)}</div>"
    )


def _places(p: Passage, pattern: re.Pattern[str] | None) -> list[tuple[int, int]]:
    """Returns the ranges of the document, inside the passage, that have the words searched for."""
    found = pattern.finditer(p.text) if pattern else ()
    return [(p.start + match.start(), p.start + match.end()) for match in found]


def _open_text(page: str | None) -> str:
    return f"Open at {tell_part(page)}" if page else "Open"


def _snippet(text: str, pattern: re.Pattern[str] | None) -> str:
    """Returns a short piece of the passage as one line. The piece begins shortly before the first match."""
    first = pattern.search(text) if pattern else None
    start = max(0, first.start() - SNIPPET // 4) if first else 0
    line = " ".join(text[start : start + SNIPPET].split())
    return f"{'… ' * bool(start)}{line}{' …' * (start + SNIPPET < len(text))}"


def _marked(text: str, pattern: re.Pattern[str] | None) -> str:
    if not pattern:
        return escape(text)
    parts, at = [], 0
    for match in pattern.finditer(text):
        parts += [escape(text[at : match.start()]), f"<mark>{escape(match.group())}</mark>"]
        at = match.end()
    return "".join([*parts, escape(text[at:])])
