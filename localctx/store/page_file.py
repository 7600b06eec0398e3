"""Page files while they are written: locked, so that no process removes them; named in SQL once they are durable."""

import os
import secrets
import time
from pathlib import Path

import numpy as np
from filelock import FileLock

from localctx.store.slot_file import SlotWriter

IN_SLOTS = "((pages.bytes + slot_bytes - 1) / slot_bytes * slot_bytes)"
"""SQL: the bytes that a page takes of its file."""
SELECT_PAGES = "SELECT pages.*, slot_bytes FROM pages JOIN segments ON segments.id = segment"


class PageFile:
    """A new page file in ``folder``. ``row`` names it in the table of segments."""

    def __init__(self, folder: Path, slot_bytes: int) -> None:
        self.id = f"{time.time_ns():x}-{secrets.token_hex(4)}"
        self.row = {"id": self.id, "slot_bytes": slot_bytes, "created": time.time()}
        self._path = folder / f"{self.id}.kv"
        self._lock = lock_of(self._path)
        self._lock.acquire()
        self._file = SlotWriter(self._path, slot_bytes)
        _sync_folder(folder)

    def append(self, payload: np.ndarray) -> int:
        """Write a page; returns its first slot. Raises OSError."""
        return self._file.append(payload)

    def sync(self) -> None:
        """Return once every appended page is on the disk."""
        self._file.sync()

    def close(self, named: bool) -> None:
        """Close and unlock the file; one that is not ``named`` is deleted."""
        self._file.close()
        if not named:
            self._path.unlink(missing_ok=True)
        self._lock.release()
        Path(self._lock.lock_file).unlink(missing_ok=True)


def lock_of(file: Path, timeout: float = -1) -> FileLock:
    """Returns the lock that a page file's writer holds."""
    return FileLock(file.with_suffix(".lock"), timeout=timeout)


def _sync_folder(folder: Path) -> None:
    """Sync a folder, which makes the names of its new files durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
