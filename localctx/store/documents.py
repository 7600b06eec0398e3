"""Documents as kept: text, where it came from, and spans that name its parts."""

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from sqlite_utils import Database

from localctx.errors import DocumentError


@dataclass(frozen=True)
class Span:
    """Characters ``start..end`` of a document are a ``kind`` (heading, page) called ``label``."""

    start: int
    end: int
    kind: str
    label: str


@dataclass(frozen=True)
class DocumentRow:
    """A document as listed; ``bytes`` of the file as it came, times in seconds since 1970. A ``pinned`` one
    keeps its pages whatever else needs room.
    """

    id: str
    name: str
    path: str
    encoding: str
    bytes: int
    chars: int
    added: float
    used: float
    pinned: bool = False


def text_id(text: str) -> str:
    """A document's id: SHA-256 of its text as UTF-8. The same text is the same document."""
    return hashlib.sha256(text.encode()).hexdigest()


class Documents:
    """The documents of a store."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def add(self, row: DocumentRow, text: str, spans: Iterable[Span]) -> None:
        """Keep a document. The same text again is the same document: its name, path and last use are renewed."""
        with self._db.atomic():
            if self.has(row.id):
                self._db.table("documents").update(row.id, {"name": row.name, "path": row.path, "used": row.used})
                return
            self._db.table("documents").insert({**asdict(row), "text": text})
            self._db.table("spans").insert_all({"document": row.id, **asdict(s)} for s in spans)

    def has(self, document: str) -> bool:
        """Whether a document is kept."""
        return bool(self._db.table("documents").count_where("id = ?", [document]))

    def all(self) -> list[DocumentRow]:
        """Every document, the last used first."""
        columns = ", ".join(DocumentRow.__annotations__)
        rows = self._db.query(f"SELECT {columns} FROM documents ORDER BY used DESC, name")
        return [DocumentRow(**{**r, "pinned": bool(r["pinned"])}) for r in rows]

    def find(self, wanted: str) -> DocumentRow:
        """The one document with this id, beginning of an id, name or path. Raises DocumentError otherwise."""
        path = str(Path(wanted).absolute())
        begins = wanted if len(wanted) > 3 else "never"  # fewer letters say too little
        rows = [d for d in self.all() if d.name == wanted or d.path in (wanted, path) or d.id.startswith(begins)]
        if not rows:
            raise DocumentError(f"there is no document {wanted!r} in the library", "see: localctx library list")
        if len(rows) > 1:
            ids = ", ".join(d.id[:12] for d in rows)
            raise DocumentError(f"{wanted!r} names {len(rows)} documents", f"say which by its id: {ids}")
        return rows[0]

    def text(self, document: str) -> str:
        """A document's text."""
        return next(iter(self._db.query("SELECT text FROM documents WHERE id = ?", [document])))["text"]

    def damaged(self) -> list[str]:
        """The ids of documents whose text is not what was read."""
        return [d.id for d in self.all() if text_id(self.text(d.id)) != d.id]

    def spans(self, document: str) -> list[Span]:
        """A document's spans in order."""
        rows = self._db.query(
            'SELECT start, "end", kind, label FROM spans WHERE document = ? ORDER BY start', [document]
        )
        return [Span(**r) for r in rows]

    def pin(self, document: str, pinned: bool = True) -> None:
        """Never give up this document's pages to make room; or do again."""
        self._db.table("documents").update(document, {"pinned": pinned})

    def remove(self, document: str) -> None:
        """Forget a document; its caches must be gone."""
        self._db.execute("DELETE FROM spans WHERE document = ?", [document])
        self._db.execute("DELETE FROM documents WHERE id = ?", [document])
