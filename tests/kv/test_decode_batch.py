"""Rows: sequences attended together get what each gets alone."""

import pytest
import torch

from localctx.kv.attention import attend_cache
from localctx.kv.backends.backend import MAX_DECODE_TOKENS
from localctx.kv.batches.decode_batch import DecodeBatch
from localctx.kv.cache import Cache
from localctx.kv.dispatch import joins_batch
from localctx.kv.keepers import make_keeper
from localctx.kv.pool import Pool
from localctx.shape import PAGE, KVShape, LayerShape

HEADS, LAYERS = 4, 2
LENGTHS = (0, 5, PAGE - 1, PAGE, 3 * PAGE - 1, 20 * PAGE + 7)


def noise(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def filled(pool, length, dtype):
    """A sequence of ``length`` random tokens."""
    cache = Cache(pool, dtype)
    if length:
        cache.begin(length)
        for layer, s in enumerate(pool.shape.layers):
            cache.extend(layer, noise(s.kv_heads, length, s.k_dim, dtype=dtype), noise(s.kv_heads, length, s.v_dim))
        cache.commit()
    return cache


def step(caches, layers, attend):
    """Let every layer attend one new token of all ``caches``; what came out, and what pages were looked at."""
    for cache in caches:
        cache.record_attention()
        cache.begin(1)
    outs = attend(caches, layers)
    for cache in caches:
        cache.commit()
    return outs


def new(s, n, dtype):
    return (
        noise(HEADS, n, s.k_dim, dtype=dtype),
        noise(s.kv_heads, n, s.k_dim, dtype=dtype),
        noise(s.kv_heads, n, s.v_dim),
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("codec", ["f32", "int8", "int4"])
@pytest.mark.parametrize(("window", "softcap", "sinks"), [(None, 0, False), (40, 0, True), (150, 3.0, False)])
def test_together_as_alone(codec, dtype, window, softcap, sinks):
    shape = KVShape((LayerShape(2, 32, 32, window=window),) * LAYERS)
    pool = Pool(shape, codec)
    alone, together = ([filled(pool, n, dtype) for n in LENGTHS] for _ in range(2))
    how = {"window": window, "softcap": softcap, "sinks": noise(HEADS) if sinks else None}

    def one_by_one(caches, layers):
        outs = []
        for layer, (q, k, v) in enumerate(layers):
            of = [[x[:, i : i + 1] for x in (q, k, v)] for i in range(len(caches))]
            outs.append(torch.cat([attend_cache(c, layer, *x, 0.2, **how) for c, x in zip(caches, of, strict=True)], 1))
            for cache, (_, k1, v1) in zip(caches, of, strict=True):
                cache.extend(layer, k1, v1)
        return outs

    def at_once(caches, layers):
        rows = DecodeBatch([(cache, 1) for cache in caches])
        outs = [rows.attend(layer, *x, 0.2, **how) for layer, x in enumerate(layers)]
        rows.report_attention()
        return outs

    layers = [new(s, len(LENGTHS), dtype) for s in shape.layers]
    layers = [(q, k, v.to(dtype)) for q, k, v in layers]
    expected, got = step(alone, layers, one_by_one), step(together, layers, at_once)
    atol = 2e-5 if dtype == torch.float32 else 2e-2
    for a, b in zip(expected, got, strict=True):
        torch.testing.assert_close(b, a, atol=atol, rtol=1e-3)
    for a, b in zip(alone, together, strict=True):
        assert (a.tail_payload() == b.tail_payload()).all()
        assert [pool.payload(p).tolist() for p in a.pages] == [pool.payload(p).tolist() for p in b.pages]
        torch.testing.assert_close(
            torch.from_numpy(b.attention_mass), torch.from_numpy(a.attention_mass), atol=1e-4, rtol=1e-2
        )


def test_a_row_does_not_depend_on_the_others():
    shape = KVShape((LayerShape(2, 32, 32),))
    pool = Pool(shape, "int8")
    q, k, v = new(shape.layers[0], len(LENGTHS), torch.float32)
    outs = []
    for chosen in ([5], [0, 5], [5, 3, 4, 1]):
        caches = [filled(pool, LENGTHS[i], torch.float32) for i in chosen]
        for cache in caches:
            cache.begin(1)
        rows = DecodeBatch([(cache, 1) for cache in caches])
        outs.append(rows.attend(0, q[:, chosen], k[:, chosen], v[:, chosen], 0.2)[:, chosen.index(5)])
    assert all(torch.equal(out, outs[0]) for out in outs)


@pytest.mark.parametrize(
    ("keep", "fits"), [("full", True), ("sink-window", True), ("h2o", False), ("select:1/2", True)]
)
def test_who_judges_pages_attends_alone(keep, fits):
    pool = Pool(KVShape((LayerShape(2, 32, 32),)), "int8")
    cache = filled(pool, 20 * PAGE, torch.float32)
    cache = cache.fork(make_keeper(keep, cache.length))
    cache.enter_phase("answering")
    assert joins_batch(cache, 1) == fits


@pytest.mark.slow
@pytest.mark.parametrize("window", [None, 20, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_several_tokens_of_a_sequence_are_what_each_after_another_is(window, dtype):
    pool, many = Pool(KVShape((LayerShape(2, 32, 32, window=window),)), "int8"), 5
    q, k, v = new(pool.shape.layers[0], many, dtype)
    single, whole = (filled(pool, 3 * PAGE + 7, dtype) for _ in range(2))
    expected = []
    for i in range(many):
        single.begin(1)
        one = [x[:, i : i + 1] for x in (q, k, v.to(dtype))]
        expected.append(DecodeBatch([(single, 1)]).attend(0, *one, 0.2, window=window))
        single.commit()
    whole.begin(many)
    got = DecodeBatch([(whole, many)]).attend(0, q, k, v.to(dtype), 0.2, window=window)
    whole.commit()
    assert torch.equal(got, torch.cat(expected, 1)), "to the last bit"
    assert (single.tail_payload() == whole.tail_payload()).all()


def test_rows_of_a_sequence_fill_no_page():
    """A token that is taken back must leave the pages before it as they were."""
    cache = filled(Pool(KVShape((LayerShape(2, 32, 32),)), "int8"), PAGE + 60, torch.float32)
    cache.enter_phase("answering")
    assert joins_batch(cache, 3)
    assert not joins_batch(cache, 4)
    assert joins_batch(filled(cache.pool, PAGE + 63, torch.float32), 1), "one token is not taken back"
    assert not joins_batch(filled(cache.pool, PAGE, torch.float32), MAX_DECODE_TOKENS + 1)


def test_a_few_tokens_of_a_prompt_are_a_chunk():
    cache = filled(Pool(KVShape((LayerShape(2, 32, 32),)), "int8"), PAGE + 5, torch.float32)
    for phase in ("reading", "asking"):
        cache.enter_phase(phase)
        assert joins_batch(cache, 1)
        assert not joins_batch(cache, 3)
    narrow = filled(cache.pool, PAGE + 5, torch.bfloat16)
    narrow.enter_phase("asking")
    assert joins_batch(narrow, 3), "torch computes chunks in bf16"


def test_a_watched_sequence_may_have_no_sealed_page():
    cache = filled(Pool(KVShape((LayerShape(2, 32, 32),)), "int8"), 5, torch.float32)
    cache.record_attention()
    cache.begin(1)
    rows = DecodeBatch([(cache, 1)])
    assert rows.attend(0, *new(cache.pool.shape.layers[0], 1, torch.float32), 0.2).shape == (HEADS, 1, 32)
    rows.report_attention()
    cache.commit()
    assert cache.attention_mass.size == 0
