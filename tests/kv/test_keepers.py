"""Keepers: what each policy drops or selects, and that any tier, codec and keeper go together."""

import dataclasses

import numpy as np
import pytest
import torch
from keeper_models import FAMILIES, TOKENS, build, decode, read

from localctx.budget import TierLimits
from localctx.errors import UsageError
from localctx.kv.attention import LAST_QUERIES
from localctx.kv.cache import Cache
from localctx.kv.eviction_log import EvictedRange
from localctx.kv.keepers import KEEPERS, make_keeper
from localctx.kv.keepers.full import Full
from localctx.kv.keepers.h2o import H2O
from localctx.kv.keepers.select import Select
from localctx.kv.keepers.sink_window import SinkWindow
from localctx.kv.keepers.snapkv import SnapKV
from localctx.kv.pool import Pool
from localctx.shape import FORMATS, PAGE

pytestmark = pytest.mark.slow

NO_MASS = np.zeros(0)


@pytest.fixture(scope="module")
def models():
    return {family: build(family) for family in FAMILIES}


# --- Policies


def test_full_keeps_everything():
    assert Full().pages_to_evict(1000, NO_MASS) == []
    assert Full().pages_seen(1000) == 1000


def test_a_window_keeps_sinks_and_the_last_tokens():
    assert SinkWindow(tokens=256).pages_to_evict(5, NO_MASS) == []
    assert SinkWindow(tokens=256).pages_to_evict(8, NO_MASS) == [1, 2, 3]


def test_h2o_drops_the_lightest_but_neither_sinks_nor_the_last():
    mass = np.array([0.0, 5, 1, 4, 2, 3, 0, 0])
    assert H2O(tokens=6 * PAGE).pages_to_evict(8, mass) == [2, 4]
    assert H2O(tokens=8 * PAGE).pages_to_evict(8, mass) == []


def test_select_shows_a_part_of_the_pages():
    assert [Select(part=0.25).pages_seen(n) for n in (1, 4, 10, 100)] == [1, 4, 4, 25]


@pytest.mark.parametrize(
    ("spec", "keeper"),
    [
        ("full", Full()),
        ("sink-window:512", SinkWindow(tokens=512)),
        ("h2o:1/4", H2O(tokens=1000)),
        ("snapkv", SnapKV(tokens=2048)),
        ("select:1/8", Select(part=0.125)),
        ("select:400", Select(part=0.1)),
    ],
)
def test_a_keeper_is_named_with_its_budget(spec, keeper):
    assert make_keeper(spec, 4000) == keeper


@pytest.mark.parametrize("spec", ["fuller", "h2o:x", "select:0", "sink-window:-5", "full:3", "select:1/0", "h2o:nan"])
def test_a_keeper_that_means_nothing_is_refused(spec):
    with pytest.raises(UsageError):
        make_keeper(spec, 4000)


# --- Any tier, codec and keeper


def limits(model, codec, where):
    some = 2 * model.shape.page_bytes(codec) + model.shape.page_bytes(codec, True)
    return {"device": None, "host": TierLimits(some, None, 0), "disk": TierLimits(some, 0, None)}[where]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("keep", [f"{name}:256".removesuffix(":256" * (name == "full")) for name in KEEPERS])
def test_any_tier_codec_and_keeper_go_together(models, family, keep):
    """Where pages lie changes nothing, to the bit; a codec and a keeper change what they must and nothing breaks."""
    model = models[family]
    for codec in FORMATS if family == "llama" else ("bf16", "int4+hadamard"):
        seen = []
        for where in ("device", "host", "disk"):
            pool = Pool(model.shape, codec, rope=model.rope, limits=limits(model, codec, where))
            cache = Cache(pool, torch.float32, make_keeper(keep, 640), model.context)
            logits = read(model, cache, TOKENS[:640], asked=70)
            seen.append(torch.cat((logits[None], decode(model, cache))))
            assert torch.isfinite(seen[-1]).all()
            assert where == "device" or pool.counts()[where] or cache.evicted
            assert bool(cache.evicted) == (keep.split(":")[0] not in ("full", "select"))
            assert cache.length == 644
            cache.drop()
            assert not len(pool.references)
        assert torch.equal(seen[0], seen[1]), f"{codec} in RAM"
        assert torch.equal(seen[0], seen[2]), f"{codec} on disk"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("codec", ["f32", "int4+hadamard"])
@pytest.mark.parametrize("keep", ["full", "select:1/4"])
def test_records_brought_to_the_device_give_what_records_in_place_give(models, family, codec, keep):
    """The path of a GPU, here without one: records are fetched, decoded by torch and attended with masks."""
    model, seen = models[family], []
    for in_place in (True, False):
        pool = Pool(model.shape, codec, rope=model.rope, limits=limits(model, codec, "host"), in_place=in_place)
        cache = Cache(pool, torch.float32, make_keeper(keep, 640), model.context)
        read(model, cache, TOKENS[:640], asked=70)
        seen.append(decode(model, cache))
    torch.testing.assert_close(seen[0], seen[1], atol=1e-4, rtol=1e-4)


# --- Precision


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("codec", "most"), [("f32", 1e-5), ("bf16", 1e-3), ("int8", 1e-3), ("fp8", 1e-2), ("k8v4", 2e-2), ("int4", 0.1)]
)
def test_a_codec_stays_near_full_precision(models, family, codec, most):
    """Also where k_proj's bias is spiky (qwen2 here): it is not in what is quantized."""
    model, seen = models[family], []
    for name in ("f32", codec):
        cache = Cache(Pool(model.shape, name, rope=model.rope), torch.float32)
        read(model, cache, TOKENS[:640])
        seen.append(decode(model, cache).log_softmax(-1))
    divergence = (seen[0].exp() * (seen[0] - seen[1])).sum(-1)
    assert divergence.max() < most


def test_a_spiky_bias_would_spoil_a_quantizer_that_kept_it(models):
    model = models["qwen2"]
    kl = {}
    for rope in (model.rope, None):
        cache = Cache(Pool(model.shape, "int4", rope=rope), torch.float32)
        read(model, cache, TOKENS[:640])
        kl[rope is None] = decode(model, cache).log_softmax(-1)
    whole = Cache(Pool(model.shape, "f32"), torch.float32)
    read(model, whole, TOKENS[:640])
    true = decode(model, whole).log_softmax(-1)
    removed, left = ((true.exp() * (true - kl[x])).sum(-1).mean() for x in (False, True))
    assert removed < left / 5


# --- sink-window


@pytest.mark.parametrize("reach", [2048, 700])
def test_a_streamed_token_sees_sinks_beside_its_window(reach):
    """In one layer keys do not depend on what was seen before: the kept pages, read alone, must give the same."""
    model = build("llama", layers=1)
    cache = Cache(Pool(model.shape, "f32", rope=model.rope), torch.float32, SinkWindow(tokens=256), reach)
    logits = read(model, cache, TOKENS[:2600], chunk=130)[None]
    step = model.forward([7], cache)
    kept = [t for place in cache.placed_pages for t in TOKENS[place.token :][:PAGE]] + TOKENS[2600 - 2600 % PAGE : 2600]
    alone = Cache(Pool(model.shape, "f32"), torch.float32)
    model.forward(kept, alone)
    torch.testing.assert_close(step, model.forward([7], alone), atol=1e-4, rtol=1e-4)
    assert torch.isfinite(logits).all()
    assert cache.position <= reach
    assert cache.length == 2601
    assert cache.evicted == [EvictedRange(PAGE, cache.placed_pages[1].token)]
    assert len(cache.pool.references) == len(cache.placed_pages) + 1, "the original sink page, and what is kept"


def test_streaming_takes_no_more_memory_with_time(models):
    model = models["llama"]
    pool = Pool(model.shape, "int8", rope=model.rope)
    cache, held = Cache(pool, torch.float32, SinkWindow(tokens=256), model.context), []
    for at in range(0, 2900, 100):
        model.forward(TOKENS[at : at + 100], cache)
        held.append(pool.device_tier.nbytes)
    assert max(held[10:]) <= max(held[:10])


# --- h2o, snapkv, select


def test_h2o_keeps_the_page_that_gets_attention():
    """Queries that all look at one page keep it, however old it is."""
    pool = Pool(build("llama", layers=1).shape, "f32")
    cache = Cache(pool, torch.float32, H2O(tokens=5 * PAGE))
    for step in range(12):
        cache.begin(PAGE)
        cache.extend(0, torch.zeros(2, PAGE, 16), torch.zeros(2, PAGE, 16))
        if step > 2:
            places = [p.token // PAGE for p in cache.placed_pages]
            cache.keeper.observe(cache.history, 0, np.array([place == 2 for place in places], float))
        cache.commit()
    kept = [p.token // PAGE for p in cache.placed_pages]
    assert (len(kept), kept[:2], kept[-2:]) == (5, [0, 2], [10, 11])
    assert sum(e.stop - e.start for e in cache.evicted) == 7 * PAGE


def test_snapkv_keeps_the_tokens_that_were_looked_at_head_by_head(models):
    model = models["llama"]
    cache = Cache(Pool(model.shape, "f32"), torch.float32, SnapKV(tokens=5 * PAGE))
    for at in range(0, 1280, 256):
        model.forward(TOKENS[at : at + 256], cache)
    cache.enter_phase("asking")
    model.forward(TOKENS[1280:1350], cache)
    assert cache.history.token_votes[0].shape == (2, 1280)
    votes = torch.zeros_like(cache.history.token_votes[3])
    votes[0, 300:400], votes[1, 700:800] = 1, 1
    cache.history.token_votes[3] = votes
    before, _ = cache.read(3, 0, 20, torch.float32)
    cache.finish_prefill()
    assert [p.token for p in cache.placed_pages] == [0, 64, 65, 66, 1280]
    k, _ = cache.read(3, 1, 4, torch.float32)
    for head, (first, last) in enumerate([(300, 400), (700, 800)]):
        for token in range(first, last):
            assert (k[head] == before[head, token]).all(-1).any(), token
    assert cache.evicted == [EvictedRange(64, 1280, pytest.approx(3 / 19))]
    assert LAST_QUERIES == 64


def test_selecting_all_pages_is_full_attention(models):
    model, seen = models["llama"], []
    for keeper in (Full(), Select(part=1.0)):
        cache = Cache(Pool(model.shape, "int8"), torch.float32, keeper)
        read(model, cache, TOKENS[:640], asked=70)
        seen.append(decode(model, cache))
    assert torch.equal(*seen)


def test_select_finds_the_page_whose_keys_match(models):
    """A page whose keys all point where the query points is chosen, wherever it is."""
    from localctx.kv.selection import choose_pages

    shape = models["llama"].shape
    cache = Cache(Pool(shape, "int8"), torch.float32, Select(part=0.25))
    direction = torch.nn.functional.normalize(torch.randn(16), dim=0)
    k = torch.randn(2, 20 * PAGE, 16) * 0.3
    k[:, 13 * PAGE + 5] = 4 * direction
    cache.begin(20 * PAGE)
    for layer in range(4):
        cache.extend(layer, k, k)
    cache.commit()
    chosen = choose_pages(cache, 2, direction.expand(4, 16))
    assert chosen.shape == (2, 5)
    for place in (0, 13, 19):
        assert (chosen == place).any(-1).all()
    cache.enter_phase("asking")
    assert not cache.selects_pages(), "the question sees all"
    cache.finish_prefill()
    assert cache.selects_pages()


def test_every_keeper_has_a_name():
    assert set(KEEPERS) == {"full", "sink-window", "h2o", "snapkv", "keydiff", "select"}


def test_more_sink_pages_are_kept_at_the_beginning_and_moved_along(models):
    """How many pages are sinks is one number of the keeper: moved to the window, they are read as they were."""
    model = models["llama"]
    keeper = dataclasses.replace(make_keeper("sink-window:256", 640), sink_pages=2)
    cache = Cache(Pool(model.shape, "f32", rope=model.rope), torch.float32, keeper, model.context)
    read(model, cache, TOKENS[:640])
    assert [(e.start, e.stop) for e in cache.evicted] == [(2 * PAGE, 640 - 256)]
    assert [p.token for p in cache.placed_pages][:3] == [0, PAGE, 640 - 256]
    assert [p.position for p in cache.placed_pages][:3] == [640 - 256 - 2 * PAGE, 640 - 256 - PAGE, 640 - 256]
    assert len(cache.table.originals) == 2
    cache.drop()
    assert not len(cache.pool.references)
