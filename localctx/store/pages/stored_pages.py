"""StoredPages: the local PageStore. Pages are stored in files in a folder, and indexed by SQL tables.

A page's row is inserted only after its bytes are on disk, so a crash leaves at most a file without a row, which
``sweep`` deletes.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from filelock import Timeout
from sqlite_utils import Database

from localctx.kv.pages import Activation, page_names
from localctx.shape import SLOT_ALIGN, KVShape, SnapshotKind
from localctx.store.pages.page_reader import IN_SLOTS, SELECT_PAGES, PageFile, PageReader, lock_of
from localctx.store.pages.page_store import OpenedPage, PageKey, PrefixMatch, longest_prefix
from localctx.store.pages.page_writer import PageWriter, append_page, find_row, insert_pages, is_stored

_LIVE = f"SELECT segment, sum({IN_SLOTS}) AS live FROM pages JOIN segments ON segments.id = segment GROUP BY segment"
_OF_CACHE = SELECT_PAGES.replace("pages.*", "pages.*, position") + " JOIN cache_pages ON page = pages.name"


CACHE_TAG = "CACHEDIR.TAG"
_CACHE_MARK = "Signature: 8a477f597d28d172789f06886806bc55\n# Made by localctx: all of it can be computed again.\n"


def mark_as_cache(folder: Path) -> None:
    """Mark a folder as a cache so that backup programs skip it (https://bford.info/cachedir/)."""
    with contextlib.suppress(OSError):
        if not (folder / CACHE_TAG).exists():
            (folder / CACHE_TAG).write_text(_CACHE_MARK, encoding="ascii")


class StoredPages:
    """The local ``PageStore`` of a data folder. ``folder`` has the page files, and the tables in ``db`` index their
    pages.
    """

    def __init__(self, db: Database, folder: Path) -> None:
        self._db, self._folder = db, folder

    def longest_prefix(
        self,
        fingerprint: bytes,
        tokens: Sequence[int],
        activation: Activation | None = None,
        shape: KVShape | None = None,
    ) -> PrefixMatch:
        """Find the longest stored prefix of ``tokens``, as ``page_store.longest_prefix`` does. Damaged pages that are
        found are removed.
        """
        match = longest_prefix(self, fingerprint, tokens, activation, shape)
        if match.damaged:
            self.unlink(match.damaged)
        return match

    def append(self, pages: Sequence[tuple[PageKey, np.ndarray]]) -> None:
        """Store these pages. They must be registered in a cache before the next ``forget_unused``, which removes pages
        that are in no cache.
        """
        new = [(key, payload) for key, payload in pages if not is_stored(self._db, key[0])]
        if not new:
            return
        smallest = min(len(payload) for _, payload in new)
        file, named = PageFile(self._folder, -(-smallest // SLOT_ALIGN) * SLOT_ALIGN), False
        try:
            rows = [append_page(file, key, payload) for key, payload in new]
            file.sync()
            with self._db.atomic():
                insert_pages(self._db, file, rows)
            named = True
        finally:
            file.close(named)

    def open(self, keys: Sequence[PageKey]) -> Iterator[OpenedPage]:
        """Yields the pages of ``keys`` as mapped bytes."""
        reader = PageReader(self._folder)
        for name, tokens in keys:
            yield self._open(name, tokens, reader)

    def unlink(self, names: Iterable[bytes]) -> None:
        with self._db.atomic():
            for name in names:
                self._db.execute("DELETE FROM pages WHERE name = ?", [name])
            empty = self._forget_empty_files()
        self.unlink_files(empty)

    def verify(self, on_progress: Callable[[int, int], None] = lambda done, total: None) -> list[bytes]:
        damaged, reader, done = list[bytes](), PageReader(self._folder), 0
        rows = list(self._db.query(f"{SELECT_PAGES} ORDER BY segment"))  # a list, since an open query blocks writers
        total = sum(row["bytes"] for row in rows)
        for row in rows:
            if not reader.has_mapped(row["segment"]):
                reader = PageReader(self._folder)  # unmaps the previous file
            if reader.open(row, row["tokens"]).payload is None:
                damaged.append(row["name"])
            done += row["bytes"]
            on_progress(done, total)
        return damaged

    def writer(
        self,
        fingerprint: bytes,
        tokens: Sequence[int],
        slot_bytes: int,
        cache: str,
        activation: Activation | None = None,
        kinds: Sequence[SnapshotKind] = (),
    ) -> PageWriter:
        """Returns a writer for the pages of the sequence ``tokens``, and for snapshots of these ``kinds`` beside them.

        The writer's commits register the pages and snapshots in ``cache``. ``slot_bytes`` is the size in bytes of a
        slot in the page file.
        """
        self.sweep()
        keys = list(page_names(fingerprint, tokens, activation))
        return PageWriter(self._db, self._folder, keys, slot_bytes, cache, kinds)

    def of_cache(self, cache: str) -> Iterator[tuple[dict, np.ndarray]]:
        """Yields the pages of a cache in order, each as (database row, verified bytes). Ends at the first page that is
        missing or damaged.
        """
        reader = PageReader(self._folder)
        rows = list(self._db.query(f"{_OF_CACHE} WHERE cache = ? AND position >= 0 ORDER BY position", [cache]))
        for i, row in enumerate(rows):
            payload = reader.open(row, row["tokens"]).payload
            if row["position"] != i or payload is None:
                return
            yield row, payload

    def has_snapshots(self, cache: str) -> bool:
        """Returns True if the cache has snapshots beside its pages."""
        return bool(self._db.table("cache_pages").count_where("cache = ? AND position < 0", [cache]))

    def nbytes(self) -> int:
        """Returns the total size of the page files in bytes."""
        return sum(f.stat().st_size for f in self._folder.glob("*.kv"))

    def live(self) -> int:
        """Returns the space in bytes that the pages with a database row take in page files. The rest of the page files
        is unused.
        """
        return sum(row["live"] for row in self._db.query(_LIVE))

    def forget_unused(self) -> list[str]:
        """Delete the database rows of pages that are in no cache, and the rows of page files that have no pages left.

        Returns the ids of these page files, which ``unlink_files`` deletes.
        """
        self._db.execute("DELETE FROM cache_pages WHERE cache NOT IN (SELECT id FROM caches)")  # removed while written
        self._db.execute("DELETE FROM pages WHERE name NOT IN (SELECT page FROM cache_pages)")
        return self._forget_empty_files()

    def unlink_files(self, segments: Iterable[str]) -> int:
        """Delete the page files with these ids, except files that are still being written. Returns the number of bytes
        freed.
        """
        return sum(map(self._discard, segments))

    def compact(self, share: float = 0.0) -> int:
        """Rewrite the page file with the most unused bytes, which removed pages left. At least the ``share`` (0 to 1)
        of the file must be unused. Returns the number of bytes freed.

        The old file is deleted as a whole, so that processes that have mapped it can still read it. Freeing parts of
        the file (punching holes) would make these processes read zeros. If a file cannot be rewritten, the next one is
        tried. Returns 0 if no file has unused bytes, or if the disk has no room.
        """
        wasted = sorted(self._wasted(), reverse=True)
        freed = (self._rewrite(segment) for dead, nbytes, segment in wasted if dead and dead >= share * nbytes)
        return next(filter(None, freed), 0)

    def _wasted(self) -> Iterator[tuple[int, int, str]]:
        """Yields (unused bytes, size in bytes, id) of each page file."""
        for row in list(self._db.query(_LIVE)):
            with contextlib.suppress(FileNotFoundError):
                nbytes = self._path(row["segment"]).stat().st_size
                yield nbytes - row["live"], nbytes, row["segment"]

    def _rewrite(self, segment: str) -> int:
        """Copy the intact pages of a page file to a new file, and delete the old file. Returns the number of bytes
        freed, 0 if a process is still writing the old file.
        """
        before, empty = self.nbytes(), list[str]()
        with contextlib.suppress(Timeout, OSError), lock_of(self._path(segment), timeout=0):
            empty = self._copy_pages(segment, list(self._db.query(f"{SELECT_PAGES} WHERE segment = ?", [segment])))
        self.unlink_files(empty)
        return before - self.nbytes()

    def _copy_pages(self, old: str, rows: list[dict]) -> list[str]:
        new, reader, named = PageFile(self._folder, rows[0]["slot_bytes"]), PageReader(self._folder), False
        try:
            opened = [(row["name"], reader.open(row, row["tokens"]).payload) for row in rows]
            slots = [(new.append(payload), name) for name, payload in opened if payload is not None]
            new.sync()
            with self._db.atomic():
                self._db.table("segments").insert(new.row)
                for slot, name in slots:
                    where = "WHERE name = ? AND segment = ?"  # skips a page that was removed meanwhile
                    self._db.execute(f"UPDATE pages SET segment = ?, slot = ? {where}", [new.id, slot, name, old])
                self._db.execute("DELETE FROM pages WHERE segment = ?", [old])  # only damaged pages are left
                empty = self._forget_empty_files()
            named = new.id not in empty
            return empty
        finally:
            new.close(named)

    def _forget_empty_files(self) -> list[str]:
        empty = [r["id"] for r in self._db.query("SELECT id FROM segments WHERE id NOT IN (SELECT segment FROM pages)")]
        for segment in empty:
            self._db.execute("DELETE FROM segments WHERE id = ?", [segment])
        return empty

    def _open(self, name: bytes, tokens: bytes, reader: PageReader) -> OpenedPage:
        row = find_row(self._db, name)
        while row:
            page = reader.open(row, tokens)
            if page.payload is not None or (now := find_row(self._db, name)) == row:
                return page
            row = now  # another process moved or removed the page meanwhile
        return OpenedPage()

    def _path(self, segment: str) -> Path:
        return self._folder / f"{segment}.kv"

    def sweep(self) -> None:
        """Delete the files that crashed writers left: page files without a row, and locks. Files that a process is
        still writing stay.
        """
        known = {r["id"] for r in self._db.query("SELECT id FROM segments")}
        files = {f.stem for f in self._folder.glob("*.kv")} - known
        for segment in files | {f.stem for f in self._folder.glob("*.lock")}:
            self._discard(segment)

    def _discard(self, segment: str) -> int:
        """Delete a page file and its lock, unless a process is still writing the file. Keeps the page file if the
        database has a row for it. Returns the number of bytes freed.
        """
        file, freed = self._path(segment), 0
        with contextlib.suppress(Timeout, OSError), lock_of(file, timeout=0) as lock:
            if not self._db.table("segments").count_where("id = ?", [segment]):
                with contextlib.suppress(FileNotFoundError):
                    nbytes = file.stat().st_size
                    file.unlink()  # fails on Windows while the file is mapped: the next sweep deletes it
                    freed = nbytes
            Path(lock.lock_file).unlink(missing_ok=True)
        return freed
