"""Prefetcher: copies records of lower tiers to the device, one layer ahead of attention."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

AHEAD = 256 << 20  # the most bytes of records that are kept on the device beside the pages


class RecordSource(Protocol):
    """Where records are copied from. ``clock`` counts steps, ``version`` the moves of pages: bytes that were read
    before a move may be those of another page.
    """

    clock: int
    version: int

    def __contains__(self, page: int) -> bool: ...

    def record(self, page: int, layer: int) -> Tensor:
        """One layer's record, where it is."""

    def record_bytes(self, page: int, layer: int) -> int:
        """Its bytes."""

    def copy_records(self, pages: Sequence[int], layer: int, out: Tensor, rows: Sequence[int]) -> None:
        """Copy one layer's records of ``pages``, all of one size, to ``rows`` of ``out``, in the current stream."""


class Streams(Protocol):
    """The current stream and one beside it, in which records are copied ahead."""

    def mark(self) -> Any:
        """A mark behind everything that was launched in the current stream so far."""

    def wait(self, mark: Any) -> None:
        """Have what is launched in the current stream from here on wait for what is before ``mark``."""

    def aside(self) -> Any:
        """A context in which the stream beside is the current one."""

    def empty(self, nbytes: int) -> Tensor:
        """Memory for both streams, uint8."""


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
    """The record of the i-th page is in row ``rows[i]`` (int64) of ``records`` [n, total], uint8 on the device."""

    records: Tensor
    rows: np.ndarray


@dataclass
class _Buffer:
    """Memory for one run of records: the row of each page's, what they are ``of`` (version, layer, bytes of a record),
    and the mark behind the copies that were launched beside.
    """

    memory: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))
    rows: dict[int, int] = field(default_factory=dict)
    of: tuple[int, int, int] = (-1, -1, 1)
    copied: Any = None

    @property
    def records(self) -> Tensor:
        """[rows, total]: as many as there is room for."""
        total = self.of[2]
        return self.memory[: len(self.memory) // total * total].view(-1, total)

    def missing(self, pages: Sequence[int]) -> list[int]:
        """Those of ``pages`` whose records are not here."""
        return [page for page in pages if page not in self.rows]

    def make_rows(self, pages: Sequence[int], missing: Sequence[int]) -> list[int]:
        """Rows for the ``missing`` ones of ``pages``. What is not among these is given up."""
        wanted = set(pages)
        self.rows = {page: row for page, row in self.rows.items() if page in wanted}
        taken = set(self.rows.values())
        free = [row for row in range(len(pages)) if row not in taken][: len(missing)]
        self.rows.update(zip(missing, free, strict=True))
        return free


class Prefetcher:
    """Brings records to the device, and meanwhile copies what the next layer will want, in a stream beside.

    A layer asks for its pages in runs. Each run has two buffers, one of which is filled for the next layer while the
    other is read: it is written again only when everything has been launched that reads it, which is when records of
    another layer, or in another step, are asked for. The next layer is expected to want the pages that it wanted last,
    or else those of this layer if its records lie in the same of ``parts`` [layers]; a wrong guess costs only time.
    Without ``streams``, on a CPU, there is nothing to overlap: records are read where they are mapped.
    """

    def __init__(self, source: RecordSource, parts: Sequence[int], streams: Streams | None) -> None:
        self._source, self._parts, self._streams = source, parts, streams
        self._turns: dict[int, tuple[_Buffer, _Buffer]] = {}  # by run: what is read, and what is filled
        self._wanted: dict[tuple[int, int], list[int]] = {}  # by layer and run
        self._visit = (-1, -1)  # step and layer
        self._run = self._most = 0
        self._read: Any = None  # the mark behind all that reads what was handed out for other visits

    def take(self, pages: Sequence[int], layer: int) -> Tensor:
        """The records of ``pages`` of a layer, all of one size, in order: [pages, total] uint8 on the device. They stay
        as they are until those of another layer are asked for.
        """
        records, rows = self.fetch(pages, layer)
        if np.array_equal(rows, np.arange(len(rows))):
            return records[: len(rows)]
        return records[torch.from_numpy(rows).to(records.device)]

    def fetch(self, pages: Sequence[int], layer: int) -> FetchedRecords:
        """``take``, in any order."""
        if not self._streams:
            stacked = torch.stack([self._source.record(page, layer) for page in pages])
            return FetchedRecords(stacked, np.arange(len(pages)))
        with torch.inference_mode():  # a buffer made while the model ran may only be written so
            return self._fetch(self._streams, list(pages), layer)

    def clear(self) -> None:
        """Give up all memory."""
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
        """Count the runs of this layer in this step. Buffers of runs that the last step did not have are given up."""
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
        """Copy what is not in the buffer yet, in the current stream."""
        of = self._source.version, layer, self._source.record_bytes(pages[0], layer)
        if buffer.of != of:
            buffer.of, buffer.rows = of, {}
        if missing := buffer.missing(pages):
            try:
                self._source.copy_records(missing, layer, buffer.records, buffer.make_rows(pages, missing))
            except BaseException:
                buffer.rows = {}  # what was copied of them nobody knows
                raise

    def _prefetch(self, streams: Streams, buffer: _Buffer, pages: list[int], layer: int) -> None:
        following = (layer + 1) % len(self._parts)
        guess = self._guess(pages, layer, following)
        with suppress(torch.OutOfMemoryError):  # it is copied when it is asked for
            if not guess or not self._has_room(streams, buffer, guess, following):
                return
            with streams.aside():
                streams.wait(self._read)
                try:
                    self._bring(buffer, guess, following)
                finally:
                    buffer.copied = streams.mark()

    def _guess(self, pages: list[int], layer: int, following: int) -> list[int]:
        """The pages that the ``following`` layer will want in this run."""
        last, known = (self._wanted.get((at, self._run), []) for at in (layer, following))
        self._wanted[layer, self._run] = pages
        if not known or set(last).isdisjoint(pages):  # or it was another sequence that wanted them
            known = pages if self._parts[following] == self._parts[layer] else []
        return [page for page in known if page in self._source] if following != layer else []

    def _has_room(self, streams: Streams, buffer: _Buffer, pages: list[int], layer: int) -> bool:
        """True if the buffer is large enough, or can be made so with all of them taking at most ``AHEAD`` bytes."""
        total = self._source.record_bytes(pages[0], layer)
        if len(buffer.memory) >= len(pages) * total:
            return True
        nbytes = total << (len(pages) - 1).bit_length()  # few sizes, as runs grow
        held = sum(len(other.memory) for pair in self._turns.values() for other in pair)
        if held - len(buffer.memory) + nbytes > AHEAD:
            return False
        buffer.memory, buffer.rows, buffer.copied = streams.empty(nbytes), {}, None
        self._read = streams.mark()  # this memory may have been something else until now
        return True
