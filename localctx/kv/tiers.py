"""Tiers: the places where sealed pages live (device, host memory, disk). A page is a contiguous block of bytes, layer
after layer.

A page that the store holds is never written again: if it must leave memory, the mapped file of the store replaces it.
"""

import mmap
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from localctx.shape import SLOT_ALIGN

SPILL = 64  # slots per spill file
SLAB = 16 << 20  # bytes of GPU or pinned memory allocated at once for several pages

StoredBytes = Callable[[], np.ndarray | None]
"""Returns a stored page's mapped bytes if their checksum matches, else None."""


class Tier(Protocol):
    """A place where sealed pages live, such as the memory of a device. A page is a uint8 tensor, which does not change.
    ``limit`` is the maximum size in bytes, None for no limit.
    """

    name: str
    limit: int | None

    def put(self, page: int, payload: Tensor) -> None:
        """Copy ``payload``, the bytes of ``page``, into this tier. Raises OSError if the disk refuses the write."""

    def get(self, page: int) -> Tensor:
        """Returns the page's bytes without copying them."""

    def drop(self, page: int) -> None:
        """Remove the page and free its memory."""

    def __contains__(self, page: int) -> bool: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[int]: ...

    @property
    def nbytes(self) -> int:
        """The size in bytes of the pages in this tier, which ``limit`` bounds."""


class _PagesById:
    """The base class of all tiers: it maps the id of each page to the page's bytes."""

    def __init__(self) -> None:
        self._pages: dict[int, Tensor] = {}
        self.nbytes = 0

    def get(self, page: int) -> Tensor:
        return self._pages[page]

    def __contains__(self, page: int) -> bool:
        return page in self._pages

    def __len__(self) -> int:
        return len(self._pages)

    def __iter__(self) -> Iterator[int]:
        return iter(self._pages)


class MemoryTier(_PagesById):
    """A tier of pages in the memory of one device. A new page reuses the memory of a dropped page of the same size."""

    def __init__(self, name: str, device: torch.device, limit: int | None = None, pinned: bool = False) -> None:
        super().__init__()
        self.name, self.limit = name, limit
        self._device, self._pinned = device, pinned
        self._free: dict[int, list[Tensor]] = {}

    def new(self, page: int, nbytes: int) -> Tensor:
        """Allocate memory of ``nbytes`` bytes for a new page and return it. The caller fills it."""
        free = self._free.get(nbytes)
        payload = free.pop() if free else self._allocate(nbytes)
        self._pages[page] = payload
        self.nbytes += nbytes
        return payload

    @torch.inference_mode()  # pages sealed in inference mode may only be written in it
    def put(self, page: int, payload: Tensor) -> None:
        self.new(page, len(payload)).copy_(payload)

    def drop(self, page: int) -> None:
        payload = self._pages.pop(page)
        self.nbytes -= len(payload)
        self._free.setdefault(len(payload), []).append(payload)

    def trim(self) -> None:
        """Return the memory of dropped pages to the system. Memory that was allocated in one block with pages still in
        use is not returned.
        """
        for nbytes, free in self._free.items():
            slabs = [page.untyped_storage() for page in free]
            dropped = Counter(slab.data_ptr() for slab in slabs)
            pairs = zip(free, slabs, strict=True)
            free[:] = [page for page, slab in pairs if dropped[slab.data_ptr()] * nbytes < slab.nbytes()]

    def _allocate(self, nbytes: int) -> Tensor:
        if self._device.type == "cpu" and not self._pinned:
            return torch.empty(nbytes, dtype=torch.uint8)
        slab = torch.empty(
            self._at_once(nbytes) * nbytes, dtype=torch.uint8, device=self._device, pin_memory=self._pinned
        )
        page, *others = slab.split(nbytes)
        self._free.setdefault(nbytes, []).extend(reversed(others))
        return page

    def _at_once(self, nbytes: int) -> int:
        """Returns the number of pages to allocate at once. Torch takes GPU memory in segments of 20 MiB, into which few
        large pages fit, and pinned memory in powers of two.
        """
        slab = max(SLAB, 1 << (4 * nbytes - 1).bit_length())
        unused = sum(size * len(free) for size, free in self._free.items())
        room = slab if self.limit is None else self.limit - self.nbytes - unused
        return max(1, min(slab, room) // nbytes)


class DiskTier(_PagesById):
    """A tier of pages in memory-mapped files, read in place: pages in the store's files, and pages that this tier
    spilled to its own files.

    Spill files are unnamed, so nothing outlives the process. ``nbytes`` is the size in bytes of spilled pages alone,
    and ``mapped_bytes`` is the size of the store's pages. ``bytes_written`` is the number of bytes ever written to
    spill files.
    """

    def __init__(self, folder: Path | None = None, limit: int | None = None) -> None:
        super().__init__()
        self.name, self.limit, self._folder = "disk", limit, folder
        self.mapped_bytes = self.bytes_written = 0
        self._slots: dict[int, tuple[_SpillFile, int]] = {}
        self._free: dict[int, list[tuple[_SpillFile, int]]] = {}

    def map_stored(self, page: int, payload: np.ndarray) -> None:
        """Add a page of the store. ``payload`` is its mapped bytes, which are read in place."""
        self._pages[page] = as_tensor(payload)
        self.mapped_bytes += len(payload)

    def put(self, page: int, payload: Tensor) -> None:
        file, slot = self._slot(len(payload))
        self._pages[page] = file.write(slot, payload)
        self._slots[page] = file, slot
        self.nbytes += len(payload)
        self.bytes_written += len(payload)

    def drop(self, page: int) -> None:
        payload = self._pages.pop(page)
        if page in self._slots:
            self._free.setdefault(len(payload), []).append(self._slots.pop(page))
            self.nbytes -= len(payload)
        else:
            self.mapped_bytes -= len(payload)

    def _slot(self, nbytes: int) -> "tuple[_SpillFile, int]":
        free = self._free.setdefault(nbytes, [])
        if not free:
            file = _SpillFile(self._folder, nbytes)
            free += [(file, slot) for slot in reversed(range(SPILL))]
        return free.pop()


class _SpillFile:
    """An unnamed file with ``SPILL`` slots, one for each spilled page. The space of the file is reserved at creation,
    so that a full disk raises OSError here and not SIGBUS in a later read.
    """

    def __init__(self, folder: Path | None, nbytes: int) -> None:
        self._slot_bytes = -(-nbytes // SLOT_ALIGN) * SLOT_ALIGN
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, prefix="spill-") as file:
            _reserve(file.fileno(), self._slot_bytes * SPILL)
            self._map = mmap.mmap(file.fileno(), self._slot_bytes * SPILL)
        self._bytes = np.frombuffer(self._map, np.uint8)

    def write(self, slot: int, payload: Tensor) -> Tensor:
        """Copy a page into a slot. Returns the mapped copy."""
        copy = self._bytes[slot * self._slot_bytes :][: len(payload)]
        copy[:] = payload.cpu().numpy()
        return torch.from_numpy(copy)


class StoredCopies:
    """Records which pages in memory are also in the store, with a function that reads the stored copy of each.
    ``nbytes`` is the size in bytes of these pages in memory, which could be freed without a write.
    """

    def __init__(self) -> None:
        self._copies: dict[int, tuple[StoredBytes, int]] = {}
        self.nbytes = 0

    def __contains__(self, page: int) -> bool:
        return page in self._copies

    def add(self, page: int, stored: StoredBytes, nbytes: int) -> None:
        """Record that the store holds a copy of ``page``, which takes ``nbytes`` bytes of memory. ``stored`` is the
        function that reads the copy.
        """
        self.discard(page)
        self._copies[page] = stored, nbytes
        self.nbytes += nbytes

    def discard(self, page: int) -> StoredBytes | None:
        """Forget the copy of ``page``. Returns the function that reads the copy, or None if there was no copy."""
        stored, nbytes = self._copies.pop(page, (None, 0))
        self.nbytes -= nbytes
        return stored

    def take(self, page: int) -> np.ndarray | None:
        """Forget the stored copy of ``page`` and return its verified bytes. Returns None if there is no copy, or if its
        length is wrong.
        """
        nbytes = self._copies[page][1] if page in self else 0
        payload = stored() if (stored := self.discard(page)) else None
        return payload if payload is not None and len(payload) == nbytes else None


def _reserve(fd: int, nbytes: int) -> None:
    if sys.platform == "linux":
        os.posix_fallocate(fd, 0, nbytes)
    else:
        os.ftruncate(fd, nbytes)


def as_tensor(payload: np.ndarray) -> Tensor:
    """Returns mapped bytes as a tensor without copying them. Nothing writes to a sealed page."""
    with warnings.catch_warnings():  # torch has no read-only tensors
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return torch.from_numpy(payload)
