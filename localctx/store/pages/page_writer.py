"""PageWriter: pages of one sequence and snapshots beside them, written behind its reading and named once they are
durable.

A cache has the page at position i of the sequence as its entry i, and the snapshots beside it as its entries -2i - 1
(states) and -2i - 2 (sliding layers).
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from sqlite_utils import Database

from localctx.errors import StoreError
from localctx.kv.pages import snapshot_key
from localctx.shape import SLOT_ALIGN, SnapshotKind
from localctx.store.pages.page_checksum import page_checksum
from localctx.store.pages.page_file import SELECT_PAGES, PageFile, PageReader
from localctx.store.pages.page_store import PageKey


class PageWriter:
    """Writes the pages ``keys`` of one sequence. ``commit`` makes what was written durable and names it."""

    def __init__(
        self,
        db: Database,
        folder: Path,
        keys: list[PageKey],
        slot_bytes: int,
        cache: str,
        kinds: Sequence[SnapshotKind] = (),
    ) -> None:
        self._db, self._folder, self.keys, self._slot_bytes, self._cache = db, folder, keys, slot_bytes, cache
        self._kinds, self._beside = kinds, set[int]()  # positions beside which something was written
        self._files = dict[int, PageFile]()  # by the bytes of a slot
        self._rows = dict[int, list[dict]]()  # of pages written since the last commit, by the same
        self._names = set[bytes]()  # theirs
        self._present = dict[bytes, Callable[[], None]]()  # pages that were stored already, and what would write them
        self._entered = 0

    def disk_bytes(self, position: int, nbytes: int) -> int:
        """Returns the bytes of disk that page ``position`` of ``nbytes`` would take: 0 if that name is stored."""
        return 0 if is_stored(self._db, self.keys[position][0]) else -(-nbytes // self._slot_bytes) * self._slot_bytes

    def write(self, position: int, payload: np.ndarray) -> None:
        """Append page ``position`` of the sequence, unless a page of that name is stored. Raises OSError."""
        self._append(self.keys[position], payload, self._slot_bytes)

    def has_snapshot(self, kind: SnapshotKind, position: int) -> bool:
        """Returns True if a snapshot of this kind is stored beside page ``position``, or was written."""
        key = snapshot_key(self.keys[position], kind)
        return key[0] in self._names or is_stored(self._db, key[0])

    def take_snapshot(self, kind: SnapshotKind, position: int) -> bool:
        """Let the next commit enter a snapshot that is stored beside page ``position``; returns False if none is."""
        if found := self.has_snapshot(kind, position):
            self._beside.add(position)  # or it would go with the other cache that has it
        return found

    def write_snapshot(self, kind: SnapshotKind, position: int, payload: np.ndarray) -> None:
        """Append a snapshot beside page ``position``, unless it is stored. Raises OSError."""
        self._append(snapshot_key(self.keys[position], kind), payload, SLOT_ALIGN)
        self._beside.add(position)

    def commit(self, pages: int) -> None:
        """Make all written pages durable, then name them and enter the sequence's first ``pages`` under the cache. What
        was stored already, and went with its other caches meanwhile, is written now.

        Raises StoreError if the cache was removed meanwhile: then nothing more of it is stored.
        """
        for file in self._files.values():
            file.sync()
        with self._db.atomic():
            if not self._db.table("caches").count_where("id = ?", [self._cache]):
                raise StoreError("the document was removed while it was read", "ask again to read it anew")
            self._write_removed()
            for slot_bytes, rows in self._rows.items():
                insert_pages(self._db, self._files[slot_bytes], rows)
            new = range(self._entered, pages)
            where = "cache = ? AND position BETWEEN ? AND ?"  # snapshots of other pages that were at these positions
            self._db.execute(f"DELETE FROM cache_pages WHERE {where}", [self._cache, -2 * new.stop, -2 * new.start - 1])
            entries = [{"cache": self._cache, "position": i, "page": page} for i, page in self._entries(new)]
            self._db.table("cache_pages").insert_all(entries, replace=True)
            # entries of a longer sequence that it had before
            beyond = [self._cache, -2 * len(self.keys), len(self.keys) - 1]
            self._db.execute("DELETE FROM cache_pages WHERE cache = ? AND position NOT BETWEEN ? AND ?", beyond)
        self._rows, self._names, self._present, self._beside = {}, set(), {}, set()
        self._entered = max(self._entered, pages)

    def _entries(self, new: range) -> Iterator[tuple[int, bytes]]:
        """Yield the entries that the cache lacks, of pages at ``new`` positions and of snapshots: (position, name)."""
        yield from ((i, self.keys[i][0]) for i in new)
        for i, kind in product({*new, *self._beside}, self._kinds):
            if self.has_snapshot(kind, i):
                yield -2 * i - 1 - (kind == "sliding"), snapshot_key(self.keys[i], kind)[0]

    def mapped(self, positions: Iterable[int]) -> Iterator[tuple[int, Callable[[], np.ndarray | None]]]:
        """Map the stored pages at these positions. Yields (position, function that returns the verified bytes)."""
        reader = PageReader(self._folder)
        for position in positions:
            if row := find_row(self._db, self.keys[position][0]):
                yield position, reader.map(row)

    def close(self) -> None:
        """Close the file. What was not committed is lost; a file without a named page is removed."""
        for file in self._files.values():
            named = True  # if the database cannot be read, the next writer removes the file
            with contextlib.suppress(sqlite3.Error):
                named = bool(self._db.table("segments").count_where("id = ?", [file.id]))
            file.close(named)

    def _append(self, key: PageKey, payload: np.ndarray, slot_bytes: int, **more: object) -> None:
        """Append what has this name to the file of slots of this size, unless it is stored; ``more`` as its row has."""
        if key[0] in self._names:
            return
        if is_stored(self._db, key[0]):
            self._present[key[0]] = partial(self._put, key, payload.copy(), slot_bytes, more)
        else:
            self._put(key, payload, slot_bytes, more)

    def _write_removed(self) -> None:
        """Write what was stored when it should have been written, and was removed since."""
        removed = [put for name, put in self._present.items() if not is_stored(self._db, name)]
        for put in removed:
            put()
        for file in self._files.values() if removed else ():
            file.sync()

    def _put(self, key: PageKey, payload: np.ndarray, slot_bytes: int, more: Mapping[str, object]) -> None:
        if slot_bytes not in self._files:
            self._files[slot_bytes] = PageFile(self._folder, slot_bytes)
        row = append_page(self._files[slot_bytes], key, payload)
        self._rows.setdefault(slot_bytes, []).append({**row, **more})
        self._names.add(key[0])


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
