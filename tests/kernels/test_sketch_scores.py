"""Scores of keys at two bits: as near to those of unrounded queries as int8 allows."""

import numpy as np
import pytest
import torch
from numba import njit

from localctx.kernels import quant
from localctx.kernels.llvm.sketch_scores import BITS, add_channel, score_keys, spread_codes
from localctx.kernels.llvm.vector_math import address_of
from localctx.kernels.sketch import make_sketch
from localctx.shape import PAGE


@njit
def spread_of(codes, out):
    spread_codes(address_of(codes), len(codes), address_of(out))


@njit
def scores_of(q, codes, scale, zero, scores):
    spread, room = np.empty((len(q), PAGE), np.uint8), np.empty(5 * len(q), np.uint8)
    spread_codes(address_of(codes), len(q), address_of(spread))
    places = address_of(scale), address_of(zero), address_of(room), address_of(scores)
    score_keys(address_of(q), len(q), address_of(spread), places[0], places[1], places[2], places[3])


def a_page(dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes [dim, 16], scales and zeros of 64 keys."""
    codes, scale, zero = make_sketch(torch.randn(1, 1, dim, PAGE, generator=torch.Generator().manual_seed(dim)))
    return codes[0, 0].numpy(), scale[0, 0].numpy(), zero[0, 0].numpy()


def keys_of(codes: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """The keys [dim, 64] that they stand for."""
    found, scales, zeros = (torch.from_numpy(x) for x in (codes, scale, zero))
    return quant.dequantize(quant.unpack(found, BITS), scales, zeros, 1).double().numpy()


@pytest.mark.parametrize("dim", [8, 64, 576])
def test_codes_of_four_channels_are_put_beside_each_other(dim):
    codes = a_page(dim)[0]
    out = np.empty((dim // 4, PAGE, 4), np.uint8)
    spread_of(codes, out)
    plain = quant.unpack(torch.from_numpy(codes), BITS).numpy()
    assert np.array_equal(out.transpose(0, 2, 1).reshape(dim, PAGE), plain)


@pytest.mark.parametrize("dim", [8, 16, 24, 64, 80, 128, 576])
def test_a_score_is_off_by_no_more_than_rounding_the_query_is(dim):
    codes, scale, zero = a_page(dim)
    q, scores = np.random.default_rng(dim).normal(0, 1, dim).astype(np.float32), np.empty(PAGE, np.float32)
    scores_of(q, codes, scale.view(np.uint16), zero.view(np.uint16), scores)
    scaled = np.abs(q.astype(np.float64) * scale)
    error = np.abs(scores - q.astype(np.float64) @ keys_of(codes, scale, zero))
    assert error.max() <= scaled.max() / 127 / 2 * 3 * dim, "half a step for each of the channels, whose code is 3"
    assert error.mean() <= scaled.max() / 127 * dim**0.5, "errors add up as those of chance"


def test_a_channel_is_added_by_itself():
    codes, scale, zero = a_page(8)
    scores = np.ones(PAGE, np.float32)
    add_channel(np.float32(0.5), codes[3], scale.view(np.uint16)[3], zero.view(np.uint16)[3], scores)
    assert np.allclose(scores, 1 + 0.5 * keys_of(codes, scale, zero)[3], rtol=1e-6)


def test_a_query_of_zeros_scores_nothing():
    codes, scale, zero = a_page(16)
    scores = np.full(PAGE, 9, np.float32)
    scores_of(np.zeros(16, np.float32), codes, scale.view(np.uint16), zero.view(np.uint16), scores)
    assert not scores.any()
