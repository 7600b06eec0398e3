"""Collections: named groups of documents, such as the papers of one case. A document may be in several."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from sqlite_utils import Database

from localctx.errors import UsageError

MAX_NAME = 80  # characters
_CURRENT = """WITH RECURSIVE member(id) AS (
    SELECT document FROM collection_documents WHERE collection = ?
    UNION SELECT superseded FROM documents JOIN member USING (id) WHERE superseded IS NOT NULL
)
SELECT documents.id FROM documents JOIN member USING (id) WHERE superseded IS NULL ORDER BY name, documents.id"""


@dataclass(frozen=True)
class Collection:
    """A collection of documents. ``documents`` is the number of its documents that are still in the library."""

    id: int
    name: str
    documents: int


class Collections:
    """The collections in a store."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def all(self) -> list[Collection]:
        """Returns every collection, by name."""
        rows = self._db.query("SELECT id, name FROM collections ORDER BY name COLLATE NOCASE")
        return [Collection(row["id"], row["name"], len(self.documents(row["id"]))) for row in list(rows)]

    def find(self, name: str) -> int | None:
        """Returns the id of the collection with this name, or None. Upper and lower case are treated alike."""
        wanted = _line(name).casefold()
        return next(
            (c["id"] for c in self._db.query("SELECT * FROM collections") if c["name"].casefold() == wanted), None
        )

    def add(self, name: str, documents: Sequence[str]) -> int:
        """Put stored documents, given by id, into the collection ``name``. Returns the collection's id.

        Creates the collection if it does not exist. Raises UsageError for an empty name.
        """
        if not _line(name):
            raise UsageError("a collection needs a name", "type one")
        with self._db.atomic():
            collection = self.find(name)
            if collection is None:
                made = {"name": _line(name), "created": time.time()}
                collection = int(str(self._db.table("collections").insert(made).last_pk))
            stored = """INSERT OR IGNORE INTO collection_documents (collection, document)
                SELECT ?, id FROM documents WHERE id = ?"""
            for document in documents:
                self._db.execute(stored, [collection, document])
        return collection

    def take_out(self, collection: int, documents: Sequence[str]) -> None:
        """Remove documents and their earlier versions from a collection. The collection stays, even if it becomes
        empty.
        """
        earlier = """WITH RECURSIVE earlier(id) AS (
            VALUES(?) UNION SELECT documents.id FROM documents JOIN earlier ON superseded = earlier.id)"""
        sql = f"{earlier} DELETE FROM collection_documents WHERE collection = ? AND document IN earlier"
        for document in documents:
            self._db.execute(sql, [document, collection])

    def remove(self, collection: int) -> None:
        """Remove a collection; its documents stay in the library."""
        with self._db.atomic():
            self._db.execute("DELETE FROM collection_documents WHERE collection = ?", [collection])
            self._db.execute("DELETE FROM collections WHERE id = ?", [collection])

    def documents(self, collection: int) -> list[str]:
        """Returns the ids of a collection's documents, sorted by name. If a document has several versions, only the
        newest is returned.
        """
        return [row["id"] for row in self._db.query(_CURRENT, [collection])]

    def names(self) -> dict[str, list[str]]:
        """Returns a dict from the id of each document to the names of the collections that contain it."""
        names = dict[str, list[str]]()
        for collection in self.all():
            for document in self.documents(collection.id):
                names.setdefault(document, []).append(collection.name)
        return names

    def remove_document(self, document: str) -> None:
        """Take a document out of every collection."""
        self._db.execute("DELETE FROM collection_documents WHERE document = ?", [document])

    def clear(self) -> None:
        """Remove every collection."""
        for collection in self.all():
            self.remove(collection.id)


def _line(name: str) -> str:
    return " ".join(name.split())[:MAX_NAME]
