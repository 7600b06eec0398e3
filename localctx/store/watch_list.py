"""The folders that are watched, and what was made of their files: which document each is, and how far that was read."""

import time
from collections.abc import Collection
from dataclasses import asdict, dataclass

from sqlite_utils import Database


@dataclass(frozen=True)
class WatchedFolder:
    """A folder with an absolute ``path`` whose files are read as they come, unless it is ``paused``."""

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
    """A file of a watched folder that was parsed: its size, when it was last written (nanoseconds), the ``content``
    hash of its bytes, and the id of its ``document``. One that could not be parsed has no document, and a ``note`` why.

    ``indexed``: the document can be searched. ``recipe`` names the model and settings that it was read ahead for, or
    "", and ``note`` says what could not be read ahead. ``gone``: when the file was missed (seconds since 1970), or 0.
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
        """Watch a folder; one that is paused goes on."""
        row = {"path": path, "added": time.time(), "paused": False}
        self._db.table("watched_folders").insert(row, ignore=True)
        self.pause(path, False)

    def pause(self, path: str, paused: bool = True) -> None:
        """Read nothing of a folder until it is no longer paused."""
        self._db.execute("UPDATE watched_folders SET paused = ? WHERE path = ?", [paused, path])

    def remove(self, path: str) -> bool:
        """Watch a folder no longer; its documents stay in the library. Returns False if it was not watched."""
        with self._db.atomic():
            before = self.folders()
            self._db.execute("DELETE FROM watched_folders WHERE path = ?", [path])
            others = self.folders()
            for file in self.files():
                if not any(folder.has(file.path) for folder in others):
                    self.forget(file.path)
        return len(others) < len(before)

    def clear(self) -> None:
        """Watch nothing any longer."""
        for folder in self.folders():
            self.remove(folder.path)

    def files(self) -> list[WatchedFile]:
        """Returns what is known of the files of all watched folders, in order of their paths."""
        return self._files("1")

    def with_content(self, content: str) -> list[WatchedFile]:
        """Returns the files with these bytes, by their hash."""
        return self._files("content = ?", content)

    def of_document(self, document: str) -> list[WatchedFile]:
        """Returns the files that have a document's text."""
        return self._files("document = ?", document)

    def put(self, file: WatchedFile) -> None:
        """Enter a file, in place of what was known of this path."""
        self._db.table("watched_files").upsert(asdict(file), pk="path")

    def forget(self, path: str) -> None:
        """Forget what was known of a file."""
        self._db.execute("DELETE FROM watched_files WHERE path = ?", [path])

    def note_gone(self, paths: Collection[str], gone: float) -> None:
        """Note that these files were missed at a time, or (0) that they are there."""
        with self._db.atomic():
            for path in paths:
                self._db.execute("UPDATE watched_files SET gone = ? WHERE path = ?", [gone, path])

    def note_indexed(self, document: str) -> None:
        """Note that a document can be searched."""
        self._db.execute("UPDATE watched_files SET indexed = 1 WHERE document = ?", [document])

    def note_read(self, document: str, recipe: str, note: str = "") -> None:
        """Note that a document was read ahead for ``recipe``, or as much of it as ``note`` says."""
        self._db.execute("UPDATE watched_files SET recipe = ?, note = ? WHERE document = ?", [recipe, note, document])

    def forget_readings(self, document: str) -> None:
        """Note that a document has left the library: if it comes back, it is indexed and read anew."""
        self._db.execute("UPDATE watched_files SET indexed = 0, recipe = '', note = '' WHERE document = ?", [document])

    def _files(self, where: str, *values: str) -> list[WatchedFile]:
        rows = self._db.query(f"SELECT * FROM watched_files WHERE {where} ORDER BY path", values)
        return [WatchedFile(**{**row, "indexed": bool(row["indexed"])}) for row in rows]
