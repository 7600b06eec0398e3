"""StoredSnapshots: states of sequences that an engine took itself, as rows of the table of pages.

A snapshot holds the state of some tokens, and continues its parent; the first continues a fingerprint. So they form a
tree, whose paths are sequences: one may end anywhere, and sequences that begin alike share their first snapshots.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sqlite_utils import Database

from localctx.kv.pages import next_name, pack_tokens, unpack_tokens
from localctx.shape import SLOT_ALIGN
from localctx.store.page_file import SELECT_PAGES, PageFile, PageReader
from localctx.store.page_store import PageKey
from localctx.store.page_writer import PageWriter, append_page, is_stored
from localctx.store.stored_pages import StoredPages


class StoredSnapshot(NamedTuple):
    """The verified bytes of a snapshot (mapped), its name, and where in the sequence it ends."""

    name: bytes
    stop: int
    payload: np.ndarray


@dataclass
class SnapshotMatch:
    """The ``snapshots`` that a sequence begins with, in order. ``partial`` is one that goes on from there and shares
    some of its tokens, though not all; ``fault`` says why they end early, if one was damaged.
    """

    snapshots: list[StoredSnapshot] = field(default_factory=list)
    partial: StoredSnapshot | None = None
    fault: str | None = None


class StoredSnapshots:
    """The snapshots of a store, in the page files of ``folder``, which ``pages`` cleans up."""

    def __init__(self, db: Database, folder: Path, pages: StoredPages) -> None:
        self._db, self._folder, self._pages = db, folder, pages

    def longest_prefix(self, fingerprint: bytes, tokens: Sequence[int], partial: bool) -> SnapshotMatch:
        """Returns the longest path of snapshots that ``tokens`` begin with, all verified, and with ``partial`` the one
        after it that shares most of the next tokens. A damaged one that it meets is removed.
        """
        packed, match, parent = pack_tokens(tokens), SnapshotMatch(), fingerprint
        reader = PageReader(self._folder)
        for row in self._deepest(fingerprint, packed):
            if not self._take(row, reader, match):
                return match
            parent = row["name"]
        at = match.snapshots[-1].stop if match.snapshots else 0
        if partial and (row := self._most_alike(parent, packed[4 * at :])):
            self._take(row, reader, match, partial=True)
        return match

    def writer(self, fingerprint: bytes, names: Sequence[PageKey], cache: str) -> "SnapshotWriter":
        """Returns a writer of the snapshots that come after those of ``names``, entered under ``cache``."""
        self._pages.sweep()
        return SnapshotWriter(self._db, self._folder, fingerprint, list(names), cache)

    def _take(self, row: dict, reader: PageReader, match: SnapshotMatch, partial: bool = False) -> bool:
        """Add the snapshot of ``row`` to ``match`` if its bytes are what was written; else note why, and remove it."""
        opened = reader.open(row, row["tokens"])
        start = match.snapshots[-1].stop if match.snapshots else 0
        if opened.payload is None:
            match.fault = f"kept snapshot {len(match.snapshots) + 1} {opened.fault}"
            with self._db.atomic():
                self._db.execute("DELETE FROM pages WHERE name = ?", [row["name"]])
            return False
        snapshot = StoredSnapshot(row["name"], start + len(row["tokens"]) // 4, opened.payload)
        if partial:
            match.partial = snapshot
        else:
            match.snapshots.append(snapshot)
        return True

    def _deepest(self, parent: bytes, packed: bytes) -> list[dict]:
        """Returns the rows of the path from ``parent`` that covers most of ``packed``."""
        best, paths = list[dict](), [(list[dict](), parent, 0)]
        reached = 0
        while paths:
            path, parent, at = paths.pop()
            if at > reached:
                best, reached = path, at
            rows = self._db.query(
                f"{SELECT_PAGES} WHERE parent = ? AND tokens = substr(?, 1, length(tokens))", [parent, packed[at:]]
            )
            paths += [([*path, row], row["name"], at + len(row["tokens"])) for row in rows]
        return best

    def _most_alike(self, parent: bytes, packed: bytes) -> dict | None:
        """Returns the row after ``parent`` whose tokens begin most like ``packed``; None if none does at all."""
        rows = self._db.query(
            f"{SELECT_PAGES} WHERE parent = ? AND substr(tokens, 1, 4) = substr(?, 1, 4)", [parent, packed]
        )
        wanted = unpack_tokens(packed)
        return max(rows, key=lambda row: common_tokens(unpack_tokens(row["tokens"]), wanted), default=None)


class SnapshotWriter(PageWriter):
    """Writes the snapshots of one sequence. ``keys`` are those it has so far; ``commit`` makes them durable."""

    def __init__(self, db: Database, folder: Path, fingerprint: bytes, keys: list[PageKey], cache: str) -> None:
        super().__init__(db, folder, keys, SLOT_ALIGN, cache)
        self._fingerprint = fingerprint

    @property
    def parent(self) -> bytes:
        """The name that the next snapshot continues."""
        return self.keys[-1][0] if self.keys else self._fingerprint

    def next_key(self, tokens: Sequence[int]) -> PageKey:
        """Returns the name and the packed tokens of the snapshot that would come next."""
        packed = pack_tokens(tokens)
        return next_name(self.parent, packed), packed

    def has(self, key: PageKey) -> bool:
        """Returns True if the snapshot is stored already."""
        return is_stored(self._db, key[0])

    def append(self, key: PageKey, payload: np.ndarray | None) -> None:
        """Append a snapshot to the sequence; None if it is stored already. Raises OSError."""
        parent = self.parent
        self.keys.append(key)
        if payload is None:
            return
        if self._file is None:
            self._file = PageFile(self._folder, self._slot_bytes)
        self._rows.append({**append_page(self._file, key, payload), "parent": parent})


def common_tokens(tokens: Sequence[int], other: Sequence[int]) -> int:
    """The number of tokens that both begin with."""
    differ = (i for i, (a, b) in enumerate(zip(tokens, other, strict=False)) if a != b)
    return next(differ, min(len(tokens), len(other)))
