"""Adds the bias of k_proj to keys as they are decoded. Quantized pages store keys without this bias."""

from typing import NamedTuple

import numpy as np
from numba import njit

from localctx.kernels.llvm.vector_math import INNER


class KeyBias(NamedTuple):
    """The bias of k_proj, after RoPE, that the keys of n pages of one layer lack; float32.

    ``starts`` [H, n, D] is the bias at the first position of each page, 0 for a page whose keys include it. RoPE
    rotates it further within the page. For the i-th token, the channel pairs ``first`` and ``second`` [pairs] int64
    rotate by the angles with cosines ``cos`` and sines ``sin`` [pairs, 64]. The channels ``still`` int64 do not rotate.
    """

    starts: np.ndarray
    cos: np.ndarray
    sin: np.ndarray
    first: np.ndarray
    second: np.ndarray
    still: np.ndarray


_NONE, _NOWHERE = np.empty((0, 0), np.float32), np.empty(0, np.int64)
NO_BIAS = KeyBias(np.empty((0, 0, 0), np.float32), _NONE, _NONE, _NOWHERE, _NOWHERE, _NOWHERE)


@njit(**INNER)
def add_bias(bias, head, page, k):  # type: ignore[no-untyped-def]
    """Add the missing bias to the keys k [D, 64] of a head and page. With NO_BIAS nothing is added."""
    if bias.starts.shape[1] == 0:
        return
    start = bias.starts[head, page]
    for j in range(len(bias.first)):
        a, b = bias.first[j], bias.second[j]
        for i in range(k.shape[1]):
            k[a, i] += start[a] * bias.cos[j, i] - start[b] * bias.sin[j, i]
            k[b, i] += start[b] * bias.cos[j, i] + start[a] * bias.sin[j, i]
    for d in bias.still:
        for i in range(k.shape[1]):
            k[d, i] += start[d]
