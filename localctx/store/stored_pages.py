"""Kept pages: found by name, proved by tokens and checksum, written before they are named.

A page's row appears only after its bytes are on the disk, so what a crash leaves behind is a file no row points to.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from filelock import Timeout
from sqlite_utils import Database
from xxhash import xxh3_128_digest

from localctx.errors import StoreError
from localctx.kv.pages import page_names
from localctx.shape import PAGE
from localctx.store.page_file import IN_SLOTS, PageFile, lock_of
from localctx.store.slot_file import EmptyFile, SlotFile

_SELECT = "SELECT pages.*, slot_bytes FROM pages JOIN segments ON segments.id = segment"
_LIVE = f"SELECT segment, sum({IN_SLOTS}) AS live FROM pages JOIN segments ON segments.id = segment GROUP BY segment"
_OF_CACHE = _SELECT.replace("pages.*", "pages.*, position") + " JOIN cache_pages ON page = pages.name"


@dataclass
class PrefixMatch:
    """The stored pages a prompt begins with, as mapped bytes, and why they end early where a page was damaged.

    ``tail`` is the open page that ends it, where that too was kept.
    """

    payloads: list[np.ndarray] = field(default_factory=list)
    tail: np.ndarray | None = None
    fault: str | None = None


class StoredPages:
    """The pages of a store."""

    def __init__(self, db: Database, folder: Path) -> None:
        self._db, self._folder = db, folder

    def longest_prefix(self, fingerprint: bytes, tokens: Sequence[int]) -> PrefixMatch:
        """The longest run of kept pages that ``tokens`` begins with, each proved; an open page only at their end.

        After a damaged page the rest is proved too, and all that is damaged is forgotten: one reading mends everything.
        """
        prefix, files = PrefixMatch(), dict[str, SlotFile | None]()
        damaged = list[bytes]()
        for name, packed in page_names(fingerprint, tokens):
            payload, fault = self._proved(name, packed, files)
            if payload is None and not fault:
                if damaged:
                    continue
                break
            if payload is None:
                prefix.fault = prefix.fault or f"kept page {len(prefix.payloads) + 1} {fault}"
                damaged.append(name)
            elif not damaged:
                prefix.payloads.append(payload)
        if damaged:
            self.forget(damaged)
        if len(prefix.payloads) * PAGE > len(tokens):
            prefix.tail = prefix.payloads.pop()
        return prefix

    def writer(self, fingerprint: bytes, tokens: Sequence[int], slot_bytes: int, cache: str) -> "PageWriter":
        """A writer for the pages of ``tokens``, entered under ``cache`` as they become durable."""
        self._sweep()
        return PageWriter(self._db, self._folder, list(page_names(fingerprint, tokens)), slot_bytes, cache)

    def of(self, cache: str) -> Iterator[tuple[dict, np.ndarray]]:
        """The rows and the proved bytes of a cache's pages in order, until one is missing or damaged."""
        files = dict[str, SlotFile | None]()
        rows = list(self._db.query(f"{_OF_CACHE} WHERE cache = ? ORDER BY position", [cache]))
        for i, row in enumerate(rows):
            payload = self._prove(row, row["tokens"], files)[0]
            if row["position"] != i or payload is None:
                return
            yield row, payload

    def damaged(self, hear: Callable[[int, int], None] = lambda done, total: None) -> list[bytes]:
        """The names of pages whose bytes are not what was written. ``hear`` is told bytes read, of how many."""
        found, files, done = list[bytes](), dict[str, SlotFile | None](), 0
        rows = list(self._db.query(f"{_SELECT} ORDER BY segment"))  # at once: an open query would stop writers
        total = sum(row["bytes"] for row in rows)
        for row in rows:
            if row["segment"] not in files:
                files.clear()
            if self._prove(row, row["tokens"], files)[0] is None:
                found.append(row["name"])
            done += row["bytes"]
            hear(done, total)
        return found

    def nbytes(self) -> int:
        """Bytes the page files take."""
        return sum(f.stat().st_size for f in self._folder.glob("*.kv"))

    def live(self) -> int:
        """Bytes the kept pages take of them."""
        return sum(row["live"] for row in self._db.query(_LIVE))

    def forget_unused(self) -> list[str]:
        """Drop the pages no cache holds, and the segments without pages; returns those segments, to be unlinked."""
        self._db.execute("DELETE FROM cache_pages WHERE cache NOT IN (SELECT id FROM caches)")  # removed while written
        self._db.execute("DELETE FROM pages WHERE name NOT IN (SELECT page FROM cache_pages)")
        return self._forget_empty()

    def unlink(self, segments: Iterable[str]) -> int:
        """Delete the files of forgotten segments, but for those still being written; bytes freed."""
        return sum(map(self._discard, segments))

    def forget(self, pages: Iterable[bytes]) -> None:
        """Drop these pages, damaged as they are: they are read anew."""
        with self._db.atomic():
            for name in pages:
                self._db.execute("DELETE FROM pages WHERE name = ?", [name])
            dead = self._forget_empty()
        self.unlink(dead)

    def compact(self, share: float = 0.0) -> int:
        """Rewrite the page file with most dead bytes, of those where they are ``share`` of it; bytes freed.

        Who has the old file mapped goes on reading it: it is unlinked, while a hole punched into it would be read as
        zeros. 0 where nothing is dead, or the disk has no room for the copy.
        """
        wasted = sorted(self._wasted(), reverse=True)
        freed = (self._rewrite(segment) for dead, nbytes, segment in wasted if dead and dead >= share * nbytes)
        return next(filter(None, freed), 0)

    def _wasted(self) -> Iterator[tuple[int, int, str]]:
        """(dead bytes, bytes, segment) of each page file."""
        for row in list(self._db.query(_LIVE)):
            with contextlib.suppress(FileNotFoundError):
                nbytes = self._path(row["segment"]).stat().st_size
                yield nbytes - row["live"], nbytes, row["segment"]

    def _rewrite(self, segment: str) -> int:
        """Copy a segment's whole pages to another and delete it; bytes freed, 0 while its writer lives."""
        before, dead = self.nbytes(), list[str]()
        with contextlib.suppress(Timeout, OSError), lock_of(self._path(segment), timeout=0):
            dead = self._move(segment, list(self._db.query(f"{_SELECT} WHERE segment = ?", [segment])))
        self.unlink(dead)
        return before - self.nbytes()

    def _move(self, old: str, rows: list[dict]) -> list[str]:
        new, files, named = PageFile(self._folder, rows[0]["slot_bytes"]), dict[str, SlotFile | None](), False
        try:
            found = [(row["name"], self._prove(row, row["tokens"], files)[0]) for row in rows]
            slots = [(new.append(payload), name) for name, payload in found if payload is not None]
            new.sync()
            with self._db.atomic():
                self._db.table("segments").insert(new.row)
                for slot, name in slots:
                    where = "WHERE name = ? AND segment = ?"  # or it was forgotten meanwhile
                    self._db.execute(f"UPDATE pages SET segment = ?, slot = ? {where}", [new.id, slot, name, old])
                self._db.execute("DELETE FROM pages WHERE segment = ?", [old])  # the damaged
                dead = self._forget_empty()
            named = new.id not in dead
            return dead
        finally:
            new.close(named)

    def _forget_empty(self) -> list[str]:
        dead = [r["id"] for r in self._db.query("SELECT id FROM segments WHERE id NOT IN (SELECT segment FROM pages)")]
        for segment in dead:
            self._db.execute("DELETE FROM segments WHERE id = ?", [segment])
        return dead

    def _row(self, name: bytes) -> dict | None:
        return next(iter(self._db.query(f"{_SELECT} WHERE name = ?", [name])), None)

    def _proved(self, name: bytes, packed: bytes, files: dict[str, SlotFile | None]) -> tuple[np.ndarray | None, str]:
        """A kept page's bytes, or what is wrong with it; neither where it is not kept."""
        row = self._row(name)
        while row:
            payload, fault = self._prove(row, packed, files)
            if payload is not None or (now := self._row(name)) == row:
                return payload, fault
            row = now  # another process moved it or gave it up meanwhile
        return None, ""

    def _prove(self, row: dict, packed: bytes, files: dict[str, SlotFile | None]) -> tuple[np.ndarray | None, str]:
        segment = row["segment"]
        if segment not in files:
            files[segment] = None
            with contextlib.suppress(FileNotFoundError, EmptyFile):  # anything else is this machine's trouble, now
                files[segment] = SlotFile(self._path(segment), row["slot_bytes"])
        file = files[segment]
        if file is None:
            return None, "has lost its file"
        payload = file.payload(row["slot"], row["bytes"])
        if payload is None:
            return None, "is cut short"
        if xxh3_128_digest(payload.data) != row["checksum"]:
            return None, "fails its checksum"
        return (payload, "") if row["tokens"] == packed else (None, "is of other text")

    def _path(self, segment: str) -> Path:
        return self._folder / f"{segment}.kv"

    def _sweep(self) -> None:
        """Delete what crashed writers left: files without a row, and locks, where the lock is free."""
        known = {r["id"] for r in self._db.query("SELECT id FROM segments")}
        files = {f.stem for f in self._folder.glob("*.kv")} - known
        for segment in files | {f.stem for f in self._folder.glob("*.lock")}:
            self._discard(segment)

    def _discard(self, segment: str) -> int:
        """Delete a segment's file, unless its writer lives or has named pages in it meanwhile; bytes freed."""
        file, freed = self._path(segment), 0
        with contextlib.suppress(Timeout, OSError), lock_of(file, timeout=0) as lock:
            if not self._db.table("segments").count_where("id = ?", [segment]):
                with contextlib.suppress(FileNotFoundError):
                    freed = file.stat().st_size
                    file.unlink()
            Path(lock.lock_file).unlink(missing_ok=True)
        return freed


class PageWriter:
    """Writes pages of one sequence behind its reading. ``commit`` makes durable and names what was written."""

    def __init__(
        self, db: Database, folder: Path, pages: list[tuple[bytes, bytes]], slot_bytes: int, cache: str
    ) -> None:
        self._db, self._folder, self._pages, self._slot_bytes, self._cache = db, folder, pages, slot_bytes, cache
        self._segment: PageFile | None = None
        self._rows: list[dict] = []
        self._entered = 0

    def takes(self, position: int, nbytes: int) -> int:
        """Bytes of disk that page ``position`` of ``nbytes`` would take: none where a page of that name is kept."""
        return 0 if self._kept(self._pages[position][0]) else -(-nbytes // self._slot_bytes) * self._slot_bytes

    def write(self, position: int, payload: np.ndarray) -> None:
        """Append page ``position`` of the sequence, unless a page of that name is kept. Raises OSError."""
        name, packed = self._pages[position]
        if self._kept(name):
            return
        if self._segment is None:
            self._segment = PageFile(self._folder, self._slot_bytes)
        slot = self._segment.append(payload)
        self._rows.append(
            {
                "name": name,
                "tokens": packed,
                "segment": self._segment.id,
                "slot": slot,
                "bytes": len(payload),
                "checksum": xxh3_128_digest(payload.data),
            }
        )

    def commit(self, pages: int) -> None:
        """Make all written pages durable, then name them and enter the sequence's first ``pages`` under the cache.

        Raises StoreError when the cache was removed meanwhile: nothing more of it is kept then.
        """
        if self._segment:
            self._segment.sync()
        with self._db.atomic():
            if not self._db.table("caches").count_where("id = ?", [self._cache]):
                raise StoreError("the document was removed while it was read", "ask again to read it anew")
            if self._segment and (rows := [row for row in self._rows if not self._kept(row["name"])]):
                self._db.table("segments").insert(self._segment.row, ignore=True)
                self._db.table("pages").insert_all(rows)
            self._db.table("cache_pages").insert_all(
                ({"cache": self._cache, "position": i, "page": self._pages[i][0]} for i in range(self._entered, pages)),
                replace=True,
            )
            beyond = [self._cache, len(self._pages)]  # of what the cache held before
            self._db.execute("DELETE FROM cache_pages WHERE cache = ? AND position >= ?", beyond)
        self._rows, self._entered = [], max(self._entered, pages)

    def close(self) -> None:
        """Let go of the file. What was not committed is forgotten; a file without a named page goes at once."""
        if self._segment:
            named = True  # where SQL cannot tell: the next writer sweeps it
            with contextlib.suppress(sqlite3.Error):
                named = bool(self._db.table("segments").count_where("id = ?", [self._segment.id]))
            self._segment.close(named)

    def _kept(self, name: bytes) -> bool:
        return bool(self._db.table("pages").count_where("name = ?", [name]))
