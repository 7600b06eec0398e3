"""Blending: what is taken over lies where reading would have put it, and what is read again is read exactly."""

import pytest
import torch
import transformers as tf
from keeper_models import TOKENS, build

from localctx.budget import TierLimits
from localctx.engine.blending import (
    BLENDINGS,
    BLOCK,
    DEFAULT_BLENDING,
    Blending,
    CachedPassage,
    blend,
    choose_blending,
    locate,
)
from localctx.engine.coroutine import compute_alone, drive, never_cancelled
from localctx.errors import ModelError
from localctx.kv.cache import Cache
from localctx.kv.copy_tokens import copy_tokens, rerotated_to_follow
from localctx.kv.keepers.h2o import H2O
from localctx.kv.keepers.sink_window import SinkWindow
from localctx.kv.pool import Pool
from localctx.models.decoder.transformers_model import TransformersModel
from localctx.shape import PAGE

pytestmark = pytest.mark.slow

FAMILIES = ("llama", "qwen2", "deepseek-v3")
HEAD, TAIL = TOKENS[:21], TOKENS[21:30]  # what a chat puts around a passage
BODIES = [TOKENS[at : at + 150] for at in (100, 300, 500)]
QUESTION = TOKENS[700:720]


@pytest.fixture(scope="module")
def models():
    return {family: build(family) for family in FAMILIES}


def new_cache(model, codec="f32", keeper=None, limits=None):
    return Cache(Pool(model.shape, codec, rope=model.rope, limits=limits), torch.float32, keeper)


def read_alone(model, body, codec="f32"):
    tokens = [*HEAD, *body, *TAIL]
    cache = new_cache(model, codec)
    model.forward(tokens, cache)
    return CachedPassage(tokens, cache)


def prompt(bodies=BODIES):
    """The bodies with something else before each, and the question."""
    return [t for i, body in enumerate(bodies) for t in (*HEAD[: 7 + i], 3 + i, *body)] + TAIL + QUESTION


def run(model, cache, tokens, passages, how=DEFAULT_BLENDING, cancelled=never_cancelled, **options):
    steps = drive(
        blend(model, cache, tokens, passages, how, **{"chunk": 64, **options}), compute_alone(model, cancelled)
    )
    events = []
    while True:
        try:
            events.append(next(steps))
        except StopIteration as end:
            return end.value, events


def kept(cache, layer):
    """All keys and values of a layer, [heads, tokens, dim] each."""
    parts = [cache.read(layer, a, b, torch.float32) for a, b in cache.table.runs(layer, 0, 32)] + [
        cache.open_tail(layer)
    ]
    return [torch.cat(x, 1) for x in zip(*parts, strict=True)]


def close(a, b, tolerance=2e-5):
    """To within a part of the largest number: Qwen2's biased keys are large."""
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y, atol=tolerance * float(y.abs().max().clamp_min(1)), rtol=0)


# Taking over


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("start", "stop"), [(0, 200), (21, 171), (64, 128), (195, 200)])
def test_a_first_layer_is_taken_over_as_if_it_were_read_there(models, family, start, stop):
    """It has seen nothing but its own token: keys and values are those of reading, up to the rounding of the turn."""
    model, before = models[family], TOKENS[1000:1077]
    source, cache, plain = new_cache(model), new_cache(model), new_cache(model)
    model.forward(TOKENS[:200], source)
    model.forward(before, cache)
    copy_tokens(cache, source, start, stop)
    model.forward([*before, *TOKENS[start:stop]], plain)
    close(kept(cache, 0), kept(plain, 0))
    assert (cache.length, cache.position, cache.tail) == (plain.length, plain.position, plain.tail)
    assert [p.position for p in cache.placed_pages] == [p.position for p in plain.placed_pages]
    assert plain.exact
    assert not cache.exact


@pytest.mark.parametrize("family", FAMILIES)
def test_what_attends_only_to_itself_is_the_same_in_every_layer_wherever_it_is_read(models, family):
    """A sequence read from position 77 on, and one read from 0 and turned there."""
    model = models[family]
    source, moved, cache = new_cache(model), new_cache(model), new_cache(model)
    model.forward(TOKENS[:200], source)
    moved.position = cache.position = 77
    model.forward(TOKENS[:200], moved)
    copy_tokens(cache, source, 0, 200)
    for layer in range(len(cache.pool.shape.layers)):
        close(kept(cache, layer), kept(moved, layer), 1e-4)


def test_at_its_own_place_not_a_bit_changes(models):
    source, cache = new_cache(models["llama"]), new_cache(models["llama"])
    models["llama"].forward(TOKENS[:200], source)
    copy_tokens(cache, source, 0, 200)
    for layer in range(len(cache.pool.shape.layers)):
        assert all(map(torch.equal, kept(cache, layer), kept(source, layer)))


@pytest.mark.parametrize("codec", ["int8", "int4+hadamard"])
@pytest.mark.parametrize("family", FAMILIES)
def test_encoding_anew_costs_about_what_encoding_cost(models, family, codec):
    model = models[family]
    exact, coarse, cache, plain = (new_cache(model, c) for c in ("f32", codec, codec, "f32"))
    for source in (exact, coarse):
        model.forward(TOKENS[:300], source)
    for target in (cache, plain):
        model.forward(TOKENS[400:470], target)
    for target, source in ((cache, coarse), (plain, exact)):
        copy_tokens(target, source, 64, 290)
    once = [(a - b)[:, 64:256].norm() for a, b in zip(kept(coarse, 0), kept(exact, 0), strict=True)]
    twice = [(a - b)[:, 70:262].norm() for a, b in zip(kept(cache, 0), kept(plain, 0), strict=True)]
    assert all(t < 2 * o + 1e-6 for o, t in zip(once, twice, strict=True))


def test_no_room_leaves_the_cache_as_it_was(models):
    from localctx.errors import OutOfKVMemory

    model = models["llama"]
    source, small = new_cache(model), TierLimits(2 * model.shape.page_bytes("f32"), 0, 0)
    cache = new_cache(model, limits=small)
    model.forward(TOKENS[:300], source)
    model.forward(TOKENS[400:470], cache)
    before = kept(cache, 2)
    with pytest.raises(OutOfKVMemory):
        copy_tokens(cache, source, 0, 300)
    assert cache.length == 70
    assert cache.exact
    assert all(map(torch.equal, kept(cache, 2), before))


# Finding passages


def test_passages_are_found_to_the_token():
    tokens = prompt()
    spans = locate(tokens, [CachedPassage([*HEAD, *body, *TAIL], None) for body in BODIES])
    for span, body in zip(spans, BODIES, strict=True):
        assert tokens[span.start : span.stop] == span.passage.tokens[span.at : span.at + span.stop - span.start]
        assert span.stop - span.start >= len(body)
    assert spans[0].stop <= spans[1].start
    assert spans[1].stop <= spans[2].start


def test_a_prompt_that_is_all_passage_leaves_its_last_token_to_be_read():
    (span,) = locate(BODIES[0], [CachedPassage(BODIES[0], None)])
    assert (span.start, span.stop) == (0, len(BODIES[0]) - 1)


def test_a_passage_that_is_not_there_costs_nothing(models):
    cache = new_cache(models["llama"])
    stranger = read_alone(models["llama"], [190] * 40)
    assert run(models["llama"], cache, [5] * 80, [stranger])[0] == 0


# Blending


@pytest.mark.parametrize("how", [Blending(1000), Blending(32, 1.0)])
@pytest.mark.parametrize("family", FAMILIES)
def test_with_everything_read_again_it_is_a_plain_prefill(models, family, how):
    """Nothing is taken over: the bits are those of a prefill cut in the same places."""
    model, tokens = models[family], prompt()
    cache, plain = new_cache(model), new_cache(model)
    reused, _ = run(model, cache, tokens, [read_alone(model, body) for body in BODIES], how)
    whole = locate(tokens, [CachedPassage([*HEAD, *body, *TAIL], None) for body in BODIES])[-1].stop
    model.forward(tokens[:whole], plain)
    assert reused == 0
    assert cache.exact
    assert cache.length == whole
    for layer in range(len(cache.pool.shape.layers)):
        close(kept(cache, layer), kept(plain, layer), 1e-4)


def test_everything_read_again_in_the_same_steps_has_the_same_bits(models):
    model, tokens = models["llama"], prompt()
    cache, plain = new_cache(model), new_cache(model)
    run(model, cache, tokens, [read_alone(model, body) for body in BODIES], Blending(1000))
    for span in locate(tokens, [CachedPassage([*HEAD, *body, *TAIL], None) for body in BODIES]):
        for at in range(plain.length, span.stop, 64):
            model.forward(tokens[at : min(at + 64, span.stop)], plain)
    assert torch.equal(model.forward(tokens[cache.length :], cache), model.forward(tokens[plain.length :], plain))


@pytest.mark.parametrize("how", BLENDINGS[1:])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_read_again_has_seen_the_blended_past(models, family, how):
    """The last passage's first tokens are what the model computes after the cache as it was before them."""
    model, tokens = models[family], prompt()
    passages = [read_alone(model, body) for body in BODIES]
    cache = new_cache(model)
    reused, events = run(model, cache, tokens, passages, how)
    spans = locate(tokens, passages)
    bodies = sum(s.stop - s.start for s in spans)
    expected = bodies - 3 * how.recompute
    assert expected * (1 - how.deviate) - 3 * BLOCK <= reused <= expected
    assert cache.length == spans[-1].stop
    assert events[-1].total == len(tokens)
    assert events[-1].done == cache.length
    again = cache.fork()
    again.trim(spans[-1].start)
    upto = spans[-1].start + how.recompute
    model.forward(tokens[spans[-1].start : upto], again)
    for layer in range(len(cache.pool.shape.layers)):
        close([x[:, :upto] for x in kept(cache, layer)], [x[:, :upto] for x in kept(again, layer)], 1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_glance_is_what_reading_would_keep_and_leaves_no_trace(models, family):
    model = models[family]
    cache, plain = new_cache(model), new_cache(model)
    for c in (cache, plain):
        model.forward(TOKENS[:90], c)
    seen = model.probe_layer(TOKENS[90:200], cache, 1)
    assert (cache.length, len(cache.pool.references)) == (90, 1)
    model.forward(TOKENS[90:200], plain)
    close(seen, [x[:, 90:] for x in kept(plain, 1)])
    assert torch.equal(model.forward(TOKENS[90:95], cache), model.forward(TOKENS[90:95], _trimmed(plain, 90)))


def _trimmed(cache, length):
    cache.trim(length)
    return cache


def test_the_tokens_that_deviate_most_are_read_again(models):
    """Keys of a kept passage that are spoilt in one place are found there."""
    model, tokens = models["llama"], prompt()
    passages = [read_alone(model, body) for body in BODIES]
    span, layer = locate(tokens, passages)[1], 1
    spoilt = span.start + 32 + 4 * BLOCK  # a block judged together begins here
    page, first = divmod(spoilt - span.start + span.at, PAGE)
    k, v = passages[1].cache.read(layer, page, page + 1, torch.float32)
    k[:, first : first + 10] += 5
    pool = passages[1].cache.pool
    pool.fill(passages[1].cache.pages[page], layer, pool.codec_of(layer, 0).encode(k, v)[0])
    cache = new_cache(model)
    run(model, cache, tokens, passages, Blending(32, 0.15))
    plain = new_cache(model)
    model.forward(tokens[: cache.length], plain)
    near = slice(spoilt, spoilt + BLOCK)
    close([kept(cache, layer)[0][:, near]], [kept(plain, layer)[0][:, near]])


def test_more_read_again_is_nearer_to_reading(models):
    model, tokens = models["llama"], prompt()
    passages, gaps = [read_alone(model, body) for body in BODIES], []
    plain = new_cache(model)
    model.forward(tokens, plain)
    for how in (Blending(0), Blending(32), Blending(100), Blending(1000)):
        cache = new_cache(model)
        run(model, cache, tokens, passages, how)
        end = cache.length
        gaps.append(sum((a - b[:, :end]).norm() for a, b in zip(kept(cache, 3), kept(plain, 3), strict=True)))
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < gaps[0] / 100


# What comes after


def test_a_blended_sequence_forks_trims_and_goes_on(models):
    model, tokens = models["llama"], prompt()
    passages = [read_alone(model, body, "int8") for body in BODIES]
    cache = new_cache(model, "int8")
    run(model, cache, tokens, passages)
    whole, twin = cache.length, cache.fork()
    first = model.forward(tokens[whole:], cache)
    assert not twin.exact
    assert torch.equal(model.forward(tokens[whole:], twin), first)
    twin.trim(whole)
    assert torch.allclose(model.forward(tokens[whole:], twin), first, atol=0.05)
    twin.drop()
    cache.drop()
    assert len(cache.pool.references) == 0


def test_spilled_passages_and_a_spilled_prompt_are_the_same_to_the_bit(models, tmp_path):
    model, tokens, seen = models["llama"], prompt(), []
    sizes = model.shape.page_bytes("int8"), model.shape.page_bytes("int8", sinks=True)
    for limits in (None, TierLimits(2 * sum(sizes), 0, None)):
        passages = [read_alone(model, body, "int8") for body in BODIES]
        cache = Cache(Pool(model.shape, "int8", "cpu", model.rope, limits, tmp_path), torch.float32)
        run(model, cache, tokens, passages)
        seen.append(model.forward(tokens[cache.length :], cache))
    assert cache.pool.counts()["disk"] > 0
    assert torch.equal(*seen)


@pytest.mark.parametrize("keeper", [SinkWindow(tokens=256), H2O(tokens=256)])
def test_any_keeper_goes_with_it(models, keeper):
    model, tokens = models["llama"], prompt()
    cache = new_cache(model, "int8", keeper)
    run(model, cache, tokens, [read_alone(model, body) for body in BODIES])
    cache.enter_phase("answering")
    assert torch.isfinite(model.forward(tokens[cache.length :], cache)).all()


def test_what_is_there_already_is_not_done_again(models):
    model, tokens = models["llama"], prompt()
    passages = [read_alone(model, body) for body in BODIES]
    cache, plain = new_cache(model), new_cache(model)
    run(model, plain, tokens, passages)
    run(model, cache, tokens, passages[:1])
    run(model, cache, tokens, passages)
    for layer in range(len(cache.pool.shape.layers)):
        close(kept(cache, layer), kept(plain, layer), 1e-4)
    length = cache.length
    assert run(model, cache, tokens, passages) == (length, [])


def test_a_cancel_is_heard_between_and_within(models):
    from localctx.errors import Cancelled

    model, cache = models["llama"], new_cache(models["llama"])
    passages = [read_alone(model, body) for body in BODIES]
    with pytest.raises(Cancelled):
        run(model, cache, prompt(), passages, cancelled=lambda: cache.length > 200)
    assert 200 < cache.length < len(prompt())


def test_a_model_without_rotary_positions_is_refused_by_name():
    torch.manual_seed(0)
    module = tf.OPTForCausalLM(
        tf.OPTConfig(
            vocab_size=199,
            hidden_size=32,
            ffn_dim=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            word_embed_proj_dim=32,
        )
    )
    model = TransformersModel(module, name="opt-tiny")
    with pytest.raises(ModelError, match="opt-tiny"):
        run(model, new_cache(model), [5] * 80, [])


# The choice


@pytest.mark.parametrize(
    ("setting", "passed", "chosen"),
    [
        ("off", BLENDINGS, None),
        ("auto", [], None),
        ("auto", BLENDINGS, Blending(0)),
        ("auto", [Blending(32, 0.15)], Blending(32, 0.15)),
        ("on", [], DEFAULT_BLENDING),
        ("on", [Blending(32, 0.15)], Blending(32, 0.15)),
    ],
)
def test_auto_is_on_only_where_it_passed(setting, passed, chosen):
    assert choose_blending(setting, lambda how: how in passed) == chosen


def test_each_blending_has_a_name_and_a_verdict_of_its_own():
    assert [b.name for b in BLENDINGS] == ["none", "32", "32+15%"]
    keys = {b.key(f) for b in BLENDINGS for f in (b"f", b"g")}
    assert len(keys) == 6


def test_deviation_is_measured_on_what_would_come_next(models):
    """At the same place after nothing, what is kept is what reading gives."""
    model = models["llama"]
    source, cache = new_cache(model), new_cache(model)
    model.forward(TOKENS[:100], source)
    seen = model.probe_layer(TOKENS[:100], cache, 1)
    close(seen, rerotated_to_follow(cache, source, 1, 0, 100))


def test_a_long_passage_is_found_by_its_middle(monkeypatch):
    monkeypatch.setattr("localctx.engine.blending.MAX_COMPARED", 100)
    monkeypatch.setattr("localctx.engine.blending.ANCHOR", 8)
    body, other = list(range(1000, 1200)), list(range(1100, 1110)) * 3  # a piece of the body stands before it, too
    alone = [7, 8, *body, 9]
    tokens = [1, 2, *other, 3, 8, *body, 4, 5]
    (span,) = locate(tokens, [CachedPassage(alone, None)])
    assert (span.start, span.at) == (len(other) + 3, 1)
    assert tokens[span.start : span.stop] == [8, *body]
    (none,) = locate([1, 2, 3], [CachedPassage(alone, None)])
    assert none.start == none.stop
