"""Vectors of float32: exp, sums and maxima that are the same whatever the processor's vectors hold."""

import numpy as np
import pytest
from numba import njit

from localctx.kernels.llvm.vector_math import address_of, dots_of_halves, exp_below, gate, greatest


@njit
def exp_and_sum(x, top):
    return exp_below(address_of(x), top, len(x))


@njit
def greatest_of(x):
    return greatest(address_of(x), len(x))


@njit
def dots_of(x, y, halves, others):
    return dots_of_halves(x, y, address_of(halves), address_of(others))


@pytest.mark.parametrize("count", [8, 16, 24, 64, 72])
def test_exp_is_that_of_numpy_and_its_sum_that_of_vectors_of_eight(count):
    x = np.random.default_rng(count).uniform(-40, 0, count).astype(np.float32)
    found = x.copy()
    total = exp_and_sum(found, np.float32(0))
    assert np.allclose(found, np.exp(x.astype(np.float64)), rtol=3e-7, atol=0)
    sums = np.zeros(8, np.float32)
    for eight in found.reshape(-1, 8):
        sums += eight
    while len(sums) > 1:
        sums = sums[::2] + sums[1::2]
    assert total == sums[0]


@pytest.mark.parametrize("count", [8, 16, 24, 64, 72])
def test_the_greatest_is_found_wherever_it_is(count):
    for place in range(count):
        x = np.full(count, -3.0, np.float32)
        x[place] = -2.0
        assert greatest_of(x) == -2.0


@pytest.mark.parametrize("count", [3, 8, 16, 45, 64])
def test_a_gate_is_silu_times_the_other_number(count):
    x, up = np.random.default_rng(count).normal(0, 20, (2, count)).astype(np.float32)
    x[:2] = -200, 200
    out = np.empty(count, np.float32)
    gate(x, up, out)
    exact = x.astype(np.float64)
    assert np.allclose(out, exact / (1 + np.exp(-exact)) * up, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("count", [1, 8, 16, 24, 64, 67])
def test_products_with_halves_are_added(count):
    x, y, halves, others = np.random.default_rng(count).normal(0, 1, (4, count)).astype(np.float32)
    halves, others = halves.astype(np.float16), others.astype(np.float16)
    exact = x.astype(np.float64) @ halves + y.astype(np.float64) @ others
    assert dots_of(x, y, halves.view(np.uint16), others.view(np.uint16)) == pytest.approx(exact, rel=1e-5, abs=1e-5)
