"""The store: one SQLite file and a folder of page files. Opens and migrates the database, and turns errors into
StoreError.

Uses a rollback journal, and syncs the files and their folder fully, so that a commit survives power loss. Does not use
WAL, because SQLite before 3.51.3 can corrupt a WAL database when the WAL is reset.
"""

import math
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from localctx.errors import Cancelled, DamagedStore, StoreError, UserError
from localctx.store.batch_results import BatchResults
from localctx.store.caches import Caches
from localctx.store.chats import Chats
from localctx.store.collections import Collections
from localctx.store.database import copies, open_database
from localctx.store.deletions import TRASH_SECONDS, Deletion, Deletions, Kind
from localctx.store.disk_reserve import DiskReserve
from localctx.store.documents import Documents
from localctx.store.integrity import damaged_rows, examine_database, find_damage, in_a_line
from localctx.store.originals import Originals
from localctx.store.pages.stored_pages import StoredPages, mark_as_cache
from localctx.store.pages.stored_snapshots import StoredSnapshots
from localctx.store.passage_answers import PassageAnswers
from localctx.store.quality_results import QualityResults
from localctx.store.search_index import SearchIndex
from localctx.store.watch_list import WatchList
from localctx.store.word_places import WordPlaces

T = TypeVar("T")

CHUNKS_AT_ONCE = 128  # chunks of a document removed in one transaction
SALVAGE = "save what is whole with: localctx library verify --repair"
_PASSING = ("locked", "full", "i/o error", "readonly", "unable to open", "too large")  # errors not caused by damage


class Store:
    """The store of one data folder. It opens ``documents``, ``originals``, ``word_places``, ``index``, ``pages``,
    ``snapshots``, ``caches``, ``chats``, ``collections``, ``results``, ``passage_answers``, ``quality_results``,
    ``watch_list`` and ``deletions``. Use it from one thread, and close it.

    Raises StoreError if the folder cannot be used.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.file = home / "library.db"
        self.folder = home / "pages"
        with store_errors(home):
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.folder.mkdir(exist_ok=True, mode=0o700)
            mark_as_cache(self.folder)
            self.db = open_database(self.file)
        self.reserve = DiskReserve(home / "reserve", self.file)
        self.pages = StoredPages(self.db, self.folder)
        self.snapshots = StoredSnapshots(self.db, self.folder, self.pages)
        self.documents = Documents(self.db, home / "uploads")
        self.originals = Originals(self.db, home / "originals", home / "uploads")
        self.word_places = WordPlaces(self.db)
        self.index = SearchIndex(self.db)
        self.caches = Caches(self.db)
        self.chats = Chats(self.db)
        self.collections = Collections(self.db)
        self.results = BatchResults(self.db)
        self.passage_answers = PassageAnswers(self.db)
        self.quality_results = QualityResults(self.db)
        self.watch_list = WatchList(self.db)
        self.deletions = Deletions(self.db, self.documents.files)
        self.reserve.fill()
        try:
            self.forget_deleted(time.time() - TRASH_SECONDS)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def is_at(home: Path) -> bool:
        """Returns True if the folder ``home`` has a store."""
        return (home / "library.db").exists()

    @staticmethod
    def state_at(home: Path) -> tuple[int, int]:
        """Returns the time and the size of the store in ``home``, which differ after each write. Raises OSError."""
        found = (home / "library.db").stat()
        return found.st_mtime_ns, found.st_size

    def close(self) -> None:
        """Close the database."""
        self.db.close()

    def disk_bytes(self) -> int:
        """Returns the size in bytes of everything that counts towards the disk budget: page files and kept original
        files.
        """
        return self.pages.nbytes() + self.originals.nbytes()

    def remove_document(self, document: str) -> int:
        """Remove a document for good, with its file, chunks, results, passage answers, caches, and the pages that no
        other cache has. Returns the number of bytes freed.
        """
        with store_errors(self.home):
            with self.reserve.freed():
                self._shorten_index(document)
                with self.db.atomic():
                    empty = self._forget_document(document)
            return self.originals.sweep() + self.pages.unlink_files(empty)

    def remove_chat(self, chat: str) -> int:
        """Remove a chat for good, with its caches and the pages that no other cache has. Returns the number of bytes
        freed.
        """
        with store_errors(self.home):
            with self.reserve.freed(), self.db.atomic():
                empty = self._forget_chat(chat)
            return self.pages.unlink_files(empty)

    def delete(self, kind: Kind, item: str) -> Deletion:
        """Move a document or chat to the trash; ``deletions.restore`` can restore it for TRASH_SECONDS.

        The pages are deleted at once, so a restored document must be prefilled again. Raises StoreError.
        """
        with store_errors(self.home):
            with self.reserve.freed():
                if kind == "document":
                    self._shorten_index(item)
                with self.db.atomic():
                    deletion = self.deletions.keep(kind, item)
                    empty = self._forget_document(item) if kind == "document" else self._forget_chat(item)
            self.pages.unlink_files(empty)
            return deletion

    def forget_deleted(self, before: float = math.inf, only: Sequence[int] | None = None) -> int:
        """Empty the trash: delete for good everything that was moved there before the time ``before`` (in seconds since
        1970). If ``only`` is given, delete only the deletions with these ids.

        Returns the number of bytes freed by deleting files. The deleted text may still be readable on disk until
        ``erase`` is called.
        """
        with store_errors(self.home):
            if not self.deletions.any_before(before):
                return 0
            with self.reserve.freed(), self.db.atomic():
                self.deletions.forget(before, only)
            return self.originals.sweep()

    def erase(self) -> None:
        """Make removed data unreadable on disk: drop the removed words from the index, rewrite the database file, and
        delete the copies of the database that were made before migrations, because they still contain the data.
        """
        with store_errors(self.home):
            for copy in copies(self.home):
                copy.unlink(missing_ok=True)
            with self.reserve.freed():
                self.db.execute("INSERT INTO chunk_words (chunk_words) VALUES ('optimize')")
                with suppress(sqlite3.OperationalError):  # no room to rewrite: secure_delete overwrote the rows already
                    self.db.execute("VACUUM")
                self.index.note_removal()

    def _shorten_index(self, document: str) -> None:
        """Remove most of a long document's index in short transactions, so that no other process waits for long."""
        if self.index.count(document) > CHUNKS_AT_ONCE and self.documents.has(document):
            text = self.documents.text(document)
            while self.index.remove(document, text, CHUNKS_AT_ONCE):
                pass

    def _forget_document(self, document: str) -> list[str]:
        """Remove the rows of a document. Returns the ids of the page files that became empty."""
        self.caches.remove_document(document)
        if self.index.count(document):
            self.index.remove(document, self.documents.text(document))
        self.results.remove_document(document)
        self.passage_answers.remove_document(document)
        self.originals.remove_document(document)
        self.word_places.remove_document(document)
        self.watch_list.forget_readings(document)
        self.collections.remove_document(document)
        self.documents.remove(document)
        return self.pages.forget_unused()

    def _forget_chat(self, chat: str) -> list[str]:
        self.caches.remove_chat(chat)
        self.chats.remove(chat)
        return self.pages.forget_unused()

    def clear(self) -> int:
        """Remove every chat, document, collection, page and watched folder. Returns the number of bytes freed.

        Also empties the trash. Measurements stay. The database file is rewritten, because deleted text could still be
        read in it.
        """
        before = self.file.stat().st_size
        freed = sum(self.remove_chat(chat.id) for chat in self.chats.all())
        freed += sum(self.remove_document(document.id) for document in self.documents.all())
        freed += self.forget_deleted()
        self.watch_list.clear()
        with store_errors(self.home):
            self.collections.clear()
            self.results.remove_document("")  # records of no document, such as a table that is kept current
        self.erase()
        return freed + before - self.file.stat().st_size

    def verify(self, on_progress: Callable[[int, int], None] = lambda done, total: None) -> "Verified":
        """Check the whole store: the database, the checksums of rows, the texts of documents, the kept files and the
        pages.

        If the database is damaged, the rest is checked as far as possible. Calls ``on_progress`` with the number of
        bytes of pages read and the total number.
        """
        with store_errors(self.home):
            result = Verified(database=examine_database(self.db))
            try:
                result.documents, result.pages = self.db.table("documents").count, self.db.table("pages").count
                result.chats, result.bytes = self.db.table("chats").count, self.pages.nbytes()
                result.damaged_rows = damaged_rows(self.db)
                result.damaged_documents = self.documents.damaged()
                result.damaged_originals = self.originals.damaged()
                result.damaged_pages = self.pages.verify(on_progress)
            except (sqlite3.DatabaseError, LookupError, TypeError, ValueError, AttributeError):
                if result.database == "ok":
                    raise
            return result

    def health(self) -> dict[str, Any]:
        """Returns ``verify`` as JSON, for ``localctx doctor``."""
        return self.verify().to_json()


PageName = bytes


@dataclass
class Verified:
    """The result of ``Store.verify``. ``database`` is ``ok``, or describes the damage of the database. The other fields
    are the numbers of documents, chats and pages, and the damaged items. Damaged rows are listed by table.
    """

    database: str
    documents: int = 0
    chats: int = 0
    pages: int = 0
    bytes: int = 0
    damaged_rows: dict[str, list[int]] = field(default_factory=dict)
    damaged_documents: list[str] = field(default_factory=list)
    damaged_originals: list[str] = field(default_factory=list)
    damaged_pages: list[PageName] = field(default_factory=list)

    @property
    def rows_intact(self) -> bool:
        """True if the database, its rows and the texts of documents are intact."""
        return self.database == "ok" and not self.damaged_documents and not self.damaged_rows

    @property
    def intact(self) -> bool:
        """True if nothing in the store is damaged."""
        return self.rows_intact and not self.damaged_pages and not self.damaged_originals

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON. Damaged documents are listed by id; damaged rows, pages and original files are
        only counted.
        """
        rows = {table: len(rows) for table, rows in self.damaged_rows.items()}
        counts = {name: len(getattr(self, name)) for name in ("damaged_pages", "damaged_originals")}
        return {**vars(self), "damaged_rows": rows, **counts}


def read_store(home: Path, open_store: Callable[[], Store], query: Callable[[Store], T]) -> T | None:
    """Open the store in ``home`` with ``open_store`` and call ``query`` with it. Returns the result of ``query``.
    Returns None if ``home`` has no store that can be read. Never creates a store.
    """
    if not Store.is_at(home):
        return None
    try:
        with store_errors(home):
            return query(open_store())
    except StoreError:
        return None


@contextmanager
def store_errors(home: Path) -> Iterator[None]:
    """Within the block, convert SQLite and disk errors to StoreError with a remedy, and errors that are caused by
    damage to DamagedStore.
    """
    try:
        yield
    except (UserError, Cancelled):
        raise
    except OSError as e:
        raise StoreError(f"{home} cannot be written ({e})", _remedy(str(e))) from e
    except Exception as e:
        if damage := damage_behind(home, e):
            raise damage from e
        if isinstance(e, sqlite3.IntegrityError):
            raise StoreError(f"{home} was changed by another program ({e})", "try again") from e
        if isinstance(e, sqlite3.Error):
            raise StoreError(f"{home} cannot be written ({e})", _remedy(str(e))) from e
        raise


def damage_behind(home: Path, error: Exception) -> DamagedStore | None:
    """Check whether ``error`` occurred because the database in ``home`` is damaged. Returns a DamagedStore to raise
    instead, or None if the database is intact.
    """
    file, reason = home / "library.db", str(error)
    if isinstance(error, sqlite3.Error) and any(passing in reason.lower() for passing in _PASSING):
        return None
    if not file.is_file():
        return None
    if type(error) is not sqlite3.DatabaseError and "decode to UTF-8" not in reason:
        reason = find_damage(file)
    return DamagedStore(f"{file} is damaged ({in_a_line(reason)})", SALVAGE) if reason else None


def _remedy(reason: str) -> str:
    reason = reason.lower()
    if "locked" in reason:
        return "another localctx is writing there: wait for it to end"
    if any(full in reason for full in ("full", "no space", "quota", "too large", "i/o error")):
        return "free some disk space, or choose another folder with LOCALCTX_HOME"
    return "make it a folder you may write, or choose another with LOCALCTX_HOME"
