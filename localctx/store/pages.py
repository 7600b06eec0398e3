"""Kept pages: found by name, proved by tokens and checksum, written before they are named.

A page's row appears only after its bytes are on the disk, so what a crash leaves behind is a file no row points to.
"""

import contextlib
import os
import secrets
import sqlite3
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout
from sqlite_utils import Database
from xxhash import xxh3_128_digest

from localctx.errors import StoreError
from localctx.kv.pages import names
from localctx.kv.tiers import EmptyFile, SlotFile, SlotWriter
from localctx.shape import PAGE

_SELECT = "SELECT pages.*, slot_bytes FROM pages JOIN segments ON segments.id = segment"


@dataclass
class Prefix:
    """The stored pages a prompt begins with, as mapped bytes, and why they end early where a page was damaged.

    ``tail`` is the open page that ends it, where that too was kept.
    """

    payloads: list[np.ndarray] = field(default_factory=list)
    tail: np.ndarray | None = None
    fault: str | None = None


class Pages:
    """The pages of a store."""

    def __init__(self, db: Database, folder: Path) -> None:
        self._db, self._folder = db, folder

    def longest_prefix(self, fingerprint: bytes, tokens: Sequence[int]) -> Prefix:
        """The longest run of kept pages that ``tokens`` begins with, each proved; an open page only at their end.

        After a damaged page the rest is proved too, and all that is damaged is forgotten: one reading mends everything.
        """
        prefix, files = Prefix(), dict[str, SlotFile | None]()
        damaged = list[bytes]()
        for name, packed in names(fingerprint, tokens):
            row = next(iter(self._db.query(f"{_SELECT} WHERE name = ?", [name])), None)
            if row is None:
                if damaged:
                    continue
                break
            payload, fault = self._prove(row, packed, files)
            if payload is None:
                prefix.fault = prefix.fault or f"kept page {len(prefix.payloads) + 1} {fault}"
                damaged.append(name)
            elif not damaged:
                prefix.payloads.append(payload)
        if damaged:
            self._forget(damaged)
        if len(prefix.payloads) * PAGE > len(tokens):
            prefix.tail = prefix.payloads.pop()
        return prefix

    def writer(self, fingerprint: bytes, tokens: Sequence[int], slot_bytes: int, cache: str) -> "PageWriter":
        """A writer for the pages of ``tokens``, entered under ``cache`` as they become durable."""
        self._sweep()
        return PageWriter(self._db, self._folder, list(names(fingerprint, tokens)), slot_bytes, cache)

    def damaged(self) -> list[bytes]:
        """The names of pages whose bytes are not what was written."""
        found, files = [], dict[str, SlotFile | None]()
        for row in list(self._db.query(f"{_SELECT} ORDER BY segment")):  # at once: an open query would stop writers
            if row["segment"] not in files:
                files.clear()
            if self._prove(row, row["tokens"], files)[0] is None:
                found.append(row["name"])
        return found

    def nbytes(self) -> int:
        """Bytes the page files take."""
        return sum(f.stat().st_size for f in self._folder.glob("*.kv"))

    def forget_unused(self) -> list[str]:
        """Drop the pages no cache holds, and the segments without pages; returns those segments, to be unlinked."""
        self._db.execute("DELETE FROM cache_pages WHERE cache NOT IN (SELECT id FROM caches)")  # removed while written
        self._db.execute("DELETE FROM pages WHERE name NOT IN (SELECT page FROM cache_pages)")
        return self._forget_empty()

    def unlink(self, segments: Iterable[str]) -> int:
        """Delete the files of forgotten segments, but for those still being written; bytes freed."""
        return sum(map(self._discard, segments))

    def _forget(self, pages: Iterable[bytes]) -> None:
        with self._db.atomic():
            for name in pages:
                self._db.execute("DELETE FROM pages WHERE name = ?", [name])
            dead = self._forget_empty()
        self.unlink(dead)

    def _forget_empty(self) -> list[str]:
        dead = [r["id"] for r in self._db.query("SELECT id FROM segments WHERE id NOT IN (SELECT segment FROM pages)")]
        for segment in dead:
            self._db.execute("DELETE FROM segments WHERE id = ?", [segment])
        return dead

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
        with contextlib.suppress(Timeout, OSError), FileLock(_lock(file), timeout=0):
            if not self._db.table("segments").count_where("id = ?", [segment]):
                with contextlib.suppress(FileNotFoundError):
                    freed = file.stat().st_size
                    file.unlink()
            _lock(file).unlink(missing_ok=True)
        return freed


class PageWriter:
    """Writes pages of one sequence behind its reading. ``commit`` makes durable and names what was written."""

    def __init__(
        self, db: Database, folder: Path, pages: list[tuple[bytes, bytes]], slot_bytes: int, cache: str
    ) -> None:
        self._db, self._folder, self._pages, self._slot_bytes, self._cache = db, folder, pages, slot_bytes, cache
        self._segment = f"{time.time_ns():x}-{secrets.token_hex(4)}"
        self._file: SlotWriter | None = None
        self._lock: FileLock | None = None
        self._rows: list[dict] = []
        self._entered = 0

    def write(self, position: int, payload: np.ndarray) -> None:
        """Append page ``position`` of the sequence, unless a page of that name is kept. Raises OSError."""
        name, packed = self._pages[position]
        if self._kept(name):
            return
        slot = self._open().append(payload)
        self._rows.append(
            {
                "name": name,
                "tokens": packed,
                "segment": self._segment,
                "slot": slot,
                "bytes": len(payload),
                "checksum": xxh3_128_digest(payload.data),
            }
        )

    def commit(self, pages: int) -> None:
        """Make all written pages durable, then name them and enter the sequence's first ``pages`` under the cache.

        Raises StoreError when the cache was removed meanwhile: nothing more of it is kept then.
        """
        if self._file:
            self._file.sync()
        with self._db.atomic():
            if not self._db.table("caches").count_where("id = ?", [self._cache]):
                raise StoreError("the document was removed while it was read", "ask again to read it anew")
            if rows := [row for row in self._rows if not self._kept(row["name"])]:
                segment = {"id": self._segment, "slot_bytes": self._slot_bytes, "created": time.time()}
                self._db.table("segments").insert(segment, ignore=True)
                self._db.table("pages").insert_all(rows)
            self._db.table("cache_pages").insert_all(
                ({"cache": self._cache, "position": i, "page": self._pages[i][0]} for i in range(self._entered, pages)),
                replace=True,
            )
        self._rows, self._entered = [], max(self._entered, pages)

    def close(self) -> None:
        """Let go of the file. What was not committed is forgotten; a file without a named page goes at once."""
        if self._file and self._lock:
            self._file.close()
            with contextlib.suppress(sqlite3.Error):  # else the next writer sweeps it
                if not self._db.table("segments").count_where("id = ?", [self._segment]):
                    self._path.unlink(missing_ok=True)
            self._lock.release()
            _lock(self._path).unlink(missing_ok=True)

    @property
    def _path(self) -> Path:
        return self._folder / f"{self._segment}.kv"

    def _kept(self, name: bytes) -> bool:
        return bool(self._db.table("pages").count_where("name = ?", [name]))

    def _open(self) -> SlotWriter:
        if self._file is None:
            self._lock = FileLock(_lock(self._path))
            self._lock.acquire()
            self._file = SlotWriter(self._path, self._slot_bytes)
            _sync_folder(self._folder)
        return self._file


def _lock(file: Path) -> Path:
    return file.with_suffix(".lock")


def _sync_folder(folder: Path) -> None:
    """A new file's name is durable once its folder is synced."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
