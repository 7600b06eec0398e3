"""Sparse attention of a chunk: what it may skip, and what it must not."""

import numpy as np
import pytest
import torch

from localctx.kernels.cpu.key_bias import KeyBias, add_bias
from localctx.kernels.cpu.prefill import attend_chunk
from localctx.kernels.cpu.sparse_prefill import SAMPLES, attend_chunk_sparsely
from localctx.kv.codecs import make_codec
from localctx.kv.page_format import layout_of
from localctx.shape import PAGE, LayerShape

SHAPE, HEADS, PAGES, SCALE = LayerShape(2, 16, 24), 6, 12, 0.25
SAMPLED = range(PAGE // SAMPLES - 1, PAGE, PAGE // SAMPLES)


def rand(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def stored(k, v, codec_name="f32"):
    codec = make_codec(codec_name, SHAPE)
    records = codec.encode(k, v)
    addresses = np.array([r.data_ptr() for r in records], np.int64)
    layout = layout_of(codec, make_codec("bf16", SHAPE))
    return records, (addresses, np.zeros(len(records), np.uint8), layout)


def new(tokens, before=0):
    q = 3 * rand(HEADS, tokens, SHAPE.k_dim)
    return q, *(rand(SHAPE.kv_heads, before + tokens, d) for d in (SHAPE.k_dim, SHAPE.v_dim))


@pytest.fixture
def past():
    return [rand(SHAPE.kv_heads, PAGES * PAGE, d) for d in (SHAPE.k_dim, SHAPE.v_dim)]


@pytest.mark.parametrize("codec_name", ["f32", "int8"])
@pytest.mark.parametrize("loss", [0.02, 0.3])
def test_no_query_that_is_looked_at_loses_more_attention_than_allowed(past, codec_name, loss):
    past[0][:, 2 * PAGE : 8 * PAGE] *= 0.1  # pages that queries attend to a little
    _records, where = stored(*past, codec_name)
    chunk = new(3 * PAGE)
    (_, lse), (_, dense) = attend_chunk_sparsely(*chunk, *where, SCALE, 0.0, loss), attend_chunk(*chunk, *where, SCALE)
    lost = 1 - (lse - dense).exp().unflatten(1, (-1, PAGE))
    assert lost[..., list(SAMPLED)].max() <= loss + 1e-5
    assert lost.max() > loss / 4, "it skips what it may skip"


def test_a_page_without_weight_is_not_read(past):
    k, v = past
    k[:, PAGE : 5 * PAGE] = 0
    k[:, 0], v[:, PAGE : 5 * PAGE] = 50, float("nan")  # the values of four pages that no query attends to
    _records, where = stored(k, v)
    q, *own = new(2 * PAGE)
    out, lse = attend_chunk_sparsely(q.abs(), *own, *where, SCALE, 0.0, 0.01)
    assert out.isfinite().all()
    assert lse.isfinite().all()


def test_a_bias_that_keys_lack_is_added_before_pages_are_chosen(past):
    """The bias of these pages makes half of them matter, which decides what is skipped."""
    dim, pairs = SHAPE.k_dim, SHAPE.k_dim // 2
    starts = 2 * rand(SHAPE.kv_heads, PAGES, dim)
    starts[:, ::2] = 0
    angles, order = rand(pairs, 1) * torch.arange(PAGE), np.arange(dim)
    turns = torch.cat((angles.cos(), angles.sin())).numpy()
    bias = KeyBias(starts.numpy(), turns, order[:pairs].copy(), order[pairs:].copy(), order[:0].copy())
    added = past[0].clone().unflatten(1, (PAGES, PAGE))
    for head, page in np.ndindex(SHAPE.kv_heads, PAGES):
        key = added[head, page].T.contiguous().numpy()
        add_bias(bias, head, page, key)
        added[head, page] = torch.from_numpy(key.T)
    chunk = new(2 * PAGE)
    _records, lacking = stored(*past)
    _more, whole = stored(added.flatten(1, 2), past[1])
    expected = attend_chunk_sparsely(*chunk, *whole, SCALE, 0.0, 0.2)
    for one, other in zip(attend_chunk_sparsely(*chunk, *lacking, SCALE, 0.0, 0.2, bias), expected, strict=True):
        torch.testing.assert_close(one, other, atol=5e-5, rtol=1e-4)
    without = attend_chunk_sparsely(*chunk, *lacking, SCALE, 0.0, 0.2)[0]
    assert (without - expected[0]).abs().max() > 0.1


def test_tokens_that_do_not_fill_a_page_see_everything(past):
    _records, where = stored(*past)
    chunk = new(130, before=17)  # 47 fill the open page, 64 the next one, 19 remain
    (out, _), (dense, _) = attend_chunk_sparsely(*chunk, *where, SCALE, 0.0, 0.5), attend_chunk(*chunk, *where, SCALE)
    assert torch.equal(out[:, :47], dense[:, :47])
    assert torch.equal(out[:, 111:], dense[:, 111:])
    assert not torch.equal(out[:, 47:111], dense[:, 47:111])


def test_a_token_does_not_depend_on_how_many_pages_are_read_at_once(past):
    _records, where = stored(*past)
    q, k, v = new(3 * PAGE)
    whole = attend_chunk_sparsely(q, k, v, *where, SCALE, 2.0, 0.2)
    first = attend_chunk_sparsely(q[:, :PAGE], k[:, :PAGE], v[:, :PAGE], *where, SCALE, 2.0, 0.2)
    rest = attend_chunk_sparsely(q[:, PAGE:], k, v, *where, SCALE, 2.0, 0.2)
    for all_, one, two in zip(whole, first, rest, strict=True):
        assert torch.equal(all_, torch.cat((one, two), 1))
