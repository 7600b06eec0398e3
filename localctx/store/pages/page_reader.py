"""Page files of the local folder. ``PageReader`` maps page files and verifies the pages in them.

``PageFile`` writes a page file under a lock, so that no other process removes the file before the database refers to
it.
"""

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from localctx.store.pages.page_checksum import verified
from localctx.store.pages.page_store import OpenedPage
from localctx.store.pages.slot_file import EmptyFile, SlotFile, SlotWriter
from localctx.system import sync

IN_SLOTS = "((pages.bytes + slot_bytes - 1) / slot_bytes * slot_bytes)"
"""SQL: the bytes that a page takes in its file."""
SELECT_PAGES = "SELECT pages.*, slot_bytes FROM pages JOIN segments ON segments.id = segment"


class PageFile:
    """A new page file in ``folder``, open for writing. ``row`` is its row in the database table of page files
    (``segments``).
    """

    def __init__(self, folder: Path, slot_bytes: int) -> None:
        self.id = f"{time.time_ns():x}-{secrets.token_hex(4)}"
        self.row = {"id": self.id, "slot_bytes": slot_bytes, "created": time.time()}
        self._path = folder / f"{self.id}.kv"
        self._lock = lock_of(self._path)
        self._lock.acquire()
        self._file = SlotWriter(self._path, slot_bytes)
        sync(folder)  # makes the file's name durable

    def append(self, payload: np.ndarray) -> int:
        """Write a page (or snapshot). Returns the number of the first slot (unit of space in the file) that the page
        takes. Raises OSError.
        """
        return self._file.append(payload)

    def sync(self) -> None:
        """Return once every appended page is on disk."""
        self._file.sync()

    def close(self, named: bool) -> None:
        """Close and unlock the file. If ``named`` is False, delete it, because no row in the database refers to it."""
        self._file.close()
        if not named:
            self._path.unlink(missing_ok=True)
        self._lock.release()
        Path(self._lock.lock_file).unlink(missing_ok=True)


class PageReader:
    """Reads stored pages by their database rows. Each page file is mapped once, and a mapped file stays readable after
    it is deleted.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = dict[str, SlotFile | None]()

    def has_mapped(self, segment: str) -> bool:
        """Returns True if this reader has mapped the page file ``segment``, or tried to map it and found it missing."""
        return segment in self._files

    def open(self, row: dict[str, Any], tokens: bytes) -> OpenedPage:
        """Read the page of a database row. Returns its mapped bytes if its checksum and its ``tokens`` match; otherwise
        the result says what is wrong.
        """
        if (file := self._file(row)) is None:
            return OpenedPage(fault="has lost its file")
        payload = file.payload(row["slot"], row["bytes"])
        if payload is None:
            return OpenedPage(fault="is cut short")
        if verified(payload, row["checksum"]) is None:
            return OpenedPage(fault="fails its checksum")
        return OpenedPage(payload) if row["tokens"] == tokens else OpenedPage(fault="is of other text")

    def map(self, row: dict[str, Any]) -> Callable[[], np.ndarray | None]:
        """Map the page of a database row now, without verifying it. Returns a function that verifies the page and
        returns its bytes, or None if it is damaged.
        """
        file = self._file(row)
        payload = file.payload(row["slot"], row["bytes"]) if file else None
        return (lambda: None) if payload is None else partial(verified, payload, row["checksum"])

    def _file(self, row: dict[str, Any]) -> SlotFile | None:
        segment = row["segment"]
        if segment not in self._files:
            self._files[segment] = None
            with suppress(FileNotFoundError, EmptyFile):  # other errors say nothing about the page and are raised
                self._files[segment] = SlotFile(self._folder / f"{segment}.kv", row["slot_bytes"])
        return self._files[segment]


def lock_of(file: Path, timeout: float = -1) -> FileLock:
    """Returns the lock of a page file. The process that writes the file holds this lock. ``timeout`` is the time in
    seconds to wait for it (-1: forever).
    """
    return FileLock(file.with_suffix(".lock"), timeout=timeout)
