"""Records are copied ahead in a stream beside, and nothing is overwritten that is still read: with streams that do
what was launched only when they must, and in the worst order that marks allow.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import Tensor

from localctx.budget import TierLimits
from localctx.kv import prefetch
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.kv.prefetch import Prefetcher
from localctx.kv.staging import copy_staged
from localctx.shape import PAGE, KVShape, LayerShape

CURRENT, BESIDE = 0, 1


class LazyStreams:
    """Two queues of work. Marks are (queue, length). ``eager``: the queue that runs ahead of the other."""

    def __init__(self, eager: int) -> None:
        self.queues: list[list] = [[], []]
        self.done, self.now, self.eager, self.allocated = [0, 0], CURRENT, eager, 0

    def launch(self, work: Callable[[], object]) -> None:
        self.queues[self.now].append(work)
        while self._step(self.eager):
            pass

    def mark(self) -> tuple[int, int]:
        return self.now, len(self.queues[self.now])

    def wait(self, mark: tuple[int, int]) -> None:
        self.queues[self.now].append(mark)

    @contextmanager
    def aside(self) -> Iterator[None]:
        self.now = BESIDE
        yield
        self.now = CURRENT

    def empty(self, nbytes: int) -> Tensor:
        self.allocated += 1
        return torch.full((nbytes,), 255, dtype=torch.uint8)

    def finish(self) -> None:
        while self._step(self.eager) or self._step(1 - self.eager):
            pass
        assert self.done == [len(queue) for queue in self.queues], "they wait for each other"

    @torch.inference_mode()  # as buffers are made
    def _step(self, queue: int) -> bool:
        """Do the next work of a queue, if what it waits for is done."""
        if self.done[queue] == len(self.queues[queue]):
            return False
        work = self.queues[queue][self.done[queue]]
        if isinstance(work, tuple):
            if self.done[work[0]] < work[1]:
                return False
        else:
            work()
        self.done[queue] += 1
        return True


class Source:
    """Records of 8 bytes that name their page, layer and version."""

    def __init__(self, streams: LazyStreams) -> None:
        self.clock = self.version = 0
        self.streams, self.copies, self.gone = streams, {CURRENT: 0, BESIDE: 0}, set[int]()

    def __contains__(self, page: int) -> bool:
        return page not in self.gone

    def record(self, page: int, layer: int) -> Tensor:
        return torch.tensor([page % 200, layer, self.version, 0, 0, 0, 0, 0], dtype=torch.uint8)

    def record_bytes(self, page: int, layer: int) -> int:
        return 8

    def copy_records(self, pages, layer, out, rows) -> None:
        assert max(rows) < len(out)
        self.copies[self.streams.now] += len(pages)
        for page, row in zip(pages, rows, strict=True):
            record = self.record(page, layer)
            self.streams.launch(lambda row=row, record=record: out[row].copy_(record))


class Reading:
    """What attention reads, when its stream gets there."""

    def __init__(self, eager: int, layers: int) -> None:
        self.streams = LazyStreams(eager)
        self.source = Source(self.streams)
        self.prefetcher = Prefetcher(self.source, (0,) * layers, self.streams)
        self.wrong = list[tuple[list[int], int]]()

    def read(self, pages: list[int], layer: int) -> None:
        records, rows = self.prefetcher.fetch(pages, layer)
        expected = torch.stack([self.source.record(page, layer) for page in pages])

        def compare() -> None:
            if not torch.equal(records[torch.from_numpy(rows)], expected):
                self.wrong.append((pages, layer))

        self.streams.launch(compare)


@pytest.fixture(params=[CURRENT, BESIDE], ids=["copies late", "copies early"])
def eager(request):
    return request.param


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_whatever_is_wanted_is_read_in_any_order_of_the_streams(eager, layers):
    """Runs that grow, change and end; pages that move and go."""
    reading, random = Reading(eager, layers), np.random.default_rng(layers)
    for step in range(30):
        reading.source.clock = step
        if step % 7 == 3:
            reading.source.version += 1
            reading.source.gone.add(int(random.integers(60)))
        for layer in range(layers):
            for _ in range(random.integers(1, 4)):
                pages = random.choice(60, random.integers(1, 40), replace=False).tolist()
                reading.read([page for page in pages if page in reading.source] or [70], layer)
    reading.streams.finish()
    assert reading.wrong == []


def test_what_the_next_layer_wants_is_copied_beside_and_only_once(eager):
    reading = Reading(eager, 4)
    for step in range(5):
        reading.source.clock = step
        for layer in range(4):
            for run in (range(8), range(8, 12)):
                reading.read(list(run), layer)
        if step == 1:
            allocated = reading.streams.allocated
    reading.streams.finish()
    assert reading.wrong == []
    assert reading.source.copies == {CURRENT: 12, BESIDE: 5 * 4 * 12}, "the first layer of the first step; all others"
    assert reading.streams.allocated == allocated == 4, "two buffers a run"


def test_of_a_wrong_guess_only_what_is_missing_is_copied(eager):
    reading = Reading(eager, 2)
    for step in range(2):
        reading.source.clock = step
        for layer in range(2):
            reading.read([0, 1, 2, 3 + step], layer)
    reading.streams.finish()
    assert reading.wrong == []
    assert reading.source.copies[CURRENT] == 4 + 1 + 1


def test_no_more_than_the_limit_is_held(eager, monkeypatch):
    monkeypatch.setattr(prefetch, "AHEAD", 5 * 64)
    reading = Reading(eager, 3)
    for step in range(4):
        reading.source.clock = step
        for layer in range(3):
            for run in range(4):
                reading.read(list(range(8 * run, 8 * run + 8)), layer)
    held = sum(len(buffer.memory) for pair in reading.prefetcher._turns.values() for buffer in pair)
    reading.streams.finish()
    assert reading.wrong == []
    assert held <= 5 * 64
    reading.prefetcher.clear()
    assert not reading.prefetcher._turns


def test_records_are_taken_in_order():
    source = Source(streams := LazyStreams(BESIDE))
    streams.launch = lambda work: work()
    prefetcher = Prefetcher(source, (0, 0), streams)
    with torch.inference_mode():
        for step in range(4):
            source.clock = step
            for layer in range(2):
                pages = [5, 3, 8 - step, 1]
                expected = torch.stack([source.record(page, layer) for page in pages])
                assert torch.equal(prefetcher.take(pages, layer), expected)


def test_the_pool_copies_from_every_tier_to_the_rows_asked_for():
    """What a GPU's pool does, in the processor's memory."""
    shape = KVShape((LayerShape(1, 16, 16),) * 2)
    page = shape.page_bytes("int8")
    pool = Pool(shape, "int8", limits=TierLimits(3 * page, 2 * page, None), in_place=False)
    cache = Cache(pool, torch.float32)
    cache.begin(8 * PAGE)
    for layer in range(2):
        cache.extend(layer, torch.randn(1, 8 * PAGE, 16), torch.randn(1, 8 * PAGE, 16))
    cache.commit()
    assert all(pool.counts().values())
    pages, rows = cache.pages[1:], [9, 0, 1, 2, 7, 4, 5]
    out = torch.zeros(10, pool.record_bytes(pages[0], 1), dtype=torch.uint8)
    pool.copy_records(pages, 1, out, rows)
    assert torch.equal(out[rows], pool.fetch(pages, 1))
    assert not out[[3, 6, 8]].any()


def test_staged_records_go_to_their_rows():
    records, rows = torch.randint(0, 255, (5, 64), dtype=torch.uint8), np.array([3, 4, 5, 0, 7])
    out = torch.zeros(8, 64, dtype=torch.uint8)
    copy_staged(list(records), out, rows)
    assert torch.equal(out[torch.from_numpy(rows)], records)
    copy_staged([], out, rows[:0])
