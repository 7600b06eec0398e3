"""DiskReserve: a file that takes some room, so that a full disk can be relieved: deleting needs room for a journal."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from localctx.budget import measure_disk

SMALLEST, LARGEST = 1 << 20, 16 << 20  # bytes; between them, as much as the database has


class DiskReserve:
    """The reserve in ``file``, for deletions from the ``database`` file. Nothing here raises: without a reserve all
    works as on a disk with room.
    """

    def __init__(self, file: Path, database: Path) -> None:
        self._file, self._database = file, database

    @property
    def size(self) -> int:
        """The bytes that it should have."""
        return min(max(self._database.stat().st_size, SMALLEST), LARGEST)

    def fill(self) -> None:
        """Take the room, if the disk has three times as much. The bytes are written: a hole would reserve nothing."""
        part = self._file.with_suffix(f".{os.getpid()}.part")
        with suppress(OSError):
            there = self._file.stat().st_size if self._file.exists() else 0
            if 2 * there >= self.size or self._room() < 3 * self.size:
                return
            try:
                part.write_bytes(bytes(self.size))
                part.chmod(0o600)
                part.replace(self._file)
            finally:
                part.unlink(missing_ok=True)

    def _room(self) -> int:
        return measure_disk(self._file.parent).free

    @contextmanager
    def freed(self) -> Iterator[None]:
        """Give the room up while the block deletes something, and take it again after, if there is room by then."""
        with suppress(OSError):
            if self._room() < 3 * self.size:
                self._file.unlink(missing_ok=True)
        try:
            yield
        finally:
            self.fill()
