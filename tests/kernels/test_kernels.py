"""Every kernel against its reference."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from localctx.kernels import quant
from localctx.kernels import reference as A
from localctx.kernels.cpu import decode as decode_cpu
from localctx.kernels.cpu import decode_batch as decode_batch_cpu
from localctx.kernels.cpu.key_bias import KeyBias
from localctx.kernels.cpu.prefill import attend_chunk
from localctx.kernels.cpu.threads import set_threads
from localctx.kv.codecs import make_codec
from localctx.kv.page_format import layout_of
from localctx.shape import FORMATS, PAGE, LayerShape

SHAPES = {
    "gqa": (LayerShape(3, 64, 64), 9),
    "mqa": (LayerShape(1, 80, 80), 8),
    "mha": (LayerShape(4, 16, 16), 4),
    "uneven": (LayerShape(2, 24, 40), 6),
}


def rand(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


NEAR = {"atol": 2e-5, "rtol": 1e-4}  # how near attention must be


@pytest.fixture(params=SHAPES)
def case(request):
    return SHAPES[request.param]


def stored(codec_name, shape, pages):
    """Records of random keys (offset, as real ones are) and values, where they are, and what they decode to."""
    codec = make_codec(codec_name, shape)
    k = rand(shape.kv_heads, pages * PAGE, shape.k_dim) + 5 * rand(shape.kv_heads, 1, shape.k_dim)
    v = rand(shape.kv_heads, pages * PAGE, shape.v_dim)
    records = codec.encode(k, v)
    if codec.rotated:  # the kernels give what records hold; who calls them turns it back
        codec = make_codec(codec_name, shape, rotated=False)
    addresses = np.array([r.data_ptr() for r in records], np.int64)
    where = addresses, np.zeros(pages, np.uint8), layout_of(codec, make_codec("bf16", shape))
    return records, where, codec.decode(records, torch.float32)


@pytest.mark.parametrize("codec_name", FORMATS)
@pytest.mark.parametrize("pages", [1, 2, 35])
def test_attend_pages_is_attention_over_decoded_pages(codec_name, pages, case):
    shape, heads = case
    _records, where, (k, v) = stored(codec_name, shape, pages)
    q = rand(heads, 1, shape.k_dim)
    out, lse, _ = decode_batch_cpu.attend_pages(q[:, 0].numpy(), *where, 0.2)
    expected, expected_lse = A.attend_reference(q, k, v, 0.2)
    torch.testing.assert_close(torch.from_numpy(out), expected[:, 0], **NEAR)
    torch.testing.assert_close(torch.from_numpy(lse), expected_lse[:, 0], **NEAR)


@pytest.mark.parametrize("softcap", [0, 3.0])
@pytest.mark.parametrize("skip", [1, 63])
def test_attend_pages_hides_what_a_window_hides_and_caps_scores(skip, softcap):
    shape, heads = SHAPES["gqa"]
    _records, where, (k, v) = stored("int8", shape, 3)
    q, mask = rand(heads, 1, shape.k_dim), torch.arange(3 * PAGE)[None] >= skip
    out, lse, _ = decode_batch_cpu.attend_pages(q[:, 0].numpy(), *where, 0.2, skip, softcap)
    expected, expected_lse = A.attend_reference(q, k, v, 0.2, mask=mask, softcap=softcap)
    torch.testing.assert_close(torch.from_numpy(out), expected[:, 0], **NEAR)
    torch.testing.assert_close(torch.from_numpy(lse), expected_lse[:, 0], **NEAR)


def test_attend_pages_takes_pages_of_its_own_for_each_head_of_two_kinds_with_extra_scores():
    shape, heads = SHAPES["gqa"]
    kept, (at, _, _), (k, v) = stored("int4", shape, 6)
    sinks, (sinks_at, _, _), (sink_k, sink_v) = stored("bf16", shape, 1)
    assert len(kept) + len(sinks) == 7
    layout = layout_of(make_codec("int4", shape), make_codec("bf16", shape))
    chosen = np.array([[0, 2, 5], [1, 2, 3], [3, 4, 5]])
    addresses = np.concatenate((np.broadcast_to(sinks_at, (3, 1)), at[chosen]), 1)
    kinds = np.broadcast_to(np.array([1, 0, 0, 0], np.uint8), (3, 4))
    q, extra = rand(heads, 1, shape.k_dim), rand(heads, 4 * PAGE)
    out, lse, masses = decode_batch_cpu.attend_pages(
        q[:, 0].numpy(), addresses, kinds, layout, 0.2, extra=extra.numpy(), masses=True
    )
    for head in range(3):
        pages = (
            [k.unflatten(1, (6, PAGE))[head, i] for i in chosen[head]],
            [v.unflatten(1, (6, PAGE))[head, i] for i in chosen[head]],
        )
        keys, values = torch.cat([sink_k[head], *pages[0]]), torch.cat([sink_v[head], *pages[1]])
        mine = slice(head * 3, head * 3 + 3)
        scores = q[mine, 0] @ keys.T * 0.2 + extra[mine]
        torch.testing.assert_close(torch.from_numpy(out[mine]), scores.softmax(-1) @ values, atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(torch.from_numpy(lse[mine]), scores.logsumexp(-1), atol=2e-5, rtol=1e-5)
        torch.testing.assert_close(
            torch.from_numpy(masses[mine]), scores.unflatten(1, (4, PAGE)).logsumexp(-1), atol=1e-4, rtol=1e-5
        )


@pytest.mark.parametrize("codec_name", FORMATS)
@pytest.mark.parametrize(("pages", "before", "tokens"), [(0, 0, 70), (3, 0, 200), (2, 63, 2), (1, 17, 130)])
def test_attend_chunk_is_causal_attention_over_pages_and_what_follows_them(codec_name, pages, before, tokens, case):
    shape, heads = case
    _records, where, (k, v) = stored(codec_name, shape, max(pages, 1))
    where, sealed = (where[0][:pages], where[1][:pages], where[2]), pages * PAGE
    fresh = [rand(shape.kv_heads, before + tokens, d) for d in (shape.k_dim, shape.v_dim)]
    keys, values = (torch.cat((x[:, :sealed], y), 1) for x, y in zip((k, v), fresh, strict=True))
    q, seen = rand(tokens, heads, shape.k_dim).transpose(0, 1), torch.arange(sealed + before, sealed + before + tokens)
    mask = torch.arange(sealed + before + tokens) <= seen[:, None]
    for softcap in (0, 3.0):
        out, lse = attend_chunk(q, *fresh, *where, 0.2, softcap)
        expected, expected_lse = A.attend_reference(q, keys, values, 0.2, mask=mask, softcap=softcap)
        torch.testing.assert_close(out, expected, atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(lse, expected_lse, atol=2e-5, rtol=1e-5)


def test_a_chunk_adds_the_bias_that_keys_lack():
    shape, heads = SHAPES["gqa"]
    _records, where, (k, v) = stored("int8", shape, 3)
    count, pairs, dim = 3, shape.k_dim // 2, shape.k_dim
    starts, angles = rand(shape.kv_heads, count, dim), rand(pairs, 1) * torch.arange(PAGE)
    order = torch.arange(dim).numpy()
    turns = torch.cat((angles.cos(), angles.sin())).numpy()
    bias = KeyBias(starts.numpy(), turns, order[:pairs].copy(), order[pairs:].copy(), order[:0].copy())
    a, b = starts[..., :pairs, None], starts[..., pairs:, None]
    cos, sin = angles.cos(), angles.sin()
    added = torch.cat((a * cos - b * sin, b * cos + a * sin), 2).transpose(2, 3).flatten(1, 2)
    q, fresh = rand(heads, 9, dim), [rand(shape.kv_heads, 9, d) for d in (dim, shape.v_dim)]
    out, lse = attend_chunk(q, *fresh, *where, 0.2, bias=bias)
    keys, values = torch.cat((k + added, fresh[0]), 1), torch.cat((v, fresh[1]), 1)
    mask = torch.arange(count * PAGE + 9) <= torch.arange(count * PAGE, count * PAGE + 9)[:, None]
    expected, expected_lse = A.attend_reference(q, keys, values, 0.2, mask=mask)
    torch.testing.assert_close(out, expected, atol=5e-5, rtol=1e-4)
    torch.testing.assert_close(lse, expected_lse, atol=5e-5, rtol=1e-5)


def test_a_token_of_a_chunk_does_not_depend_on_those_after_it():
    shape, heads = SHAPES["gqa"]
    _records, where, _ = stored("int8", shape, 2)
    q, k, v = rand(heads, 150, 64), rand(shape.kv_heads, 160, 64), rand(shape.kv_heads, 160, 64)
    whole = attend_chunk(q, k, v, *where, 0.2)
    fewer = attend_chunk(q[:, :37], k[:, :47], v[:, :47], *where, 0.2)
    assert all(torch.equal(some, many[:, :37]) for some, many in zip(fewer, whole, strict=True))


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_packing_is_undone_by_unpacking_and_takes_the_bits_it_says(bits):
    codes = torch.randint(0, 1 << bits, (3, 64), dtype=torch.uint8)
    packed = quant.pack(codes, bits)
    assert packed.shape == (3, 64 * bits // 8)
    assert torch.equal(quant.unpack(packed, bits), codes)


@pytest.mark.parametrize("n", [8, 24, 64, 80, 128])
def test_the_hadamard_rotation_is_its_own_inverse_and_spreads_a_spike(n):
    x = torch.zeros(n)
    x[3] = 8
    torch.testing.assert_close(quant.rotate(quant.rotate(x)), x, atol=1e-5, rtol=0)
    assert quant.rotate(x).abs().max() <= 8 / (n & -n) ** 0.5 + 1e-5


@pytest.mark.parametrize("codec_name", FORMATS)
def test_stored_keys_are_those_that_are_decoded(codec_name, case):
    codec = make_codec(codec_name, case[0], rotated=False)
    records = codec.encode(*(rand(case[0].kv_heads, 3 * PAGE, d) for d in (case[0].k_dim, case[0].v_dim)))
    keys = codec.stored_keys(records).permute(1, 0, 3, 2).flatten(1, 2)
    assert torch.equal(keys, codec.decode(records, torch.float32)[0])


@pytest.mark.parametrize("codec_name", FORMATS)
def test_unpack_pages_is_decode_bit_for_bit(codec_name, case):
    _records, where, (k, v) = stored(codec_name, case[0], 5)
    k_out, v_out = decode_cpu.unpack_pages(*where)
    assert torch.equal(torch.from_numpy(k_out), k)
    assert torch.equal(torch.from_numpy(v_out), v)


def test_attend_pages_does_not_depend_on_threads():
    shape, heads = SHAPES["gqa"]
    _records, where, _ = stored("int8", shape, 70)
    q = rand(heads, shape.k_dim).numpy()
    many = decode_batch_cpu.attend_pages(q, *where, 0.2)
    set_threads(1)
    one = decode_batch_cpu.attend_pages(q, *where, 0.2)
    set_threads(64)
    assert all(np.array_equal(a, b) for a, b in zip(many, one, strict=True))


@pytest.mark.parametrize("how", ["plain", "causal", "mask", "softcap"])
def test_attend_is_its_reference(how):
    q, k, v = rand(6, 33, 32), rand(2, 33, 32), rand(2, 33, 32)
    mask = torch.rand(33, 33, generator=torch.Generator().manual_seed(1)) > 0.5
    mask[7] = False
    extra = {"plain": {}, "causal": {"causal": True}, "mask": {"mask": mask}, "softcap": {"softcap": 2.0}}[how]
    out, lse = A.attend(q, k, v, 0.3, **extra)
    expected, expected_lse = A.attend_reference(q, k, v, 0.3, **extra)
    torch.testing.assert_close(out, expected, atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(lse, expected_lse, atol=2e-6, rtol=1e-5)


def test_a_query_that_sees_nothing_has_no_weight():
    q, k, v = rand(2, 3, 8), rand(1, 5, 8), rand(1, 5, 8)
    mask = torch.tensor([[True] * 5, [False] * 5, [True] * 5])
    out, lse = A.attend(q, k, v, 1.0, mask=mask)
    assert (lse[:, 1] == -math.inf).all()
    assert (out[:, 1] == 0).all()
    other = A.attend(q, k + 1, v + 1, 1.0)
    torch.testing.assert_close(A.merge([(out, lse), other])[0][:, 1], other[0][:, 1])


@given(st.lists(st.integers(1, 90), min_size=1, max_size=5), st.booleans())
@settings(max_examples=25, deadline=None)
def test_merging_blocks_is_attention_over_all_of_them(sizes, with_sinks):
    q, k, v = rand(4, 3, 16), rand(2, sum(sizes), 16), rand(2, sum(sizes), 16)
    blocks = zip(k.split(sizes, 1), v.split(sizes, 1), strict=True)
    sinks = rand(4) if with_sinks else None
    merged, _ = A.merge([A.attend(q, kb, vb, 0.3) for kb, vb in blocks], sinks)
    scores = torch.einsum("htd,hsd->hts", q, k.repeat_interleave(2, 0)) * 0.3
    if sinks is not None:
        scores = torch.cat((scores, sinks[:, None, None].expand(4, 3, 1)), -1)
    weights = scores.softmax(-1)[..., : sum(sizes)]
    torch.testing.assert_close(merged, weights @ v.repeat_interleave(2, 0), atol=1e-5, rtol=1e-4)


@given(
    st.integers(2, 8),
    st.floats(-60_000, 60_000, width=32),
    st.floats(0, 100, width=32),
)
@settings(deadline=None)
def test_quantize_clips_nothing_and_errs_by_half_a_step(bits, offset, spread):
    x = offset + spread * torch.linspace(-1, 1, 64).reshape(2, 32)
    codes, scale, zero = quant.quantize(x, 1, bits)
    back = quant.dequantize(codes, scale, zero, 1)
    step = scale.float().unsqueeze(1)
    assert ((back - x).abs() <= 0.5 * step + 1e-6 * x.abs()).all()
    assert (zero.float().unsqueeze(1) <= x + 1e-6 * x.abs() + 2.0**-20).all()
    assert codes.dtype == torch.uint8
    assert int(codes.max()) < 1 << bits


def test_quantize_keeps_a_constant_group():
    x = torch.full((3, 64), 0.5)
    assert torch.allclose(quant.dequantize(*quant.quantize(x, 1, 8), 1), x, atol=1e-3)


def test_attend_takes_keys_that_lie_as_pages_hold_them():
    """One decoded page is a view with its tokens innermost."""
    q, k, v = rand(4, 3, 16), rand(2, 16, PAGE).transpose(1, 2), rand(2, PAGE, 16)
    torch.testing.assert_close(A.attend(q, k, v, 0.25), A.attend_reference(q, k, v, 0.25), atol=1e-5, rtol=1e-5)
