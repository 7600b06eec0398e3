"""Stored snapshots that were damaged, or are of other weights or settings, are misses: native code sees none."""

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from required_extras import needs_llama

from localctx.engine.persistence.persister import CacheIdentity
from localctx.engine.persistence.snapshot_persister import STEP, SnapshotPersister
from localctx.errors import UserError
from localctx.kv.keepers.full import Full
from localctx.models.llama_cpp.options import MemoryKind
from localctx.store.pages.page_reader import SELECT_PAGES, PageReader
from localctx.store.store import Store

pytestmark = pytest.mark.slow

TOKENS = list(range(3 * STEP + 100))
FINGERPRINT = b"f" * 32


class RecordingCache:
    """Stands in for a cache of llama.cpp: what ``append`` gets is what native code would see."""

    keeper, exact = Full(), True

    def __init__(self, rewinds: bool = True) -> None:
        self.length, self.given = 0, list[bytes]()
        self.memory = type("Memory", (), {"kind": MemoryKind(0, not rewinds)})()

    def append(self, stop: int, state: np.ndarray) -> None:
        self.given.append(bytes(state))
        self.length = stop

    def snapshot(self, start: int) -> np.ndarray:
        return state_of(start, self.length)

    def trim(self, length: int) -> None:
        self.length = length

    def mark(self) -> None:
        pass

    def begin_with(self, name: bytes) -> bool:
        return False

    def retain(self, ends: dict[bytes, int]) -> None:
        pass


def state_of(start: int, stop: int) -> np.ndarray:
    return np.random.default_rng(start * 100_003 + stop).integers(0, 256, 40 * (stop - start) + 40, np.uint8)


def persister(store: Store, tokens: Sequence[int] = TOKENS, fingerprint: bytes = FINGERPRINT) -> SnapshotPersister:
    return SnapshotPersister(lambda: store, [], CacheIdentity(fingerprint, "tiny", "f16"), tokens)


def keep(store: Store, tokens: Sequence[int] = TOKENS) -> None:
    cache, mine = RecordingCache(), persister(store, tokens)
    assert mine.restore(cache) == []
    mine.register(cache)
    while cache.length < len(tokens):
        cache.length = min(cache.length + 512, len(tokens))
        mine(cache)
    mine.close(cache)
    assert mine.failed is None
    assert mine.kept_tokens == len(tokens)


def restored(store: Store, tokens: Sequence[int] = TOKENS, rewinds: bool = True) -> tuple[RecordingCache, list[str]]:
    cache = RecordingCache(rewinds)
    return cache, persister(store, tokens).restore(cache)


def whole() -> list[bytes]:
    ends = [0, STEP, 2 * STEP, 3 * STEP, len(TOKENS)]
    return [bytes(state_of(start, stop)) for start, stop in pairwise(ends)]


def test_what_was_kept_comes_back(store):
    keep(store)
    cache, notes = restored(store)
    assert (cache.length, cache.given, notes) == (len(TOKENS), whole(), [])
    assert store.health()["damaged_pages"] == 0


def test_of_a_snapshot_that_goes_on_otherwise_only_a_memory_that_rewinds_takes_a_part(store):
    keep(store)
    other = [*TOKENS[: STEP + 300], 7, 7, 7, *TOKENS[STEP + 300 :]]
    assert restored(store, other)[0].length == STEP + 300
    assert restored(store, other, rewinds=False)[0].length == STEP


def damages(good: bytes, flips: int, truncations: int) -> Iterator[bytes]:
    rng = random.Random(0)
    for _ in range(flips):
        data = bytearray(good)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        yield bytes(data)
    for _ in range(truncations):
        yield good[: rng.randrange(len(good))]


def test_damaged_files_are_misses_and_native_code_sees_nothing_of_them(store):
    keep(store)
    (file,) = store.folder.glob("*.kv")
    good, right, missed = file.read_bytes(), whole(), 0
    rows = [dict(row) for row in store.db.table("pages").rows]
    for data in damages(good, 60, 20):
        file.write_bytes(data)
        cache, notes = restored(store)
        assert cache.given == right[: len(cache.given)], "native code got what was not written"
        assert bool(notes) == (cache.length < len(TOKENS))
        missed += bool(notes)
        if notes:
            store.db.table("pages").upsert_all(rows, pk="name")
        file.write_bytes(good)
    assert missed > 60  # the others fell between two snapshots


def test_2000_flipped_bytes_and_200_truncations_are_found(store):
    keep(store)
    (file,) = store.folder.glob("*.kv")
    good, right = file.read_bytes(), set(whole())
    rows = list(store.db.query(SELECT_PAGES))
    for data in damages(good, 2000, 200):
        file.write_bytes(data)
        reader = PageReader(store.folder)
        opened = [reader.open(row, row["tokens"]).payload for row in rows]
        assert {bytes(payload) for payload in opened if payload is not None} <= right
    file.write_bytes(good)


def test_tokens_that_are_not_those_of_the_row_are_a_miss(store):
    keep(store)
    store.db.execute("UPDATE pages SET tokens = zeroblob(length(tokens)) WHERE parent = ?", [FINGERPRINT])
    cache, notes = restored(store)  # the first token is the same
    assert (cache.length, cache.given) == (0, [])
    assert "other text" in notes[0]


def test_snapshots_of_another_fingerprint_are_not_seen(store):
    keep(store)
    cache = RecordingCache()
    persister(store, TOKENS, b"g" * 32).restore(cache)
    assert (cache.length, cache.given) == (0, [])


def test_two_sequences_share_what_they_begin_with(store):
    keep(store)
    before = store.pages.live()
    keep(store, [*TOKENS[: 2 * STEP], *range(9, 9 + 700)])
    assert store.db.table("pages").count == 5
    assert store.pages.live() < 1.4 * before


# --- Weights, types and RoPE


@pytest.fixture
def load(tmp_path):
    from localctx.models.llama_cpp.model import load_llama_model

    return lambda path, **how: load_llama_model(Path(path), "tiny", tmp_path / "tried", threads=1, **how)


@needs_llama
def test_fingerprints_differ_by_weights_types_and_rope(load, tmp_path):
    from tiny_ggufs import write_tiny_gguf

    path = tmp_path / "model.gguf"
    model = load(write_tiny_gguf(path, "llama"))
    prints = {model.fingerprint(kv) for kv in ("f16", "int8", "int4", "f32")}
    model.scale_rope("linear:2")
    prints.add(model.fingerprint("f16"))
    prints.add(load(write_tiny_gguf(path, "llama", seed=1)).fingerprint("f16"))
    prints.add(load(write_tiny_gguf(path, "llama", rope__freq_base=20_000.0)).fingerprint("f16"))
    assert len(prints) == 7
    with pytest.raises(UserError, match="llama3"):
        model.scale_rope("llama3:8")
