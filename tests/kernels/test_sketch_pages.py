"""Sketches of page records, and the ranges of their keys with a bias: those that torch makes, bit by bit."""

import numpy as np
import pytest
import torch

from localctx.kernels import quant
from localctx.kernels.cpu.key_bias import KeyBias
from localctx.kernels.cpu.sketch import sketch_pages
from localctx.kernels.cpu.threads import set_threads
from localctx.kernels.sketch import BITS, KeyRanges, Sketch, make_sketch
from localctx.kv.codecs import make_codec
from localctx.kv.page_format import layout_of
from localctx.shape import FORMATS, PAGE, LayerShape

SHAPES = {
    "several heads": LayerShape(3, 64, 64),
    "wide": LayerShape(2, 128, 128),
    "no power of two": LayerShape(1, 80, 80),
    "narrow": LayerShape(4, 16, 16),
    "values of another width": LayerShape(2, 24, 40),
}
EXACTLY_ROTATED = "several heads", "no power of two", "narrow"  # the root of 64 and of 16 is exact
PAGES = 5


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def integers(*shape: int) -> torch.Tensor:
    """Whole numbers, whose sums are exact in any order."""
    return torch.randint(-40, 41, shape, generator=torch.Generator().manual_seed(sum(shape))).float()


def stored(name: str, shape: LayerShape, k: torch.Tensor):
    """Records of the keys k [H, PAGES * 64, D], the arguments that say where they are, and their stored keys. One is a
    sink: it is in full precision.
    """
    codecs = [make_codec(codec, shape, rotated=False) for codec in (name, "bf16")]
    v, kinds = rand(shape.kv_heads, len(k[0]), shape.v_dim), np.array([1, *[0] * (PAGES - 1)], np.uint8)
    halves = [codec.encode(k, v) for codec in codecs]
    records = [halves[kind][page] for page, kind in enumerate(kinds)]
    keys = torch.cat([codecs[kind].stored_keys(record[None]) for kind, record in zip(kinds, records, strict=True)])
    where = np.array([record.data_ptr() for record in records], np.int64), kinds, layout_of(*codecs)
    return records, where, keys


def offset_keys(shape: LayerShape) -> torch.Tensor:
    """Random keys, whose channels are at different heights, as real ones are."""
    return rand(shape.kv_heads, PAGES * PAGE, shape.k_dim) + 5 * rand(shape.kv_heads, 1, shape.k_dim)


def quarter_turns(shape: LayerShape) -> tuple[KeyBias, torch.Tensor]:
    """A bias of whole numbers whose pairs of channels turn by right angles, except in the first page, which has none;
    and what it adds to all keys, [n, H, D, 64].
    """
    pairs, starts = shape.k_dim // 2 - 1, integers(shape.kv_heads, PAGES, shape.k_dim)
    starts[:, 0] = 0
    quarters = torch.arange(1, pairs + 1)[:, None] * torch.arange(PAGE) % 4
    cos, sin = (torch.tensor(turns)[quarters] for turns in ([1.0, 0, -1, 0], [0.0, 1, 0, -1]))
    first, second, still = np.arange(pairs), np.arange(pairs, 2 * pairs), np.array([2 * pairs, 2 * pairs + 1])
    bias = KeyBias(starts.numpy(), torch.cat((cos, sin)).numpy(), first, second, still)
    a, b, rest = (starts[..., channels, None] for channels in (first, second, still))
    added = torch.cat((a * cos - b * sin, b * cos + a * sin, rest.expand(-1, -1, -1, PAGE)), 2)
    return bias, added.transpose(0, 1)


def ranges_of(keys: torch.Tensor) -> KeyRanges:
    """The ranges of keys [n, H, D, 64], by torch."""
    return KeyRanges(*make_sketch(keys)[1:])


def same(made: Sketch | KeyRanges | None, expected: Sketch | KeyRanges) -> bool:
    return made is not None and all(torch.equal(a, b) for a, b in zip(made, expected, strict=True))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("name", FORMATS)
def test_the_sketch_of_records_is_that_of_their_keys(name, shape):
    _records, where, keys = stored(name, shape, offset_keys(shape))
    made, ranges = sketch_pages(*where)
    assert same(made, make_sketch(keys))
    assert ranges is None, "without a bias, the sketch has the ranges"


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("name", FORMATS)
def test_ranges_are_of_keys_with_their_bias_and_the_sketch_is_without(name, shape):
    _records, where, keys = stored(name, shape, offset_keys(shape))
    bias, added = quarter_turns(shape)
    made, ranges = sketch_pages(*where, bias)
    assert same(made, make_sketch(keys))
    assert same(ranges, ranges_of(keys + added))
    assert not same(ranges, ranges_of(keys))


@pytest.mark.parametrize("name", SHAPES)
def test_a_bias_is_rotated_as_the_keys_are(name):
    _records, where, keys = stored("int8", SHAPES[name], offset_keys(SHAPES[name]))
    bias, added = quarter_turns(SHAPES[name])
    _, ranges = sketch_pages(*where, bias, rotated=True)
    expected = ranges_of(keys + quant.rotate(added.transpose(2, 3)).transpose(2, 3))
    if name in EXACTLY_ROTATED:
        assert same(ranges, expected)
    for made, part in zip(ranges, expected, strict=True):
        torch.testing.assert_close(made.float(), part.float(), atol=0.02, rtol=2**-9)


@pytest.mark.parametrize("name", ["f32", "bf16", "int8"])
def test_keys_may_be_constant_tiny_or_beyond_float16(name):
    k = offset_keys(shape := SHAPES["narrow"])
    for channel, value in enumerate([0, -0.0, 1e-7, -3e-8, 7, 64_990, 65_010, -65_010, 1e30, -float("inf")]):
        k[:, :, channel] = value
    k[:, 3::7, 6], k[:, ::5, 7], k[:, 9::17, 0], k[:, 1::2, 1] = -7e4, 8, -7e-8, 0
    if name == "int8":  # torch's own codec has no number for it
        k = k.clamp(-1e30, 1e30)
    _records, where, keys = stored(name, shape, k)
    assert same(sketch_pages(*where)[0], make_sketch(keys))
    bias, added = quarter_turns(shape)
    assert same(sketch_pages(*where, bias)[1], ranges_of(keys + added))


def test_ranges_bound_the_keys_closely():
    shape = SHAPES["several heads"]
    _records, where, keys = stored("int8", shape, offset_keys(shape))
    bias, added = quarter_turns(shape)
    _, ranges = sketch_pages(*where, bias)
    assert ranges
    keys, (scale, zero) = keys + added, (part.transpose(0, 1).float() for part in ranges)
    low, high, top = keys.amin(3), keys.amax(3), zero + scale * (2**BITS - 1)
    assert (zero <= low).all()
    assert (high <= top).all()
    torch.testing.assert_close(zero, low, atol=1e-6, rtol=2**-9)
    torch.testing.assert_close(top, high, atol=0.1, rtol=2**-9)


def test_sketches_do_not_depend_on_threads():
    shape = SHAPES["wide"]
    _records, where, _ = stored("int4", shape, offset_keys(shape))
    bias, _ = quarter_turns(shape)
    many = sketch_pages(*where, bias)
    set_threads(1)
    one = sketch_pages(*where, bias)
    set_threads(64)
    assert all(same(a, b) for a, b in zip(many, one, strict=True))
