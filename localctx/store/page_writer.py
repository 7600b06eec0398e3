"""PageWriter: pages of one sequence, written behind its reading and named once they are durable."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from sqlite_utils import Database

from localctx.errors import StoreError
from localctx.store.page_checksum import page_checksum
from localctx.store.page_file import SELECT_PAGES, PageFile, PageReader
from localctx.store.page_store import PageKey


class PageWriter:
    """Writes the pages ``keys`` of one sequence. ``commit`` makes what was written durable and names it."""

    def __init__(self, db: Database, folder: Path, keys: list[PageKey], slot_bytes: int, cache: str) -> None:
        self._db, self._folder, self.keys, self._slot_bytes, self._cache = db, folder, keys, slot_bytes, cache
        self._file: PageFile | None = None
        self._rows: list[dict] = []
        self._entered = 0

    def disk_bytes(self, position: int, nbytes: int) -> int:
        """Returns the bytes of disk that page ``position`` of ``nbytes`` would take: 0 if that name is stored."""
        return 0 if is_stored(self._db, self.keys[position][0]) else -(-nbytes // self._slot_bytes) * self._slot_bytes

    def write(self, position: int, payload: np.ndarray) -> None:
        """Append page ``position`` of the sequence, unless a page of that name is stored. Raises OSError."""
        if is_stored(self._db, self.keys[position][0]):
            return
        if self._file is None:
            self._file = PageFile(self._folder, self._slot_bytes)
        self._rows.append(append_page(self._file, self.keys[position], payload))

    def commit(self, pages: int) -> None:
        """Make all written pages durable, then name them and enter the sequence's first ``pages`` under the cache.

        Raises StoreError if the cache was removed meanwhile: then nothing more of it is stored.
        """
        if self._file:
            self._file.sync()
        with self._db.atomic():
            if not self._db.table("caches").count_where("id = ?", [self._cache]):
                raise StoreError("the document was removed while it was read", "ask again to read it anew")
            if self._file:
                insert_pages(self._db, self._file, self._rows)
            self._db.table("cache_pages").insert_all(
                ({"cache": self._cache, "position": i, "page": self.keys[i][0]} for i in range(self._entered, pages)),
                replace=True,
            )
            beyond = [self._cache, len(self.keys)]  # entries of a longer sequence that the cache had before
            self._db.execute("DELETE FROM cache_pages WHERE cache = ? AND position >= ?", beyond)
        self._rows, self._entered = [], max(self._entered, pages)

    def mapped(self, positions: Iterable[int]) -> Iterator[tuple[int, Callable[[], np.ndarray | None]]]:
        """Map the stored pages at these positions. Yields (position, function that returns the verified bytes)."""
        reader = PageReader(self._folder)
        for position in positions:
            if row := find_row(self._db, self.keys[position][0]):
                yield position, reader.map(row)

    def close(self) -> None:
        """Close the file. What was not committed is lost; a file without a named page is removed."""
        if self._file:
            named = True  # if the database cannot be read, the next writer removes the file
            with contextlib.suppress(sqlite3.Error):
                named = bool(self._db.table("segments").count_where("id = ?", [self._file.id]))
            self._file.close(named)


def append_page(file: PageFile, key: PageKey, payload: np.ndarray) -> dict:
    """Append a page to ``file``; returns its row of the table of pages. Raises OSError."""
    return {
        "name": key[0],
        "tokens": key[1],
        "segment": file.id,
        "slot": file.append(payload),
        "bytes": len(payload),
        "checksum": page_checksum(payload.data),
    }


def insert_pages(db: Database, file: PageFile, rows: list[dict]) -> None:
    """Name the pages of ``file``, except those that another writer named meanwhile."""
    if new := [row for row in rows if not is_stored(db, row["name"])]:
        db.table("segments").insert(file.row, ignore=True)
        db.table("pages").insert_all(new)


def find_row(db: Database, name: bytes) -> dict | None:
    """Returns the row of the page of this name, with its file's ``slot_bytes``."""
    return next(iter(db.query(f"{SELECT_PAGES} WHERE name = ?", [name])), None)


def is_stored(db: Database, name: bytes) -> bool:
    """Returns True if there is a page of this name."""
    return bool(db.table("pages").count_where("name = ?", [name]))
