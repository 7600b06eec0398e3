"""Page files while they are written: locked, so that nobody sweeps them; named in SQL once they are on the disk."""

import os
import secrets
import time
from pathlib import Path

import numpy as np
from filelock import FileLock

from localctx.store.slot_file import SlotWriter

IN_SLOTS = "((pages.bytes + slot_bytes - 1) / slot_bytes * slot_bytes)"
"""SQL: what a page takes of its file."""


class PageFile:
    """A new page file of ``folder``. ``row`` is what names it in the table of segments."""

    def __init__(self, folder: Path, slot_bytes: int) -> None:
        self.id = f"{time.time_ns():x}-{secrets.token_hex(4)}"
        self.row = {"id": self.id, "slot_bytes": slot_bytes, "created": time.time()}
        self._path = folder / f"{self.id}.kv"
        self._lock = lock_of(self._path)
        self._lock.acquire()
        self._file = SlotWriter(self._path, slot_bytes)
        _sync_folder(folder)

    def append(self, payload: np.ndarray) -> int:
        """Write a page; its first slot. Raises OSError."""
        return self._file.append(payload)

    def sync(self) -> None:
        """Return once every appended page is on the disk."""
        self._file.sync()

    def close(self, named: bool) -> None:
        """Let go of the file; one that is not ``named`` goes at once."""
        self._file.close()
        if not named:
            self._path.unlink(missing_ok=True)
        self._lock.release()
        Path(self._lock.lock_file).unlink(missing_ok=True)


def lock_of(file: Path, timeout: float = -1) -> FileLock:
    """The lock that a page file's writer holds."""
    return FileLock(file.with_suffix(".lock"), timeout=timeout)


def _sync_folder(folder: Path) -> None:
    """A new file's name is durable once its folder is synced."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
