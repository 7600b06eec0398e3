"""StoredSnapshots: stores snapshots of sequences in an engine's own format (llama.cpp's), as rows of the table of
pages.

A snapshot has the state for some tokens of a sequence, and its parent is the snapshot before them. The parent of a
first snapshot is a fingerprint. So snapshots form a tree, and a path in the tree is a sequence. Sequences with a common
prefix share the snapshots of that prefix.
"""

from collections.abc import Callable, Sequence
from functools import partial as bind
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sqlite_utils import Database

from localctx.kv.pages import next_name, pack_tokens
from localctx.shape import SLOT_ALIGN
from localctx.store.pages.page_reader import SELECT_PAGES, PageReader
from localctx.store.pages.page_store import OpenedPage, PageKey
from localctx.store.pages.page_writer import PageWriter, is_stored
from localctx.store.pages.stored_pages import StoredPages


class StoredSnapshot(NamedTuple):
    """A stored snapshot that was found for a sequence: its ``key`` (name and packed tokens), its size in bytes, and
    ``stop``, the number of tokens up to its end.

    The first ``same`` tokens up to there are the same as in the requested sequence. ``open`` is a function that maps
    and verifies the bytes, and removes the snapshot if it is damaged.
    """

    key: PageKey
    nbytes: int
    stop: int
    same: int
    open: Callable[[], OpenedPage]


class StoredSnapshots:
    """The snapshots in a store. The bytes of snapshots are in the page files of ``folder``. ``pages`` deletes unused
    page files.
    """

    def __init__(self, db: Database, folder: Path, pages: StoredPages) -> None:
        self._db, self._folder, self._pages = db, folder, pages

    def longest_prefix(self, fingerprint: bytes, tokens: Sequence[int], partial: bool) -> list[StoredSnapshot]:
        """Returns the longest chain of snapshots whose tokens are a prefix of ``tokens``. The snapshots' bytes are not
        read.

        If ``partial``, one more snapshot is appended: the one that shares the most tokens with the rest of ``tokens``,
        even if its later tokens differ.
        """
        packed, found, reader = pack_tokens(tokens), list[StoredSnapshot](), PageReader(self._folder)
        path, at, parent = self._deepest(fingerprint, packed), 0, fingerprint
        if path:
            at, parent = sum(len(row["tokens"]) for row in path), path[-1]["name"]
        if partial and (row := self._most_alike(parent, packed[at:])):
            path.append(row)
        at = 0
        for row in path:
            same = at + common_tokens(row["tokens"], packed[4 * at :])
            at += len(row["tokens"]) // 4
            key = row["name"], row["tokens"]
            found.append(StoredSnapshot(key, row["bytes"], at, same, bind(self._open, row, reader)))
        return found

    def writer(self, fingerprint: bytes, names: Sequence[PageKey], cache: str) -> "SnapshotWriter":
        """Returns a writer for further snapshots of a sequence, which begins with the stored snapshots of the keys
        ``names``. The writer's commits register the snapshots in ``cache``.
        """
        self._pages.sweep()
        return SnapshotWriter(self._db, self._folder, fingerprint, list(names), cache)

    def _open(self, row: dict, reader: PageReader) -> OpenedPage:
        """Returns a snapshot's verified bytes, or says what is wrong and removes the damaged snapshot. The tokens are
        verified by the name, which is a hash of them and the parent.
        """
        if next_name(row["parent"], row["tokens"]) == row["name"]:
            opened = reader.open(row, row["tokens"])
        else:
            opened = OpenedPage(fault="is of other text")
        if opened.payload is None:
            with self._db.atomic():
                self._db.execute("DELETE FROM pages WHERE name = ?", [row["name"]])
        return opened

    def _deepest(self, parent: bytes, packed: bytes) -> list[dict]:
        """Returns the rows of the chain of snapshots after ``parent`` that matches the longest prefix of the packed
        tokens ``packed``.
        """
        best, paths = list[dict](), [(list[dict](), parent, 0)]
        reached = 0
        while paths:
            path, parent, at = paths.pop()
            if at > reached:
                best, reached = path, at
            begins = "tokens <> x'' AND tokens = substr(?, 1, length(tokens))"
            rows = self._db.query(f"{SELECT_PAGES} WHERE parent = ? AND {begins}", [parent, packed[at:]])
            paths += [([*path, row], row["name"], at + len(row["tokens"])) for row in rows]
        return best

    def _most_alike(self, parent: bytes, packed: bytes) -> dict | None:
        """Returns the snapshot after ``parent`` that has the longest prefix in common with the packed tokens
        ``packed``, or None.
        """
        rows = self._db.query(
            f"{SELECT_PAGES} WHERE parent = ? AND substr(tokens, 1, 4) = substr(?, 1, 4)", [parent, packed]
        )
        return max(rows, key=lambda row: common_tokens(row["tokens"], packed), default=None)


class SnapshotWriter(PageWriter):
    """Writes the snapshots of one sequence. ``keys`` are the keys of all snapshots of the sequence so far. ``commit``
    makes the snapshots durable.
    """

    def __init__(self, db: Database, folder: Path, fingerprint: bytes, keys: list[PageKey], cache: str) -> None:
        super().__init__(db, folder, keys, SLOT_ALIGN, cache)
        self._fingerprint = fingerprint

    @property
    def parent(self) -> bytes:
        """The parent of the next snapshot: the name of the last snapshot, or the fingerprint if there is no snapshot
        yet.
        """
        return self.keys[-1][0] if self.keys else self._fingerprint

    def next_key(self, tokens: Sequence[int]) -> PageKey:
        """Returns the key (name and packed tokens) of the next snapshot of the sequence, which has these ``tokens``."""
        packed = pack_tokens(tokens)
        return next_name(self.parent, packed), packed

    def has(self, key: PageKey) -> bool:
        """Returns True if the snapshot is stored already."""
        return is_stored(self._db, key[0])

    def append(self, key: PageKey, payload: np.ndarray | None) -> None:
        """Append a snapshot to the sequence; ``payload`` is None if it is stored already. Raises OSError."""
        parent = self.parent
        self.keys.append(key)
        if payload is not None:
            self._append(key, payload, self._slot_bytes, parent=parent)


def common_tokens(packed: bytes, other: bytes) -> int:
    """Returns the length in tokens of the longest common prefix of the packed tokens ``packed`` and ``other``."""
    count = min(len(packed), len(other)) // 4
    mine, theirs = np.frombuffer(packed, "<u4", count), np.frombuffer(other, "<u4", count)
    different = np.flatnonzero(mine != theirs)
    return int(different[0]) if len(different) else count
