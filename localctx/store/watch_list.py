"""The watched folders, and the state of each file in them: its document, and whether the document is indexed and read
ahead.
"""

import time
from collections.abc import Collection
from dataclasses import asdict, dataclass

from sqlite_utils import Database


@dataclass(frozen=True)
class WatchedFolder:
    """A watched folder with an absolute ``path``. New files in it are read, unless the folder is ``paused``."""

    path: str
    added: float
    paused: bool = False

    def has(self, file: str) -> bool:
        """True if ``file``, an absolute path, is below the folder."""
        return is_below(file, self.path)


def is_below(file: str, folder: str) -> bool:
    """True if ``file`` is in ``folder``, at any depth; both are absolute paths."""
    return file.startswith(folder.rstrip("/") + "/")


@dataclass(frozen=True)
class WatchedFile:
    """A file of a watched folder: its size, modification time (nanoseconds), ``content`` hash and ``document`` id.

    A file that could not be parsed has no document, and a ``note`` that says why. ``indexed`` is True if the document
    can be searched. A document may be read ahead, that is, prefilled before a question. ``recipe`` then names the model
    and settings; it is empty otherwise. ``note`` says what could not be read ahead. ``gone`` is the time when the file
    was found missing, in seconds since 1970, or 0.
    """

    path: str
    bytes: int
    modified: int
    content: str
    document: str
    indexed: bool = False
    recipe: str = ""
    note: str = ""
    gone: float = 0.0


class WatchList:
    """The watched folders and their files in a store."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def folders(self) -> list[WatchedFolder]:
        """Returns the watched folders in the order they were added."""
        rows = self._db.query("SELECT path, added, paused FROM watched_folders ORDER BY added, path")
        return [WatchedFolder(**{**row, "paused": bool(row["paused"])}) for row in rows]

    def add(self, path: str) -> None:
        """Watch a folder, or resume a paused one."""
        row = {"path": path, "added": time.time(), "paused": False}
        self._db.table("watched_folders").insert(row, ignore=True)
        self.pause(path, False)

    def pause(self, path: str, paused: bool = True) -> None:
        """Pause a folder, so that new files in it are not read. ``paused=False`` resumes it."""
        self._db.execute("UPDATE watched_folders SET paused = ? WHERE path = ?", [paused, path])

    def remove(self, path: str) -> bool:
        """Stop watching a folder; its documents stay in the library. Returns False if it was not watched."""
        with self._db.atomic():
            before = self.folders()
            self._db.execute("DELETE FROM watched_folders WHERE path = ?", [path])
            others = self.folders()
            for file in self.files():
                if not any(folder.has(file.path) for folder in others):
                    self.forget(file.path)
        return len(others) < len(before)

    def clear(self) -> None:
        """Stop watching all folders."""
        for folder in self.folders():
            self.remove(folder.path)

    def files(self) -> list[WatchedFile]:
        """Returns the recorded files of all watched folders, sorted by path."""
        return self._files("1")

    def with_content(self, content: str) -> list[WatchedFile]:
        """Returns the files whose bytes have the hash ``content``."""
        return self._files("content = ?", content)

    def of_document(self, document: str) -> list[WatchedFile]:
        """Returns the files of a document."""
        return self._files("document = ?", document)

    def put(self, file: WatchedFile) -> None:
        """Record a file; this replaces the previous record of the same path."""
        self._db.table("watched_files").upsert(asdict(file), pk="path")

    def forget(self, path: str) -> None:
        """Delete the record of a file."""
        self._db.execute("DELETE FROM watched_files WHERE path = ?", [path])

    def note_gone(self, paths: Collection[str], gone: float) -> None:
        """Record the time since which the files at ``paths`` are missing. ``gone`` is in seconds since 1970, or 0 if
        the files exist.
        """
        with self._db.atomic():
            for path in paths:
                self._db.execute("UPDATE watched_files SET gone = ? WHERE path = ?", [gone, path])

    def note_indexed(self, document: str) -> None:
        """Record that a document is indexed."""
        self._db.execute("UPDATE watched_files SET indexed = 1 WHERE document = ?", [document])

    def note_read(self, document: str, recipe: str, note: str = "") -> None:
        """Record that a document was read ahead (prefilled before a question) with the model and settings that
        ``recipe`` names. ``note`` says what could not be read ahead.
        """
        self._db.execute("UPDATE watched_files SET recipe = ?, note = ? WHERE document = ?", [recipe, note, document])

    def forget_readings(self, document: str) -> None:
        """Mark the files of a document that was removed from the library as neither indexed nor read ahead. If the
        document is added again, both are then done again.
        """
        self._db.execute("UPDATE watched_files SET indexed = 0, recipe = '', note = '' WHERE document = ?", [document])

    def _files(self, where: str, *values: str) -> list[WatchedFile]:
        rows = self._db.query(f"SELECT * FROM watched_files WHERE {where} ORDER BY path", values)
        return [WatchedFile(**{**row, "indexed": bool(row["indexed"])}) for row in rows]
