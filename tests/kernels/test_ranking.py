"""The greatest of some numbers: as sorting finds them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from localctx.kernels.llvm.ranking import kth_greatest, take_greatest
from localctx.kernels.llvm.vector_math import address_of


@njit
def kth_of(x, k):
    return kth_greatest(address_of(x), len(x), k)


few_values = st.sampled_from([0.0, 1e-38, 0.5, np.float32(0.1), 1.0, 3e38, float("inf")])
vectors = st.lists(few_values | st.floats(0, 1e6, width=32), min_size=1, max_size=90).map(
    lambda x: np.array(x + [0.0] * (-len(x) % 8), np.float32)
)


@given(vectors, st.data())
def test_the_kth_greatest_is_that_of_sorting(x, data):
    k = data.draw(st.integers(1, len(x)))
    assert kth_of(x, k) == np.sort(x)[len(x) - k]


@given(vectors, st.data())
def test_the_greatest_are_taken_in_order_and_of_equal_ones_the_first(x, data):
    count = data.draw(st.integers(1, len(x)))
    places = np.empty(count, np.int64)
    take_greatest(x, places)
    assert places.tolist() == sorted(np.argsort(-x, kind="stable")[:count])
