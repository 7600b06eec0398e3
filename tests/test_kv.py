"""Page names, the page table, tiers, and the Cache against a plain list of tokens."""

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from localctx.kv.cache import Cache
from localctx.kv.pages import PageTable, names, pack_tokens
from localctx.kv.tiers import MappedTier, MemoryTier, Pool, SlotFile, SlotWriter
from localctx.shape import FORMATS, PAGE, KVShape, LayerShape

SHAPE = KVShape((LayerShape(2, 8, 8), LayerShape(1, 16, 8, "sliding", 100)))
CPU = torch.device("cpu")


# --- Names


def test_names_are_the_hash_chain_of_the_fingerprint_and_the_tokens():
    tokens = list(range(2 * PAGE + 5))
    first = hashlib.sha256(b"f" * 32 + np.arange(PAGE, dtype="<u4").tobytes()).digest()
    second = hashlib.sha256(first + np.arange(PAGE, 2 * PAGE, dtype="<u4").tobytes()).digest()
    assert [name for name, _ in names(b"f" * 32, tokens)] == [first, second]


@given(st.lists(st.integers(0, 2**32 - 1), max_size=200), st.integers(0, 199), st.binary(min_size=1, max_size=4))
def test_a_changed_token_or_fingerprint_changes_every_later_name(tokens, at, fingerprint):
    before = [name for name, _ in names(fingerprint, tokens)]
    assert len(before) == len(tokens) // PAGE
    assert all(a != b for (a, b) in zip(before, [n for n, _ in names(fingerprint + b"x", tokens)], strict=True))
    if at < len(tokens):
        tokens[at] ^= 1
        after = [name for name, _ in names(fingerprint, tokens)]
        assert [a == b for a, b in zip(before, after, strict=True)] == [i < at // PAGE for i in range(len(before))]


def test_tokens_are_packed_little_endian():
    assert pack_tokens([1, 2**31]) == b"\x01\0\0\0\0\0\0\x80"


# --- The page table


class Sharing(RuleBasedStateMachine):
    """References counted by the table are those counted by a plain list."""

    pages = Bundle("pages")

    def __init__(self):
        super().__init__()
        self.table, self.held = PageTable(), []

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


@pytest.mark.parametrize("tier", [MemoryTier(), MappedTier()])
def test_a_tier_gives_back_what_was_put_and_forgets_what_was_dropped(tier):
    records = [torch.arange(n, dtype=torch.uint8) for n in (8, 16)]
    tier.put(3, records)
    assert 3 in tier
    assert len(tier) == 1
    assert tier.nbytes == 24
    assert torch.equal(tier.get(3, 1), records[1])
    tier.drop(3)
    tier.drop(3)
    assert 3 not in tier
    assert tier.nbytes == 0


def test_a_slot_file_gives_back_what_was_appended(tmp_path):
    path, slot = tmp_path / "a.kv", SHAPE.slot_bytes("int8")
    writer = SlotWriter(path, slot)
    pages = [[torch.randint(0, 256, (n,), dtype=torch.uint8) for n in (100, 300)] for _ in range(3)]
    written = [writer.append(records) for records in pages]
    writer.sync()
    writer.close()
    file = SlotFile(path, slot)
    for (number, payload), records in zip(written, pages, strict=True):
        assert payload == torch.cat(records).numpy().tobytes()
        assert file.payload(number, 400).tobytes() == payload
    assert file.payload(3, 400) is None
    with pytest.raises(FileExistsError):
        SlotWriter(path, slot)


# --- The cache


def keys_of(layer, positions):
    """Made-up keys and values that tell their layer and position."""
    s = SHAPE.layers[layer]
    base = torch.tensor(positions, dtype=torch.float32)[None, :, None] * 8
    k = base + torch.arange(s.k_dim) + 1000 * torch.arange(s.kv_heads)[:, None, None] + 0.5 * layer
    return k, -k[..., : s.v_dim]


def contents(cache, layer):
    """All keys and values a cache holds of a layer."""
    k, v = cache.open_tail(layer)
    if cache.pages:
        pk, pv = cache.pool.codecs[layer].decode(cache.records(layer, 0, len(cache.pages)), torch.float32)
        k, v = torch.cat((pk, k), 1), torch.cat((pv, v), 1)
    return k, v


def append(cache, positions):
    cache.begin(len(positions))
    for layer in range(len(SHAPE.layers)):
        cache.extend(layer, *keys_of(layer, positions))
    cache.commit()


class Sequences(RuleBasedStateMachine):
    """Caches that append, fork, trim and drop hold what lists of positions hold, and leak no page."""

    caches = Bundle("caches")

    def __init__(self):
        super().__init__()
        self.pool, self.model = Pool(SHAPE, "f32"), {}

    @rule(target=caches)
    def new(self):
        cache = Cache(self.pool, torch.float32)
        self.model[cache] = []
        return cache

    @rule(cache=caches, count=st.sampled_from([1, 2, 63, 64, 65, 130]), start=st.integers(0, 50))
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
            for layer in range(len(SHAPE.layers)):
                for held, wanted in zip(contents(cache, layer), keys_of(layer, positions), strict=True):
                    assert torch.equal(held, wanted)
                addresses = [r.data_ptr() for r in (self.pool.record(p, layer) for p in cache.pages)]
                assert cache.addresses(layer).tolist() == addresses

    @invariant()
    def leak_nothing(self):
        in_use = {page for cache in self.model for page in cache.pages}
        assert len(self.pool.table) == len(self.pool.memory) == len(in_use)


Sequences.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestSequences = Sequences.TestCase


@pytest.mark.parametrize("codec", FORMATS)
def test_adopted_payloads_are_the_pages_they_were_written_from(codec, tmp_path):
    cache = Cache(Pool(SHAPE, codec), torch.float32)
    append(cache, list(range(150)))
    writer = SlotWriter(tmp_path / "a.kv", SHAPE.slot_bytes(codec))
    slots = [writer.append(cache.pool.records(page)) for page in cache.pages]
    writer.close()
    file = SlotFile(tmp_path / "a.kv", SHAPE.slot_bytes(codec))
    again = Cache(Pool(SHAPE, codec), torch.float32)
    again.adopt([file.payload(slot, len(payload)) for slot, payload in slots])
    assert again.length == 128
    assert again.pool.counts() == {"device": 0, "host": 0, "disk": 2}
    for layer in range(len(SHAPE.layers)):
        assert torch.equal(again.records(layer, 0, 2), cache.records(layer, 0, 2))


def test_bytes_allocated_are_the_bytes_the_shape_tells():
    for codec in FORMATS:
        cache = Cache(Pool(SHAPE, codec), torch.float32)
        append(cache, list(range(640)))
        assert cache.pool.memory.nbytes == 10 * SHAPE.page_bytes(codec)
        assert cache.pool.memory.nbytes / 640 == pytest.approx(SHAPE.bytes_per_token(codec), rel=0.01)
