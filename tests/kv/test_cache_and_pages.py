"""Page names, the page table, tiers, and the Cache against a plain list of tokens."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from localctx.budget import TierLimits
from localctx.errors import OutOfKVMemory
from localctx.kv.cache import Cache
from localctx.kv.pages import PageReferences, pack_tokens, page_names
from localctx.kv.pool import Pool
from localctx.kv.tiers import DiskTier, MemoryTier
from localctx.shape import FORMATS, FULL, PAGE, SLACK_PAGES, SLIDING, KVShape, LayerShape
from localctx.store.pages.slot_file import SlotFile, SlotWriter

WINDOW = 100
SHAPE = KVShape((LayerShape(2, 8, 8), LayerShape(1, 16, 8, "sliding", WINDOW)))
CPU = torch.device("cpu")


# --- Names


def test_names_are_the_hash_chain_of_the_fingerprint_and_the_tokens():
    tokens = list(range(2 * PAGE + 5))
    first = hashlib.sha256(b"f" * 32 + np.arange(PAGE, dtype="<u4").tobytes()).digest()
    second = hashlib.sha256(first + np.arange(PAGE, 2 * PAGE, dtype="<u4").tobytes()).digest()
    opened = hashlib.sha256(second + np.arange(2 * PAGE, 2 * PAGE + 5, dtype="<u4").tobytes()).digest()
    assert [name for name, _ in page_names(b"f" * 32, tokens)] == [first, second, opened]


@given(st.lists(st.integers(0, 2**32 - 1), max_size=200), st.integers(0, 199), st.binary(min_size=1, max_size=4))
def test_a_changed_token_or_fingerprint_changes_every_later_name(tokens, at, fingerprint):
    before = [name for name, _ in page_names(fingerprint, tokens)]
    assert len(before) == -(-len(tokens) // PAGE)
    assert all(a != b for (a, b) in zip(before, [n for n, _ in page_names(fingerprint + b"x", tokens)], strict=True))
    if at < len(tokens):
        tokens[at] ^= 1
        after = [name for name, _ in page_names(fingerprint, tokens)]
        assert [a == b for a, b in zip(before, after, strict=True)] == [i < at // PAGE for i in range(len(before))]


def test_tokens_are_packed_little_endian():
    assert pack_tokens([1, 2**31]) == b"\x01\0\0\0\0\0\0\x80"


# --- The page table


class Sharing(RuleBasedStateMachine):
    """References counted by the table are those counted by a plain list."""

    pages = Bundle("pages")

    def __init__(self):
        super().__init__()
        self.table, self.held = PageReferences(), []

    @rule(target=pages)
    def new(self):
        page = self.table.new()
        assert page not in self.held, "an id is used twice"
        self.held.append(page)
        return page

    @rule(page=pages)
    def share(self, page):
        if page in self.held:
            assert self.table.share(page) == page
            self.held.append(page)

    @rule(page=pages)
    def release(self, page):
        if page in self.held:
            self.held.remove(page)
            assert self.table.release(page) == (page not in self.held)

    @rule(page=pages)
    def a_page_that_is_gone_is_found_out(self, page):
        if page not in self.held:
            with pytest.raises(AssertionError):
                self.table.release(page)

    @invariant()
    def counts_agree(self):
        assert len(self.table) == len(set(self.held))
        assert all(self.table.refs(page) == self.held.count(page) for page in self.held)


TestSharing = Sharing.TestCase


# --- Tiers


@pytest.mark.parametrize("make", [lambda _: MemoryTier("device", CPU), DiskTier], ids=["memory", "disk"])
def test_a_tier_gives_back_what_was_put_and_forgets_what_was_dropped(make, tmp_path):
    tier = make(tmp_path)
    pages = {i: torch.randint(0, 256, (n,), dtype=torch.uint8) for i, n in enumerate([24, 24, 5000])}
    for page, payload in pages.items():
        tier.put(page, payload)
    assert (len(tier), tier.nbytes, sorted(tier)) == (3, 5048, [0, 1, 2])
    assert all(torch.equal(tier.get(page), payload) for page, payload in pages.items())
    address = tier.get(1).data_ptr()
    tier.drop(1)
    assert 1 not in tier
    assert tier.nbytes == 5024
    tier.put(7, pages[0])
    assert tier.get(7).data_ptr() == address, "what a dropped page took is used again"
    assert torch.equal(tier.get(0), tier.get(7))
    assert not list(tmp_path.iterdir()), "a spill file has no name"


def test_a_slot_file_gives_back_what_was_appended(tmp_path):
    path, slot_bytes = tmp_path / "a.kv", SHAPE.slot_bytes("int8")
    writer = SlotWriter(path, slot_bytes)
    pages = [np.random.default_rng(n).integers(0, 256, n, np.uint8) for n in (400, 2 * slot_bytes + 1, 400)]
    slots = [writer.append(payload) for payload in pages]
    assert slots == [0, 1, 4], "a page larger than a slot takes several"
    writer.sync()
    writer.close()
    file = SlotFile(path, slot_bytes)
    for slot, payload in zip(slots, pages, strict=True):
        assert np.array_equal(file.payload(slot, len(payload)), payload)
    assert file.payload(5, 400) is None
    with pytest.raises(FileExistsError):
        SlotWriter(path, slot_bytes)


# --- The cache


def keys_of(layer, positions):
    """Made-up keys and values that tell their layer and position."""
    s = SHAPE.layers[layer]
    base = torch.tensor(positions, dtype=torch.float32)[None, :, None] * 8
    k = base + torch.arange(s.k_dim) + 1000 * torch.arange(s.kv_heads)[:, None, None] + 0.5 * layer
    return k, -k[..., : s.v_dim]


def contents(cache, layer):
    """All keys and values a cache holds of a layer: of a sliding one, those of its last pages."""
    k, v = cache.open_tail(layer)
    for i in reversed(range(len(cache.placed_pages))):
        if cache.placed_pages[i].parts[SHAPE.parts[layer]] is None:
            break
        pk, pv = cache.read(layer, i, i + 1, torch.float32)
        k, v = torch.cat((pk, k), 1), torch.cat((pv, v), 1)
    return k, v


def append(cache, positions):
    cache.begin(len(positions))
    for layer in range(len(SHAPE.layers)):
        cache.extend(layer, *keys_of(layer, positions))
    cache.commit()


PLAIN = KVShape(tuple(replace(layer, window=None) for layer in SHAPE.layers))  # of the same bytes, in one part
PAGE_BYTES = SHAPE.page_bytes("f32")


class Sequences(RuleBasedStateMachine):
    """Caches that append, fork, trim and drop hold what lists of positions hold, wherever pages are; no page leaks.

    The device has room for three pages, RAM for two: most of them live on the disk.
    """

    caches = Bundle("caches")

    def __init__(self):
        super().__init__()
        limits = TierLimits(3 * PAGE_BYTES + 1, 2 * PAGE_BYTES + 1, None)
        self.pool, self.model = Pool(SHAPE, "f32", limits=limits), {}

    @rule(target=caches)
    def new(self):
        cache = Cache(self.pool, torch.float32)
        self.model[cache] = []
        return cache

    @rule(cache=caches, count=st.sampled_from([1, 2, 63, 64, 65, 130, 300]), start=st.integers(0, 50))
    def append(self, cache, count, start):
        if cache in self.model:
            positions = list(range(start, start + count))
            append(cache, positions)
            self.model[cache] += positions

    @rule(cache=caches, count=st.sampled_from([1, 64, 100]), layers=st.integers(0, 2))
    def begin_and_roll_back(self, cache, count, layers):
        if cache in self.model:
            cache.begin(count)
            for layer in range(layers):
                cache.extend(layer, *keys_of(layer, [7] * count))
            cache.rollback()

    @rule(target=caches, cache=caches)
    def fork(self, cache):
        if cache not in self.model:
            return self.new()
        twin = cache.fork()
        self.model[twin] = list(self.model[cache])
        return twin

    @rule(cache=caches, part=st.floats(0, 1))
    def trim(self, cache, part):
        if cache in self.model:
            length = int(part * cache.length)
            length = length if cache.trimmable(length) else 0
            cache.trim(length)
            del self.model[cache][length:]

    @rule(cache=caches)
    def drop(self, cache):
        if cache in self.model:
            cache.drop()
            del self.model[cache]

    @invariant()
    def hold_what_the_lists_hold(self):
        for cache, positions in self.model.items():
            assert cache.length == len(positions)
            for layer, shape in enumerate(SHAPE.layers):
                for held, wanted in zip(contents(cache, layer), keys_of(layer, positions), strict=True):
                    assert torch.equal(held, wanted[:, wanted.shape[1] - held.shape[1] :])
                    assert held.shape[1] >= min(len(positions), shape.window or len(positions))
                part = self.pool.shape.parts[layer]
                ids = [p.parts[part] for p in cache.placed_pages]
                addresses = [p is not None and self.pool.payload(p).data_ptr() for p in ids]
                assert cache.table.bases(part).tolist() == addresses

    @invariant()
    def keep_windows_alone(self):
        """Of what sliding layers saw before the last step, and some slack, there is no more than that and the step."""
        for cache in self.model:
            sliding = sum(placed.parts.sliding is not None for placed in cache.placed_pages)
            assert sliding * PAGE <= WINDOW + SLACK_PAGES * PAGE + 300 + 2 * PAGE

    @invariant()
    def leak_nothing(self):
        """Free and used and shared are all there is: every page in use lies in one tier, and nothing else does."""
        held = [page for cache in self.model for page in cache.table.ids.tolist()]
        in_use, full = set(held), {page for cache in self.model for page in cache.pages}
        lie = [page for tier in self.pool.tiers for page in tier]
        assert len(self.pool.references) == len(lie) == len(set(lie))
        assert set(lie) == in_use
        sizes = [SHAPE.part_bytes("f32", FULL if page in full else SLIDING) for page in in_use]
        assert sum(self.pool.nbytes().values()) == sum(sizes)
        assert all(self.pool.references.refs(page) == held.count(page) for page in in_use)

    @invariant()
    def keep_their_budgets(self):
        assert self.pool.host_tier.nbytes <= self.pool.host_tier.limit
        assert self.pool.device_tier.nbytes <= max(
            self.pool.device_tier.limit, 3 * PAGE_BYTES
        )  # a step of 130 tokens fills three


Sequences.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestSequences = Sequences.TestCase


@pytest.mark.parametrize("codec", FORMATS)
def test_adopted_payloads_are_the_pages_they_were_written_from(codec, tmp_path):
    cache = Cache(Pool(SHAPE, codec), torch.float32)
    append(cache, list(range(150)))
    writer = SlotWriter(tmp_path / "a.kv", SHAPE.slot_bytes(codec))
    payloads = [cache.pool.payload(page).numpy() for page in cache.table.ids.tolist()]
    slots = [writer.append(payload) for payload in payloads]
    writer.close()
    file = SlotFile(tmp_path / "a.kv", SHAPE.slot_bytes(codec))
    again = Cache(Pool(SHAPE, codec), torch.float32)
    first, second, *windows = [file.payload(slot, len(x)) for slot, x in zip(slots, payloads, strict=True)]
    again.adopt([first, second], dict(enumerate(windows)))
    assert again.length == again.position == 128
    assert again.pool.counts() == {"device": 0, "host": 0, "disk": 4}
    for layer in range(len(SHAPE.layers)):
        for held, wanted in zip(
            again.read(layer, 0, 1, torch.float32), cache.read(layer, 0, 1, torch.float32), strict=True
        ):
            assert torch.equal(held, wanted)


@pytest.mark.parametrize("codec", FORMATS)
def test_bytes_allocated_are_the_bytes_the_shape_tells(codec):
    cache = Cache(Pool(SHAPE, codec), torch.float32)
    append(cache, list(range(650)))
    tail = cache.open_page.nbytes
    assert cache.pool.device_tier.nbytes + tail == SHAPE.cache_bytes(codec, 650, chunk=650)
    append(cache, [0])
    assert cache.pool.device_tier.nbytes + tail == SHAPE.cache_bytes(codec, 651, chunk=1)
    assert SHAPE.cache_bytes(codec, 651) < SHAPE.cache_bytes(codec, 650, chunk=650)


def test_a_full_machine_is_told_and_nothing_is_lost():
    limits = TierLimits(2 * PAGE_BYTES, PAGE_BYTES, 2 * PAGE_BYTES)
    cache = Cache(Pool(PLAIN, "f32", limits=limits), torch.float32)
    append(cache, list(range(5 * PAGE)))
    assert cache.pool.counts() == {"device": 2, "host": 1, "disk": 2}
    with pytest.raises(OutOfKVMemory, match="--memory"):
        append(cache, list(range(PAGE)))
    assert cache.length == 5 * PAGE
    assert contents(cache, 0)[0].shape[1] == 5 * PAGE
    append(cache, list(range(PAGE - 1)))  # the open page has room


def test_a_disk_that_refuses_is_told_and_nothing_is_lost(monkeypatch):
    cache = Cache(Pool(PLAIN, "f32", limits=TierLimits(PAGE_BYTES, 0, None)), torch.float32)
    append(cache, list(range(PAGE)))

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("localctx.kv.tiers._reserve", full)
        with pytest.raises(OutOfKVMemory, match="No space left"):
            append(cache, list(range(PAGE)))
    append(cache, list(range(PAGE)))
    assert cache.pool.counts() == {"device": 1, "host": 0, "disk": 1}


def test_what_was_needed_least_recently_moves_down_first():
    """A sequence that goes on needs all of its pages; one that pauses makes room, and what it chose stays longest."""
    pool = Pool(PLAIN, "f32", limits=TierLimits(4 * PAGE_BYTES, None, 0))
    paused, cache = Cache(pool, torch.float32), Cache(pool, torch.float32)
    append(cache, list(range(PAGE)))
    append(paused, list(range(2 * PAGE)))
    append(cache, [0])
    paused.table.touch(np.array([0]))
    append(cache, list(range(2 * PAGE)))
    assert [page in pool.host_tier for page in paused.pages] == [False, True]
    assert not any(page in pool.host_tier for page in cache.pages)
