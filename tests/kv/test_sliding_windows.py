"""Sliding layers keep the pages that they see and some before them: nothing changes but the memory."""

import pytest
import torch
from keeper_models import FAMILIES, TOKENS, build, decode, read
from transformers import Gemma2Config

from localctx.kv.block_table import BlockTable
from localctx.kv.cache import Cache
from localctx.kv.keepers import make_keeper
from localctx.kv.pool import Pool
from localctx.kv.reencode import reencode
from localctx.shape import PAGE, SLACK_PAGES, SLIDING

pytestmark = pytest.mark.slow

LENGTH = 1100  # tokens; both families see the last 100 in their sliding layers
SPECS = ("full", "select:512", "h2o:512", "snapkv:512", "sink-window:512", "sink-window:64", "keydiff:512")


@pytest.fixture(scope="module", params=["gemma2", "gemma4"])
def model(request):
    return build(request.param)


def new_cache(model, codec="f32", spec="full", in_place=None):
    pool = Pool(model.shape, codec, rope=model.rope, in_place=in_place)
    return Cache(pool, torch.float32, make_keeper(spec, LENGTH), model.context)


def sliding_pages(cache):
    return [i for i, placed in enumerate(cache.placed_pages) if placed.parts[SLIDING] is not None]


def read_and_decode(model, cache):
    return torch.cat((read(model, cache, TOKENS[:LENGTH], asked=80)[None], decode(model, cache, 70)))


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(("codec", "in_place"), [("f32", True), ("int4", False)])
def test_logits_are_those_of_a_cache_that_keeps_every_page(model, codec, spec, in_place, monkeypatch):
    cache = new_cache(model, codec, spec, in_place)
    logits = read_and_decode(model, cache)
    monkeypatch.setattr(BlockTable, "release_unseen", lambda *_: None)
    whole = new_cache(model, codec, spec, in_place)
    assert torch.equal(logits, read_and_decode(model, whole))
    assert cache.evicted == whole.evicted
    assert len(sliding_pages(cache)) < len(sliding_pages(whole)) or cache.num_pages < 10
    for each in (cache, whole):
        each.drop()
        assert not len(each.pool.references)


def test_there_is_no_more_than_the_window_the_slack_and_the_step(model):
    cache = new_cache(model)
    read(model, cache, TOKENS[:LENGTH], chunk=256)
    first = model.shape.pages_seen(LENGTH // 256 * 256).start - SLACK_PAGES
    assert sliding_pages(cache) == list(range(first, LENGTH // PAGE))
    held = cache.pool.device_tier.nbytes + cache.open_page.nbytes
    assert held == model.shape.cache_bytes("f32", LENGTH, chunk=LENGTH % 256)


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("way", ["forked", "restored"])
def test_a_sink_that_sliding_layers_released_is_not_seen_where_it_is_moved_to(way, in_place, monkeypatch):
    monkeypatch.setitem(FAMILIES, "gemma2", (Gemma2Config, {"head_dim": 16, "sliding_window": 500}))
    model, keeper = build("gemma2"), make_keeper("sink-window:256", LENGTH)
    whole = new_cache(model, in_place=in_place)
    read(model, whole, TOKENS[: LENGTH // PAGE * PAGE])
    cache = whole.fork(keeper) if way == "forked" else new_cache(model, "f32", "sink-window:256", in_place)
    if way == "restored":
        windows = {i: whole.sliding_payload(i) for i in sliding_pages(whole)}
        cache.adopt([whole.pool.payload(page).numpy() for page in whole.pages], windows)
    logits = decode(model, cache, 70)
    assert cache.dropped
    assert logits.isfinite().all()
    assert cache.trimmable(cache.length - 1) == cache.length - 1
    cache.drop()
    whole.drop()
    assert not len(cache.pool.references) + len(whole.pool.references)


def test_what_sliding_layers_see_is_needed_in_every_step(model):
    cache = new_cache(model, spec="select:256", in_place=False)
    read(model, cache, TOKENS[:LENGTH], asked=80)
    decode(model, cache, 4)
    cache.pool.host_tier.limit = None
    while cache.pool.counts(cache.pages)["device"] > 8:
        cache.pool.device_tier.limit = cache.pool.device_tier.nbytes - 1
        cache.pool.make_room(0)
    sliding = [cache.placed_pages[i].parts.sliding for i in sliding_pages(cache)]
    assert cache.pool.counts(sliding)["device"] == len(sliding)


def test_a_codec_is_changed_with_what_there_is(model, monkeypatch):
    cache, whole = new_cache(model), new_cache(model)
    read(model, cache, TOKENS[:LENGTH])
    with monkeypatch.context() as context:
        context.setattr(BlockTable, "release_unseen", lambda *_: None)
        read(model, whole, TOKENS[:LENGTH])
        for each in (cache, whole):
            reencode(each, "int8")
        expected = decode(model, whole)
    assert len(sliding_pages(cache)) < len(sliding_pages(whole)) == cache.num_pages
    assert torch.equal(decode(model, cache), expected)


def test_a_sequence_goes_back_as_far_as_its_windows_are_there(model):
    cache = new_cache(model)
    read(model, cache, TOKENS[:LENGTH])
    expected, twin = decode(model, cache.fork()), cache.fork()
    decode(model, twin, 30)
    assert cache.trimmable(300) == 0, "what was seen there is gone"
    assert twin.trimmable(LENGTH) == LENGTH
    twin.trim(LENGTH)
    assert torch.allclose(decode(model, twin), expected, atol=1e-4)
    with pytest.raises(AssertionError, match="no longer have"):
        cache.trim(300)


def test_bytes_are_told_part_by_part(model):
    shape = model.shape
    assert shape.parts == (1, 0, 1, 0)[: len(shape.layers)]
    for codec in ("bf16", "int8"):
        assert shape.part_bytes(codec, 0) + shape.part_bytes(codec, 1) == shape.page_bytes(codec)
        long = shape.cache_bytes(codec, 64_000) - shape.cache_bytes(codec, 32_000)
        assert long == 32_000 // PAGE * shape.part_bytes(codec, 0), "a later token takes what full layers keep of it"
        assert 4096 <= shape.window_step(codec) <= 16384
