"""Sketches of a sequence's pages, and the ranges of their keys: made as pages are sealed, wherever records are."""

import pytest
import torch
from keeper_models import build

from localctx.kernels import quant
from localctx.kernels.sketch import BITS, make_sketch
from localctx.kv.block_table import RUN
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.shape import PAGE


@pytest.fixture(scope="module")
def model():
    return build("qwen2")


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def append(cache: Cache, pages: int) -> None:
    """Append ``pages`` pages of random keys and values."""
    cache.begin(pages * PAGE)
    for layer, s in enumerate(cache.pool.shape.layers):
        cache.extend(layer, *(rand(s.kv_heads, pages * PAGE, d) for d in (s.k_dim, s.v_dim)))
    cache.commit()


def stored_keys(cache: Cache, layer: int) -> torch.Tensor:
    """The keys as they are stored, [n, H, D, 64]."""
    table, pool = cache.table, cache.pool
    codecs = [pool.codec_of(layer, kind) for kind in table.kinds(pool.format.parts[layer])]
    return torch.cat([codec.stored_keys(table.records(layer, i, i + 1)) for i, codec in enumerate(codecs)])


def whole_keys(cache: Cache, layer: int) -> torch.Tensor:
    """The keys with their bias, [n, H, D, 64]; rotated, if they are stored so."""
    keys = torch.cat([cache.read(layer, i, i + 1, torch.float32)[0] for i in range(cache.num_pages)], 1)
    keys = quant.rotate(keys) if cache.pool.format.rotated else keys
    return keys.unflatten(1, (cache.num_pages, PAGE)).permute(1, 0, 3, 2)


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("codec", ["f32", "int8", "int4", "int2+hadamard"])
def test_sketches_are_of_stored_keys_and_ranges_of_keys_with_their_bias(model, codec, in_place):
    cache = Cache(Pool(model.shape, codec, rope=model.rope, in_place=in_place), torch.float32)
    for pages in (1, RUN + 2, 2):
        append(cache, pages)
        assert cache.sketches.ranges(0).zero.shape[1] == cache.num_pages
    for layer in range(len(cache.pool.shape.layers)):
        sketch, ranges = cache.sketches.of_layer(layer), cache.sketches.ranges(layer)
        expected, keys = make_sketch(stored_keys(cache, layer)), whole_keys(cache, layer)
        assert all(torch.equal(a, b) for a, b in zip(sketch, expected, strict=True))
        scale, zero = (part.transpose(0, 1).float() for part in ranges)
        low, high, top = keys.amin(3), keys.amax(3), zero + scale * (2**BITS - 1)
        assert (zero <= low + 0.02).all(), "angles are rounded in another way"
        assert (top >= high - 0.02).all()
        torch.testing.assert_close(zero, low, atol=0.02, rtol=2**-9)
        torch.testing.assert_close(top, high, atol=0.2, rtol=2**-9)
    biased = codec != "f32"
    assert torch.equal(ranges.zero, sketch.zero) != biased, "floats are stored with their bias"


def test_sketches_made_page_by_page_are_those_made_at_once(model):
    cache = Cache(Pool(model.shape, "int8", rope=model.rope), torch.float32)
    for _ in range(4):
        append(cache, 1)
        before = *cache.sketches.of_layer(1), *cache.sketches.ranges(1)
    cache.sketches.clear()
    after = *cache.sketches.of_layer(1), *cache.sketches.ranges(1)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert cache.sketches.nbytes == sum(part.nbytes for part in after)
