"""Prefetcher: copies records from lower tiers to the device, one layer ahead of attention."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

AHEAD = 256 << 20  # limit on bytes of fetched records on the device, beside the pages


class RecordSource(Protocol):
    """The source of the records (one layer of one page) that a Prefetcher fetches: a pool. ``clock`` is the number of
    steps so far. ``version`` changes whenever pages move: an address that was read before may then belong to another
    page.
    """

    clock: int
    version: int

    def __contains__(self, page: int) -> bool: ...

    def record(self, page: int, layer: int) -> Tensor:
        """Returns the record of ``layer`` in ``page``, in the tier where it is."""

    def record_bytes(self, page: int, layer: int) -> int:
        """Returns the size in bytes of the record of ``layer`` in ``page``."""

    def copy_records(self, pages: Sequence[int], layer: int, out: Tensor, rows: Sequence[int]) -> None:
        """Copy the records of one layer of ``pages``, all of one size, to the rows ``rows`` of ``out`` [any, bytes of a
        record], in the current stream.
        """


class Streams(Protocol):
    """The current stream of a device, and a second stream in which records are copied ahead."""

    def mark(self) -> Any:
        """Returns an event in the current stream, which is reached when all work launched so far is done."""

    def wait(self, mark: Any) -> None:
        """Make later work in the current stream wait until the event ``mark`` is reached."""

    def aside(self) -> Any:
        """Returns a context in which the second stream is the current one."""

    def empty(self, nbytes: int) -> Tensor:
        """Returns new uint8 memory that both streams may use."""


class CudaStreams:
    """The streams of a CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._beside = device, torch.cuda.Stream(device)

    def mark(self) -> Any:
        return torch.cuda.current_stream(self._device).record_event()

    def wait(self, mark: Any) -> None:
        torch.cuda.current_stream(self._device).wait_event(mark)

    @contextmanager
    def aside(self) -> Iterator[None]:
        with torch.cuda.stream(self._beside):
            yield

    def empty(self, nbytes: int) -> Tensor:
        memory = torch.empty(nbytes, dtype=torch.uint8, device=self._device)
        memory.record_stream(self._beside)
        return memory


class FetchedRecords(NamedTuple):
    """Records that were fetched to the device. The record of the i-th page is row ``rows[i]`` (int64) of ``records``
    [n, bytes of a record], uint8 on the device.
    """

    records: Tensor
    rows: np.ndarray


@dataclass
class _Buffer:
    """Device memory for one run of records. ``rows`` maps each page to the row of its record. ``of`` identifies the
    contents (version of the pool, layer, bytes per record). ``copied`` is the mark after the copies that were launched
    in the second stream.
    """

    memory: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))
    rows: dict[int, int] = field(default_factory=dict)
    of: tuple[int, int, int] = (-1, -1, 1)
    copied: Any = None

    @property
    def records(self) -> Tensor:
        """The memory as a tensor [rows, bytes of a record], with as many rows as fit."""
        total = self.of[2]
        return self.memory[: len(self.memory) // total * total].view(-1, total)

    def missing(self, pages: Sequence[int]) -> list[int]:
        """Returns the pages, out of ``pages``, whose records are not in the buffer."""
        return [page for page in pages if page not in self.rows]

    def make_rows(self, pages: Sequence[int], missing: Sequence[int]) -> list[int]:
        """Assign rows to the ``missing`` pages. Records of pages that are not in ``pages`` are dropped. Returns the
        rows of the missing pages.
        """
        wanted = set(pages)
        self.rows = {page: row for page, row in self.rows.items() if page in wanted}
        taken = set(self.rows.values())
        free = [row for row in range(len(pages)) if row not in taken][: len(missing)]
        self.rows.update(zip(missing, free, strict=True))
        return free


class Prefetcher:
    """Brings records to the device, while a second stream copies the records that the next layer will need.

    A layer asks for its pages in runs. Each run has two buffers: one is read while the other is filled for the next
    layer. A buffer is overwritten only after all kernels that read it were launched. That is the case once records of
    another layer or step are requested.

    The prefetcher guesses that a layer needs the same pages as last time. If that is unknown, it guesses the pages of
    the layer before, if the records of both layers are in the same part of a page (``parts`` [layers]). A wrong guess
    only costs time. Without ``streams`` (on a CPU) nothing can overlap, so records on disk are read in their mapped
    files.
    """

    def __init__(self, source: RecordSource, parts: Sequence[int], streams: Streams | None) -> None:
        self._source, self._parts, self._streams = source, parts, streams
        self._turns: dict[int, tuple[_Buffer, _Buffer]] = {}  # by run: the buffer being read and the one being filled
        self._wanted: dict[tuple[int, int], list[int]] = {}  # by layer and run
        self._visit = (-1, -1)  # step and layer
        self._run = self._most = 0
        self._read: Any = None  # mark after all readers of records returned for other visits

    def take(self, pages: Sequence[int], layer: int) -> Tensor:
        """Returns the records of ``layer`` for ``pages``, all of one size, in order: [pages, bytes of a record] uint8
        on the device. They stay valid until records of another layer are requested.
        """
        records, rows = self.fetch(pages, layer)
        if np.array_equal(rows, np.arange(len(rows))):
            return records[: len(rows)]
        return records[torch.from_numpy(rows).to(records.device)]

    def fetch(self, pages: Sequence[int], layer: int) -> FetchedRecords:
        """Fetch the records of ``layer`` for ``pages`` like ``take``, but in any order. The result says which row has
        the record of each page.
        """
        if not self._streams:
            stacked = torch.stack([self._source.record(page, layer) for page in pages])
            return FetchedRecords(stacked, np.arange(len(pages)))
        with torch.inference_mode():  # buffers made in inference mode may only be written in it
            return self._fetch(self._streams, list(pages), layer)

    def clear(self) -> None:
        """Release all memory."""
        self._turns.clear()

    def _fetch(self, streams: Streams, pages: list[int], layer: int) -> FetchedRecords:
        self._enter(streams, layer)
        filled, read = self._turns.get(self._run, (_Buffer(), _Buffer()))[::-1]
        self._turns[self._run] = filled, read
        if filled.copied is not None:
            streams.wait(filled.copied)
        kept = self._has_room(streams, filled, pages, layer)
        buffer = filled if kept else _Buffer(streams.empty(len(pages) * self._source.record_bytes(pages[0], layer)))
        self._bring(buffer, pages, layer)
        self._prefetch(streams, read, pages, layer)
        return FetchedRecords(buffer.records, np.array([buffer.rows[page] for page in pages], np.int64))

    def _enter(self, streams: Streams, layer: int) -> None:
        """Count the runs of this layer in this step, and drop the buffers of runs that the last step did not need."""
        visit = self._source.clock, layer
        if visit == self._visit:
            self._run += 1
        else:
            if visit[0] != self._visit[0]:
                for run in [run for run in self._turns if run > self._most]:
                    del self._turns[run]
                self._wanted = {key: pages for key, pages in self._wanted.items() if key[1] <= self._most}
                self._most = 0
            self._visit, self._run, self._read = visit, 0, streams.mark()
        self._most = max(self._most, self._run)

    def _bring(self, buffer: _Buffer, pages: list[int], layer: int) -> None:
        """Copy those records of ``layer`` for ``pages`` that the ``buffer`` lacks into it, in the current stream."""
        of = self._source.version, layer, self._source.record_bytes(pages[0], layer)
        if buffer.of != of:
            buffer.of, buffer.rows = of, {}
        if missing := buffer.missing(pages):
            try:
                self._source.copy_records(missing, layer, buffer.records, buffer.make_rows(pages, missing))
            except BaseException:
                buffer.rows = {}  # unknown which of them were copied
                raise

    def _prefetch(self, streams: Streams, buffer: _Buffer, pages: list[int], layer: int) -> None:
        following = (layer + 1) % len(self._parts)
        guess = self._guess(pages, layer, following)
        with suppress(torch.OutOfMemoryError):  # without room it is copied on request
            if not guess or not self._has_room(streams, buffer, guess, following):
                return
            with streams.aside():
                streams.wait(self._read)
                try:
                    self._bring(buffer, guess, following)
                finally:
                    buffer.copied = streams.mark()

    def _guess(self, pages: list[int], layer: int, following: int) -> list[int]:
        """Returns the pages that the ``following`` layer will probably need in this run."""
        last, known = (self._wanted.get((at, self._run), []) for at in (layer, following))
        self._wanted[layer, self._run] = pages
        if not known or set(last).isdisjoint(pages):  # otherwise the last request came from another sequence
            known = pages if self._parts[following] == self._parts[layer] else []
        return [page for page in known if page in self._source] if following != layer else []

    def _has_room(self, streams: Streams, buffer: _Buffer, pages: list[int], layer: int) -> bool:
        """Returns True if the buffer is large enough, or can grow while all buffers stay within ``AHEAD`` bytes."""
        total = self._source.record_bytes(pages[0], layer)
        if len(buffer.memory) >= len(pages) * total:
            return True
        nbytes = total << (len(pages) - 1).bit_length()  # powers of two: few sizes as runs grow
        held = sum(len(other.memory) for pair in self._turns.values() for other in pair)
        if held - len(buffer.memory) + nbytes > AHEAD:
            return False
        buffer.memory, buffer.rows, buffer.copied = streams.empty(nbytes), {}, None
        self._read = streams.mark()  # earlier work may still use this memory
        return True
