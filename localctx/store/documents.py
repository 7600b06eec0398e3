"""Stored documents: their texts, the files they were read from, and the spans that name their parts (such as pages and
headings).
"""

import hashlib
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from sqlite_utils import Database

from localctx.document_parts import PARTS, name_part, parts_of_kinds
from localctx.errors import DocumentError
from localctx.file_names import shown_name, stored_path
from localctx.store.document_files import FILE_COLUMNS, DocumentFile, DocumentFiles, fill_files, paths_meant


@dataclass(frozen=True)
class Span:
    """A named part of a document: the characters ``start..end``. ``kind`` is ``heading``, or the kind of part, one of
    PARTS (such as page or slide). ``label`` is the name of the part.
    """

    start: int
    end: int
    kind: str
    label: str


@dataclass(frozen=True)
class DocumentRow:
    """The facts about a stored document, without its text. ``bytes`` is the size of the source file; times are in
    seconds since 1970.

    ``encoding`` is the encoding of a plain text file, or the format of another file (pdf, docx, eml, ...). ``modified``
    is the file's modification time in nanoseconds (0: unknown). ``superseded`` is the id of the next version, if a
    newer text was read from the same path. The pages of a ``pinned`` document are never evicted. ``content`` is the
    SHA-256 of the file in hex ("": unknown). ``unread`` names the parts of the file that could not be read, one a line.
    """

    id: str
    name: str
    path: str
    encoding: str
    bytes: int
    chars: int
    added: float
    used: float
    modified: int = 0
    superseded: str | None = None
    pinned: bool = False
    content: str = ""
    unread: str = ""

    @property
    def unread_lines(self) -> tuple[str, ...]:
        """The parts of the file that could not be read: the lines of ``unread``."""
        return tuple(self.unread.splitlines())


class StoredDocument(NamedTuple):
    """A document of the library: ``row`` has the facts about it, and ``spans`` name the parts of ``text``, such as
    pages and headings.
    """

    row: DocumentRow
    text: str
    spans: Sequence[Span]

    @property
    def id(self) -> str:
        """The document's id, a hash of its text."""
        return self.row.id

    @property
    def name(self) -> str:
        """The name under which the document was read."""
        return self.row.name

    @property
    def whole(self) -> "StoredDocument":
        """The whole document, as it is stored. (``DocumentBeginning`` has only the beginning of one.)"""
        return self

    def beginning(self, end: int) -> "DocumentBeginning":
        """Returns the first ``end`` characters of the document."""
        spans = [replace(s, end=min(s.end, end)) for s in self.spans if s.start < end]
        told = " ".join(self.text[:end].split())
        spans = [s for s in spans if s.end < end or s.kind != "heading" or " ".join(s.label.split()) in told]
        beginning = DocumentBeginning(self.row, self.text[:end], spans)
        beginning.stored = self.whole
        return beginning


class DocumentBeginning(StoredDocument):
    """The beginning of a stored document. ``text`` and ``spans`` cover only this beginning, but ``row`` describes the
    whole document.
    """

    stored: StoredDocument

    @property
    def whole(self) -> StoredDocument:
        """The whole document, as it is stored."""
        return self.stored


def text_id(text: str) -> str:
    """Returns a document's id: SHA-256 of its text as UTF-8. Equal texts are the same document."""
    return hashlib.sha256(text.encode()).hexdigest()


def labels(spans: Sequence[Span], kind: str) -> Callable[[int], str | None]:
    """Returns a function that maps a position in the text to the label of the span of this ``kind`` around the
    position, or None. ``spans`` are in order.
    """
    around = _span_around([s for s in spans if s.kind == kind])

    def at(position: int) -> str | None:
        return span.label if (span := around(position)) else None

    return at


def part_labels(spans: Sequence[Span]) -> Callable[[int], str | None]:
    """Returns a function that maps a position in the text to the name of the page, slide, row or message around the
    position, as ``name_part`` gives it; None if there is none.

    ``spans`` are in order.
    """
    around = _span_around([s for s in spans if s.kind in PARTS])

    def at(position: int) -> str | None:
        return name_part(span.kind, span.label) if (span := around(position)) else None

    return at


def part_starts(spans: Sequence[Span]) -> Callable[[int, int], tuple[tuple[int, str], ...]]:
    """Returns a function that takes two positions in the text and returns the parts (pages, slides, rows or messages)
    that begin strictly between them: (start, name) of each.

    ``spans`` are in order.
    """
    parts = [s for s in spans if s.kind in PARTS]
    starts = [s.start for s in parts]

    def between(start: int, end: int) -> tuple[tuple[int, str], ...]:
        inside = parts[bisect_right(starts, start) : bisect_left(starts, end)]
        return tuple((s.start, name_part(s.kind, s.label)) for s in inside)

    return between


def _span_around(spans: Sequence[Span]) -> Callable[[int], Span | None]:
    """Returns a function that maps a position in the text to the span around the position, or None. ``spans`` are in
    order.
    """
    starts = [s.start for s in spans]

    def at(position: int) -> Span | None:
        i = bisect_right(starts, position) - 1
        return spans[i] if i >= 0 and position < spans[i].end else None

    return at


def _file_of(row: DocumentRow, read: float) -> DocumentFile:
    return DocumentFile(**{name: getattr(row, name) for name in FILE_COLUMNS}, document=row.id, read=read)


def _named_after(row: DocumentRow, file: DocumentFile) -> DocumentRow:
    """Returns the row with the path, name and other values of one of the document's files."""
    return replace(row, **{name: getattr(file, name) for name in FILE_COLUMNS})


class Documents:
    """The documents in a store. ``files`` records the files that they were read from."""

    def __init__(self, db: Database, uploads: Path) -> None:
        self._db, self.files = db, DocumentFiles(db, uploads)

    def add(self, row: DocumentRow, text: str, spans: Iterable[Span]) -> str:
        """Store a document. Returns ``added``, ``unchanged``, or ``new version`` if another text was read from the same
        path before.

        If the text is already stored, only the row is updated (path, times, name and so on). A row with ``superseded``
        is stored as an older version. A row is also stored as an older version if another text was read from its path
        after the row's time ``used``, and the document has no other file.
        """
        with self._db.atomic():
            stored, row = self.has(row.id), self._unless_outdated(row)
            if stored:
                values = {name: value for name, value in asdict(row).items() if name not in ("id", "added", "pinned")}
                self._db.table("documents").update(row.id, values)
            else:
                self._db.table("documents").insert({**asdict(row), "text": text})
                self._db.table("spans").insert_all({"document": row.id, **asdict(s)} for s in spans)
            replaced = row.path != "-" and not row.superseded and self.files.assign(_file_of(row, row.used))
        return "new version" if replaced else "unchanged" if stored else "added"

    def _unless_outdated(self, row: DocumentRow) -> DocumentRow:
        """Returns the row unchanged, unless another document was read from its path later. In that case, the returned
        row has the name of another file of the document, or is marked as superseded if the document has no other file.
        """
        there = self.files.get(row.path)
        if not there or there.document == row.id or there.read <= row.used:
            return row
        others = self.files.of_document(row.id)
        return _named_after(row, others[0]) if others else replace(row, superseded=there.document)

    def record_file(self, row: DocumentRow) -> None:
        """Record that the file at ``row.path`` has the text of this stored document, which becomes the current
        version.
        """
        with self._db.atomic():
            self._db.table("documents").update(row.id, {"superseded": None})
            self.files.assign(_file_of(row, time.time()))
            self.files.show_a_file(row.id)

    def find_unchanged(self, path: str, nbytes: int, modified: int) -> DocumentRow | None:
        """Returns the document that was last read from ``path``, if the file had this size in bytes and modification
        time (nanoseconds) when it was read; else None.
        """
        file = self.files.get(path)
        if not file or (file.bytes, file.modified) != (nbytes, modified):
            return None
        row = self.get(file.document)
        return row and _named_after(row, file)

    def has(self, document: str) -> bool:
        """Returns True if the document is stored."""
        return bool(self._db.table("documents").count_where("id = ?", [stored_path(document)]))

    def get(self, document: str) -> DocumentRow | None:
        """Returns the row of the document with this id, or None."""
        return next(iter(self._rows("id = ?", document)), None)

    def stored(self, document: str) -> StoredDocument | None:
        """Returns the document with this id, with its text and spans, or None."""
        row = self.get(document)
        return StoredDocument(row, self.text(document), self.spans(document)) if row else None

    def all(self) -> list[DocumentRow]:
        """Returns every document, most recently used first."""
        return self._rows("1")

    def by_file(self) -> list[DocumentRow]:
        """Returns a row for each file, in the order of ``all``. A document with two files has two rows, each with the
        name and path of one file.

        A document without a file, such as an older version, has one row.
        """
        files = self.files.all()
        return [row for d in self.all() for row in ([_named_after(d, f) for f in files.get(d.id, ())] or [d])]

    def find(self, query: str) -> DocumentRow:
        """Returns the row of the one document that ``query`` names by its id, the beginning of its id, its name or its
        path. Raises DocumentError if there is none, or several.

        If ``query`` names a file, the row has the name of that file. Older versions are ignored if a current document
        matches too; they can be found by their ids.
        """
        query, name = stored_path(query), shown_name(query)
        paths, prefix = paths_meant(query), query if len(query) > 3 else "never"  # a shorter one is ambiguous
        rows = [d for d in self.by_file() if d.name == name or d.path in paths or d.id.startswith(prefix)]
        if not rows:
            raise DocumentError(f"there is no document {query!r} in the library", "see: localctx library list")
        rows = [d for d in rows if not d.superseded] or rows
        rows = [d for d in rows if d.path in paths] or rows
        if len(found := {d.id: d for d in rows}) > 1:
            ids = ", ".join(document[:12] for document in found)
            raise DocumentError(f"{query!r} names {len(found)} documents", f"say which by its id: {ids}")
        return rows[0]

    def named(self, document: str, name: str) -> DocumentRow | None:
        """Returns the row of a document. If a file of the document is called ``name``, the row has the name and path of
        that file. Returns None if the document is not stored.
        """
        row = self.get(document)
        file = next((file for file in self.files.of_document(document) if file.name == name), None)
        return _named_after(row, file) if row and file else row

    def _rows(self, where: str, *values: object) -> list[DocumentRow]:
        columns = ", ".join(DocumentRow.__annotations__)
        rows = self._db.query(f"SELECT {columns} FROM documents WHERE {where} ORDER BY used DESC, name", values)
        return [DocumentRow(**{**r, "pinned": bool(r["pinned"])}) for r in rows]

    def text(self, document: str) -> str:
        """Returns a document's text."""
        return next(iter(self._db.query("SELECT text FROM documents WHERE id = ?", [document])))["text"]

    def damaged(self) -> list[str]:
        """Returns the ids of documents whose text is damaged: the hash of the text differs from the id."""
        texts = "SELECT id, CAST(text AS BLOB) AS text FROM documents WHERE id = ?"  # damaged text may not be UTF-8
        ids = [row["id"] for row in self._db.query("SELECT id FROM documents")]
        rows = (next(iter(self._db.query(texts, [i]))) for i in ids)
        return [row["id"] for row in rows if hashlib.sha256(row["text"]).hexdigest() != row["id"]]

    def spans(self, document: str) -> list[Span]:
        """Returns a document's spans in order."""
        rows = self._db.query(
            'SELECT start, "end", kind, label FROM spans WHERE document = ? ORDER BY start', [document]
        )
        return [Span(**r) for r in rows]

    def pin(self, document: str, pinned: bool = True) -> None:
        """Protect a document's pages from eviction, or stop protecting them."""
        self._db.table("documents").update(document, {"pinned": pinned})

    def count_parts(self, document: str) -> tuple[str, int]:
        """Returns the kind of a document's parts, one of PARTS (such as page or slide), and the number of parts.
        Returns ``page`` and 0 if it has no parts. The header of a sheet is no row.
        """
        spans = self._db.query("SELECT kind, COUNT(*) AS n FROM spans WHERE document = ? GROUP BY kind", [document])
        return next(iter(parts_of_kinds({row["kind"]: row["n"] for row in spans}).items()), ("page", 0))

    def remove(self, document: str) -> None:
        """Remove a document. The next version of its previous version is then the removed document's next version. The
        caller must remove the document's caches first.
        """
        self._db.execute(
            """UPDATE documents SET superseded = (SELECT superseded FROM documents WHERE id = ?)
            WHERE superseded = ?""",
            [document, document],
        )
        self._db.execute("DELETE FROM spans WHERE document = ?", [document])
        self.files.remove_document(document)
        self._db.execute("DELETE FROM documents WHERE id = ?", [document])
        fill_files(self._db)  # without a next version, the previous version is current again and gets its file back
