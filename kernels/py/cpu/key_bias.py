"""The bias of k_proj, which quantized pages of keys lack: adding it to keys as they are decoded."""

from typing import NamedTuple

import numpy as np
from numba import njit

from localctx.kernels.llvm.vector_math import INNER


class KeyBias(NamedTuple):
    """The bias that is missing in the keys of n pages of one layer, after RoPE; float32.

    ``starts`` [H, n, D] is the bias at each page's first position, 0 for a page whose keys have it. At a page's i-th
    token it has turned on: the channels ``first`` and ``second`` [pairs] int64 by the angles with cosines and sines
    ``cos`` and ``sin`` [pairs, 64]. The channels ``still`` int64 do not turn.
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
    """Add what is missing to a head's keys k [D, 64] of a page. NO_BIAS adds nothing."""
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
