"""The store: one SQLite file and a folder of page files; opens and migrates them, and turns errors into StoreError.

A rollback journal with full syncs, not WAL: what a commit acknowledged survives power loss, and SQLite before 3.51.3
can corrupt a WAL database on reset.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sqlite_utils import Database

from localctx.errors import StoreError
from localctx.store.batch_results import BatchResults
from localctx.store.caches import Caches
from localctx.store.chats import Chats
from localctx.store.documents import Documents
from localctx.store.passage_answers import PassageAnswers
from localctx.store.quality_results import QualityResults
from localctx.store.schema import migrate
from localctx.store.search_index import SearchIndex
from localctx.store.stored_pages import StoredPages
from localctx.store.stored_snapshots import StoredSnapshots

T = TypeVar("T")


class Store:
    """``documents``, ``index``, ``pages``, ``snapshots``, ``caches``, ``chats``, ``results``, ``passage_answers`` and
    ``quality_results`` of one data folder. One thread; close it.

    Raises StoreError if the folder cannot be used.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.file = home / "library.db"
        self.folder = home / "pages"
        with store_errors(home):
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.folder.mkdir(exist_ok=True, mode=0o700)
            self.db = _open(self.file)
        self.pages = StoredPages(self.db, self.folder)
        self.snapshots = StoredSnapshots(self.db, self.folder, self.pages)
        self.documents = Documents(self.db)
        self.index = SearchIndex(self.db)
        self.caches = Caches(self.db)
        self.chats = Chats(self.db)
        self.results = BatchResults(self.db)
        self.passage_answers = PassageAnswers(self.db)
        self.quality_results = QualityResults(self.db)

    @staticmethod
    def is_at(home: Path) -> bool:
        """Returns True if there is a store in the folder ``home``."""
        return (home / "library.db").exists()

    def close(self) -> None:
        """Close the database."""
        self.db.close()

    def remove_document(self, document: str) -> int:
        """Remove a document, its chunks, results, passage answers, caches and the pages no other cache has; returns the
        bytes freed.
        """
        with store_errors(self.home):
            with self.db.atomic():
                self.caches.remove_document(document)
                if self.index.has(document):
                    self.index.remove(document, self.documents.text(document))
                self.results.remove_document(document)
                self.passage_answers.remove_document(document)
                self.documents.remove(document)
                empty = self.pages.forget_unused()
            return self.pages.unlink_files(empty)

    def remove_chat(self, chat: str) -> int:
        """Remove a chat, its caches and the pages no other cache has; returns the bytes freed."""
        with store_errors(self.home):
            with self.db.atomic():
                self.caches.remove_chat(chat)
                self.chats.remove(chat)
                empty = self.pages.forget_unused()
            return self.pages.unlink_files(empty)

    def clear(self) -> int:
        """Remove every chat, document and page; returns the bytes freed. Measurements stay.

        The database file is rewritten, because deleted text could still be read in it.
        """
        before = self.file.stat().st_size
        freed = sum(self.remove_chat(chat.id) for chat in self.chats.all())
        freed += sum(self.remove_document(document.id) for document in self.documents.all())
        with store_errors(self.home):
            self.db.execute("VACUUM")
        return freed + before - self.file.stat().st_size

    def verify(self, on_progress: Callable[[int, int], None] = lambda done, total: None) -> "Verified":
        """Read everything: SQLite's own check, each document's text against its id, each page against its checksum.

        ``on_progress`` gets the bytes of pages that were read and those there are.
        """
        with store_errors(self.home):
            return Verified(
                database=next(iter(self.db.query("PRAGMA quick_check")))["quick_check"],
                documents=self.db.table("documents").count,
                pages=self.db.table("pages").count,
                bytes=self.pages.nbytes(),
                damaged_documents=self.documents.damaged(),
                damaged_pages=self.pages.verify(on_progress),
            )

    def health(self) -> dict[str, Any]:
        """Returns ``verify`` as JSON, for ``localctx doctor``."""
        return self.verify().to_json()


PageName = bytes


@dataclass(frozen=True)
class Verified:
    """The result of reading everything: SQLite's own check, how much there is, and what is damaged."""

    database: str
    documents: int
    pages: int
    bytes: int
    damaged_documents: list[str]
    damaged_pages: list[PageName]

    @property
    def intact(self) -> bool:
        """True if nothing is damaged."""
        return self.database == "ok" and not self.damaged_documents and not self.damaged_pages

    def to_json(self) -> dict[str, Any]:
        """Returns the fields, with damaged documents by id and damaged pages as a count."""
        return {**vars(self), "damaged_pages": len(self.damaged_pages)}


def read_store(home: Path, open_store: Callable[[], Store], query: Callable[[Store], T]) -> T | None:
    """Returns the result of ``query``, or None if there is no store at ``home`` (none is made) or it cannot be read."""
    if not Store.is_at(home):
        return None
    try:
        with store_errors(home):
            return query(open_store())
    except StoreError:
        return None


@contextmanager
def store_errors(home: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the disk into a StoreError with a remedy."""
    try:
        yield
    except (sqlite3.OperationalError, OSError) as e:
        raise StoreError(f"{home} cannot be written ({e})", _remedy(str(e))) from e
    except sqlite3.IntegrityError as e:
        raise StoreError(f"{home} changed under our hands ({e})", "try again") from e
    except sqlite3.DatabaseError as e:
        raise StoreError(f"{home / 'library.db'} is damaged ({e})", "move it away; documents are then read anew") from e


def _remedy(reason: str) -> str:
    reason = reason.lower()
    if "locked" in reason:
        return "another localctx is writing there: wait for it to end"
    if any(full in reason for full in ("full", "no space", "quota", "too large", "i/o error")):
        return "free some disk space, or choose another folder with LOCALCTX_HOME"
    return "make it a folder you may write, or choose another with LOCALCTX_HOME"


class _Connection(sqlite3.Connection):
    """A connection whose transactions lock the database for writing at their start. Two processes then wait for each
    other; if both read first and then wanted to write, SQLite would refuse one at once.
    """

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        return super().execute("BEGIN IMMEDIATE" if sql == "BEGIN" else sql, *parameters)


def _open(file: Path) -> Database:
    connection = sqlite3.connect(file, timeout=30, check_same_thread=False, factory=_Connection)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")
    db = Database(connection)
    known = {m.name for m in migrate._migrations}
    if newer := [m.name for m in migrate.applied(db) if m.name not in known]:
        db.close()
        raise StoreError(f"{file} was written by a newer localctx ({newer[-1]})", "update localctx")
    if migrate.pending(db):
        with db.atomic():  # a second process finds the migration done
            migrate.apply(db)
    file.chmod(0o600)
    return db
