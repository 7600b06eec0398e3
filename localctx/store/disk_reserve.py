"""DiskReserve: a file that reserves disk space. On a full disk the file is deleted before rows are deleted from the
database, because the journal of the database needs space.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from localctx.budget import measure_disk

SMALLEST, LARGEST = 1 << 20, 16 << 20  # bytes; the reserve has the size of the database, within these bounds


class DiskReserve:
    """Reserves disk space in ``file``, so that deletions from the ``database`` file are possible on a full disk.

    Disk errors are ignored, because the reserve is optional.
    """

    def __init__(self, file: Path, database: Path) -> None:
        self._file, self._database = file, database

    @property
    def size(self) -> int:
        """The size in bytes that the reserve should have."""
        return min(max(self._database.stat().st_size, SMALLEST), LARGEST)

    def fill(self) -> None:
        """Write the reserve file if the disk has three times its size free. Real bytes are written, because a file with
        holes reserves nothing.
        """
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
        """If the disk is nearly full, delete the reserve file while the block runs. Write it again afterwards if there
        is room.
        """
        with suppress(OSError):
            if self._room() < 3 * self.size:
                self._file.unlink(missing_ok=True)
        try:
            yield
        finally:
            self.fill()
