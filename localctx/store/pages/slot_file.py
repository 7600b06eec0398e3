"""Slot files: sealed pages on disk, in slots of equal size. The module handles only bytes, so that the store does not
need torch.
"""

import mmap
import os
from pathlib import Path

import numpy as np

from localctx.system import BINARY


class SlotWriter:
    """Appends pages to a new file. Pages are durable only after ``sync``."""

    def __init__(self, path: Path, slot_bytes: int) -> None:
        self.slot_bytes = slot_bytes
        self.slots = 0
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, 0o600)

    def append(self, payload: np.ndarray) -> int:
        """Write a page, into several slots if it is larger than one. Returns the number of the first slot.

        Raises OSError if the disk refuses the write.
        """
        slot, slots = self.slots, -(-len(payload) // self.slot_bytes)
        self._write(payload.tobytes().ljust(slots * self.slot_bytes, b"\0"), slot * self.slot_bytes)
        self.slots += slots
        return slot

    def _write(self, data: bytes, offset: int) -> None:
        os.lseek(self._fd, offset, os.SEEK_SET)  # a failed write on a full disk may have moved the file position
        while data:
            data = data[os.write(self._fd, data) :]

    def sync(self) -> None:
        """Return once every appended page is on disk."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class EmptyFile(Exception):
    """Raised if a slot file is empty and so cannot be mapped."""


class SlotFile:
    """A finished slot file, mapped read-only. Raises OSError if the file cannot be mapped, or EmptyFile if it has no
    bytes.
    """

    def __init__(self, path: Path, slot_bytes: int) -> None:
        self.slot_bytes = slot_bytes
        with path.open("rb") as f:
            if not os.fstat(f.fileno()).st_size:
                raise EmptyFile(path)
            self._map = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        self._bytes = np.frombuffer(self._map, np.uint8)

    def payload(self, slot: int, nbytes: int) -> np.ndarray | None:
        """Returns the ``nbytes`` mapped bytes from the start of slot ``slot``, or None if the file is too short."""
        start = slot * self.slot_bytes
        return self._bytes[start : start + nbytes] if start + nbytes <= len(self._bytes) else None
