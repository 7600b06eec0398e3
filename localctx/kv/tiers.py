"""Tiers: where sealed pages live. A page is one run of bytes, layer after layer."""

import mmap
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from localctx.shape import SLOT_ALIGN

SPILL = 64  # slots a spill file grows by


class Tier(Protocol):
    """A place pages live. A page is a uint8 tensor, immutable once sealed; ``limit`` is in bytes, None for no limit."""

    name: str
    limit: int | None

    def put(self, page: int, payload: Tensor) -> None:
        """Take a copy of the page. Raises OSError where a disk will not take it."""

    def get(self, page: int) -> Tensor:
        """The page's bytes, without a copy."""

    def drop(self, page: int) -> None:
        """Forget the page."""

    def __contains__(self, page: int) -> bool: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[int]: ...

    @property
    def nbytes(self) -> int:
        """Bytes this tier has taken, which ``limit`` bounds."""


class _PagesById:
    """The pages a tier has, by id."""

    def __init__(self) -> None:
        self._pages: dict[int, Tensor] = {}
        self.nbytes = 0

    def get(self, page: int) -> Tensor:
        """See ``Tier``."""
        return self._pages[page]

    def __contains__(self, page: int) -> bool:
        return page in self._pages

    def __len__(self) -> int:
        return len(self._pages)

    def __iter__(self) -> Iterator[int]:
        return iter(self._pages)


class MemoryTier(_PagesById):
    """Pages in memory of one device. What a dropped page took is used again by the next of its size."""

    def __init__(self, name: str, device: torch.device, limit: int | None = None, pinned: bool = False) -> None:
        super().__init__()
        self.name, self.limit = name, limit
        self._device, self._pinned = device, pinned
        self._free: dict[int, list[Tensor]] = {}

    def new(self, page: int, nbytes: int) -> Tensor:
        """Room for a page that is about to be filled."""
        free = self._free.get(nbytes)
        payload = free.pop() if free else self._allocate(nbytes)
        self._pages[page] = payload
        self.nbytes += nbytes
        return payload

    @torch.inference_mode()  # a page sealed while the model ran may only be written so
    def put(self, page: int, payload: Tensor) -> None:
        """See ``Tier``."""
        self.new(page, len(payload)).copy_(payload)

    def drop(self, page: int) -> None:
        """See ``Tier``."""
        payload = self._pages.pop(page)
        self.nbytes -= len(payload)
        self._free.setdefault(len(payload), []).append(payload)

    def trim(self) -> None:
        """Give the memory that dropped pages took back to the system."""
        self._free.clear()

    def _allocate(self, nbytes: int) -> Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, device=self._device, pin_memory=self._pinned)


class DiskTier(_PagesById):
    """Pages in files, mapped, and read where they lie: those the store lends, and those spilled here.

    Spill files have no name, so that nothing outlives the process; only they count for ``nbytes``.
    """

    def __init__(self, folder: Path | None = None, limit: int | None = None) -> None:
        super().__init__()
        self.name, self.limit, self._folder = "disk", limit, folder
        self.lent = 0  # bytes
        self._slots: dict[int, tuple[_SpillFile, int]] = {}
        self._free: dict[int, list[tuple[_SpillFile, int]]] = {}

    def lend(self, page: int, payload: np.ndarray) -> None:
        """Take a stored page: mapped bytes that stay where they are."""
        self._pages[page] = as_tensor(payload)
        self.lent += len(payload)

    def put(self, page: int, payload: Tensor) -> None:
        """See ``Tier``."""
        file, slot = self._slot(len(payload))
        self._pages[page] = file.write(slot, payload)
        self._slots[page] = file, slot
        self.nbytes += len(payload)

    def drop(self, page: int) -> None:
        """See ``Tier``."""
        payload = self._pages.pop(page)
        if page in self._slots:
            self._free.setdefault(len(payload), []).append(self._slots.pop(page))
            self.nbytes -= len(payload)
        else:
            self.lent -= len(payload)

    def _slot(self, nbytes: int) -> "tuple[_SpillFile, int]":
        free = self._free.setdefault(nbytes, [])
        if not free:
            file = _SpillFile(self._folder, nbytes)
            free += [(file, slot) for slot in reversed(range(SPILL))]
        return free.pop()


class _SpillFile:
    """``SPILL`` slots in a file without a name, its space taken beforehand: a full disk is told here, not in a read."""

    def __init__(self, folder: Path | None, nbytes: int) -> None:
        self._slot_bytes = -(-nbytes // SLOT_ALIGN) * SLOT_ALIGN
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, prefix="spill-") as file:
            _reserve(file.fileno(), self._slot_bytes * SPILL)
            self._map = mmap.mmap(file.fileno(), self._slot_bytes * SPILL)
        self._bytes = np.frombuffer(self._map, np.uint8)

    def write(self, slot: int, payload: Tensor) -> Tensor:
        """Copy a page into a slot; returns it as it lies there."""
        place = self._bytes[slot * self._slot_bytes :][: len(payload)]
        place[:] = payload.cpu().numpy()
        return torch.from_numpy(place)


def _reserve(fd: int, nbytes: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, nbytes)
    else:  # macOS
        os.ftruncate(fd, nbytes)


def as_tensor(payload: np.ndarray) -> Tensor:
    """Mapped bytes as a tensor, without a copy. Nothing writes to a sealed page."""
    with warnings.catch_warnings():  # torch has no read-only tensors
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return torch.from_numpy(payload)
