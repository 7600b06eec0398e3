"""PageWriter: writes the pages and snapshots of one sequence during its prefill, and records them in the database once
they are durable.

In the table of a cache's pages, the page at index i of the sequence has position i. Snapshots at this page have the
positions -2i - 1 (recurrent states) and -2i - 2 (sliding-window layers).
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
from localctx.store.pages.page_reader import SELECT_PAGES, PageFile, PageReader
from localctx.store.pages.page_store import PageKey


class PageWriter:
    """Writes the pages of one sequence. ``keys`` are the names and packed tokens of these pages. ``commit`` makes the
    written pages durable, and then records them in the database.
    """

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
        self._kinds, self._beside = kinds, set[int]()  # positions with snapshots to register
        self._files = dict[int, PageFile]()  # by slot size in bytes
        self._rows = dict[int, list[dict]]()  # rows written since the last commit, by slot size
        self._names = set[bytes]()  # names written since the last commit
        # for each page skipped because its name is stored: a function that writes the page after all
        self._present = dict[bytes, Callable[[], None]]()
        self._entered = 0

    def disk_bytes(self, position: int, nbytes: int) -> int:
        """Returns how many bytes on disk it would take to write the page at ``position``, which has ``nbytes`` bytes; 0
        if a page of its name is already stored.
        """
        return 0 if is_stored(self._db, self.keys[position][0]) else -(-nbytes // self._slot_bytes) * self._slot_bytes

    def write(self, position: int, payload: np.ndarray) -> None:
        """Write the page at ``position`` of the sequence, unless a page of its name is already stored. Raises
        OSError.
        """
        self._append(self.keys[position], payload, self._slot_bytes)

    def has_snapshot(self, kind: SnapshotKind, position: int) -> bool:
        """Returns True if a snapshot of this ``kind`` at the page ``position`` is stored, or was written by this
        writer.
        """
        key = snapshot_key(self.keys[position], kind)
        return key[0] in self._names or is_stored(self._db, key[0])

    def take_snapshot(self, kind: SnapshotKind, position: int) -> bool:
        """If a snapshot of this ``kind`` at the page ``position`` is already stored, register it in the writer's cache
        at the next commit. Returns False if there is no such snapshot.
        """
        if found := self.has_snapshot(kind, position):
            self._beside.add(position)  # otherwise it would be removed with the cache that has it now
        return found

    def write_snapshot(self, kind: SnapshotKind, position: int, payload: np.ndarray) -> None:
        """Write a snapshot of this ``kind`` at the page ``position``, unless it is already stored. Raises OSError."""
        self._append(snapshot_key(self.keys[position], kind), payload, SLOT_ALIGN)
        self._beside.add(position)

    def commit(self, pages: int) -> None:
        """Make all written pages durable, record them in the database, and register the first ``pages`` pages of the
        sequence in the cache.

        If a page was skipped because it was stored, but has been removed since, it is written now. Raises StoreError,
        and stores nothing, if the cache was removed meanwhile.
        """
        for file in self._files.values():
            file.sync()
        with self._db.atomic():
            if not self._db.table("caches").count_where("id = ?", [self._cache]):
                raise StoreError("the document was removed while it was read", "ask again to read it again")
            self._write_removed()
            for slot_bytes, rows in self._rows.items():
                insert_pages(self._db, self._files[slot_bytes], rows)
            new = range(self._entered, pages)
            where = "cache = ? AND position BETWEEN ? AND ?"  # snapshots of earlier pages at these positions
            self._db.execute(f"DELETE FROM cache_pages WHERE {where}", [self._cache, -2 * new.stop, -2 * new.start - 1])
            entries = [{"cache": self._cache, "position": i, "page": page} for i, page in self._entries(new)]
            self._db.table("cache_pages").insert_all(entries, replace=True)
            # remove entries beyond the end, from an earlier, longer sequence
            beyond = [self._cache, -2 * len(self.keys), len(self.keys) - 1]
            self._db.execute("DELETE FROM cache_pages WHERE cache = ? AND position NOT BETWEEN ? AND ?", beyond)
        self._rows, self._names, self._present, self._beside = {}, set(), {}, set()
        self._entered = max(self._entered, pages)

    def _entries(self, new: range) -> Iterator[tuple[int, bytes]]:
        """Yields the entries (position, name) that the cache lacks: of the pages at the ``new`` positions, and of
        snapshots.
        """
        yield from ((i, self.keys[i][0]) for i in new)
        for i, kind in product({*new, *self._beside}, self._kinds):
            if self.has_snapshot(kind, i):
                yield -2 * i - 1 - (kind == "sliding"), snapshot_key(self.keys[i], kind)[0]

    def mapped(self, positions: Iterable[int]) -> Iterator[tuple[int, Callable[[], np.ndarray | None]]]:
        """Map those pages at ``positions`` that are stored. Yields pairs of a position and a function, which returns
        the page's verified bytes, or None if the page is damaged.
        """
        reader = PageReader(self._folder)
        for position in positions:
            if row := find_row(self._db, self.keys[position][0]):
                yield position, reader.map(row)

    def close(self) -> None:
        """Close the page files. Pages written since the last commit are lost, and a file without committed pages is
        deleted.
        """
        for file in self._files.values():
            named = True  # if the database cannot be read, the next writer removes the file
            with contextlib.suppress(sqlite3.Error):
                named = bool(self._db.table("segments").count_where("id = ?", [file.id]))
            file.close(named)

    def _append(self, key: PageKey, payload: np.ndarray, slot_bytes: int, **more: object) -> None:
        """Append a page to the file with this slot size, unless a page of its name is stored. ``more`` are further
        columns of the page's row.
        """
        if key[0] in self._names:
            return
        if is_stored(self._db, key[0]):
            self._present[key[0]] = partial(self._put, key, payload.copy(), slot_bytes, more)
        else:
            self._put(key, payload, slot_bytes, more)

    def _write_removed(self) -> None:
        """Write the pages that were skipped because they were stored, but have been removed since."""
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
    """Write a page to ``file``. Returns the row to insert for the page into the database table of pages. Raises
    OSError.
    """
    return {
        "name": key[0],
        "tokens": key[1],
        "segment": file.id,
        "slot": file.append(payload),
        "bytes": len(payload),
        "checksum": page_checksum(payload.data),
    }


def insert_pages(db: Database, file: PageFile, rows: list[dict]) -> None:
    """Insert the rows of the pages in ``file``, except rows of pages that another writer has inserted meanwhile."""
    if new := [row for row in rows if not is_stored(db, row["name"])]:
        db.table("segments").insert(file.row, ignore=True)
        db.table("pages").insert_all(new)


def find_row(db: Database, name: bytes) -> dict | None:
    """Returns the row of the page of this name, with the ``slot_bytes`` of its file. None if there is no such page."""
    return next(iter(db.query(f"{SELECT_PAGES} WHERE name = ?", [name])), None)


def is_stored(db: Database, name: bytes) -> bool:
    """Returns True if there is a page of this name."""
    return bool(db.table("pages").count_where("name = ?", [name]))
