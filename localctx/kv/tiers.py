"""Tiers: where sealed pages live, and the file format they have on disk. One record is one page of one layer."""

import mmap
import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from localctx.kv.codecs import make_codec
from localctx.kv.pages import PageTable
from localctx.kv.rope import Rope
from localctx.shape import KVShape


class Tier(Protocol):
    """A place pages live. Records are uint8 tensors, immutable once put."""

    name: str

    def put(self, page: int, records: Sequence[Tensor]) -> None:
        """Take page ``page``, one record a layer."""

    def get(self, page: int, layer: int) -> Tensor:
        """The record of one layer, without a copy."""

    def drop(self, page: int) -> None:
        """Forget the page."""

    def __contains__(self, page: int) -> bool: ...

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """Bytes of all records held."""


class MemoryTier:
    """Pages as tensors: the device tier (VRAM, or RAM on a CPU machine)."""

    def __init__(self, name: str = "device") -> None:
        self.name = name
        self._records: dict[int, list[Tensor]] = {}

    def put(self, page: int, records: Sequence[Tensor]) -> None:
        """Take the page; a page still filling, layer by layer, is put with the records it has so far."""
        self._records[page] = list(records)

    def add(self, page: int, record: Tensor) -> None:
        """The next layer's record of ``page``."""
        self._records.setdefault(page, []).append(record)

    def get(self, page: int, layer: int) -> Tensor:
        """The record of one layer."""
        return self._records[page][layer]

    def drop(self, page: int) -> None:
        """Forget the page."""
        self._records.pop(page, None)

    def __contains__(self, page: int) -> bool:
        return page in self._records

    def __len__(self) -> int:
        return len(self._records)

    @property
    def nbytes(self) -> int:
        """Bytes of all records held."""
        return sum(r.nbytes for records in self._records.values() for r in records)


class MappedTier(MemoryTier):
    """Pages of slot files, mapped: attention reads them where they lie."""

    def __init__(self) -> None:
        super().__init__("disk")


class SlotWriter:
    """Appends pages to a new file, one fixed-size slot each. Nothing is durable before ``sync``."""

    def __init__(self, path: Path, slot_bytes: int) -> None:
        self.slot_bytes = slot_bytes
        self.slots = 0
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    def append(self, records: Iterable[Tensor]) -> tuple[int, bytes]:
        """Write a page; returns its slot and its payload as written. Raises OSError when the disk will not take it."""
        payload = b"".join(r.cpu().numpy().tobytes() for r in records)
        assert len(payload) <= self.slot_bytes
        self._write(payload.ljust(self.slot_bytes, b"\0"), self.slots * self.slot_bytes)
        self.slots += 1
        return self.slots - 1, payload

    def _write(self, data: bytes, offset: int) -> None:
        while data:
            n = os.pwrite(self._fd, data, offset)
            data, offset = data[n:], offset + n

    def sync(self) -> None:
        """Return once every appended page is on the disk."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class EmptyFile(Exception):
    """A slot file without a byte, which cannot be mapped."""


class SlotFile:
    """A finished slot file, mapped read-only. Raises OSError, or EmptyFile."""

    def __init__(self, path: Path, slot_bytes: int) -> None:
        self.slot_bytes = slot_bytes
        with path.open("rb") as f:
            if not os.fstat(f.fileno()).st_size:
                raise EmptyFile(path)
            self._map = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        self._bytes = np.frombuffer(self._map, np.uint8)

    def payload(self, slot: int, nbytes: int) -> np.ndarray | None:
        """The first ``nbytes`` of a slot, mapped; None where the file ends before."""
        start = slot * self.slot_bytes
        return self._bytes[start : start + nbytes] if start + nbytes <= len(self._bytes) else None


class Pool:
    """The sealed pages of every open sequence of one model in one codec: who holds them and where they are."""

    def __init__(
        self, shape: KVShape, codec: str, device: torch.device | str = "cpu", rope: Rope | None = None
    ) -> None:
        self.shape, self.codec, self.device, self.rope = shape, codec, torch.device(device), rope
        self.codecs = [make_codec(codec, layer) for layer in shape.layers]
        self.table = PageTable()
        self.memory, self.mapped = MemoryTier(), MappedTier()
        self.tiers: tuple[Tier, ...] = (self.memory, self.mapped)

    def seal(self, page: int, record: Tensor) -> None:
        """The next layer's record of a page that is being sealed."""
        self.memory.add(page, record)

    def adopt(self, payload: np.ndarray) -> int:
        """A new page whose records are the mapped bytes ``payload``; copied up where the device is not the CPU."""
        records = self._split(payload)
        page = self.table.new()
        if self.device.type == "cpu":
            self.mapped.put(page, records)
        else:
            self.memory.put(page, [r.to(self.device) for r in records])
        return page

    def record(self, page: int, layer: int) -> Tensor:
        """One layer's record, uint8."""
        return next(tier for tier in self.tiers if page in tier).get(page, layer)

    def records(self, page: int) -> list[Tensor]:
        """Every layer's record: what a slot holds."""
        return [self.record(page, layer) for layer in range(len(self.codecs))]

    def release(self, pages: Iterable[int]) -> None:
        """One holder less for each page; a page without holders is forgotten."""
        for page in pages:
            if self.table.release(page):
                for tier in self.tiers:
                    tier.drop(page)

    def counts(self) -> dict[str, int]:
        """Pages by tier."""
        return {"device": len(self.memory), "host": 0, "disk": len(self.mapped)}

    def _split(self, payload: np.ndarray) -> list[Tensor]:
        with warnings.catch_warnings():  # torch has no read-only tensors; nothing writes to a record
            warnings.filterwarnings("ignore", message=".*not writable.*")
            whole = torch.from_numpy(payload)
        return list(whole.split([c.layout.total for c in self.codecs]))
