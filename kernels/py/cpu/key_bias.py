"""The bias of k_proj, which quantized pages store keys without: added to decoded keys, or to the scores of queries."""

from typing import NamedTuple

import numpy as np
from numba import njit, prange

from localctx.kernels.llvm.simd import product
from localctx.kernels.llvm.vector_math import INNER, MATH, address_of
from localctx.kernels.quant import PAGE


class KeyBias(NamedTuple):
    """The bias of k_proj, after RoPE, that the keys of n pages of one layer lack; float32.

    ``starts`` [H, n, D] is the bias at the first position of each page, 0 for a page whose keys include it. RoPE
    rotates it further within the page. For the i-th token, the channel pairs ``first`` and ``second`` [pairs] int64
    rotate by the angles with the cosines and then the sines ``turns`` [2 * pairs, 64]. The channels ``still`` int64 do
    not rotate.
    """

    starts: np.ndarray
    turns: np.ndarray
    first: np.ndarray
    second: np.ndarray
    still: np.ndarray


_NOWHERE = np.empty(0, np.int64)
NO_BIAS = KeyBias(np.empty((0, 0, 0), np.float32), np.empty((0, PAGE), np.float32), _NOWHERE, _NOWHERE, _NOWHERE)


@njit(**INNER)
def add_bias(bias, head, page, k):  # type: ignore[no-untyped-def]
    """Add the missing bias to the keys k [D, 64] of a head and page. With NO_BIAS nothing is added."""
    if bias.starts.shape[1] == 0:
        return
    start, pairs = bias.starts[head, page], len(bias.first)
    for j in range(pairs):
        a, b = bias.first[j], bias.second[j]
        cos, sin = bias.turns[j], bias.turns[pairs + j]
        for i in range(k.shape[1]):
            k[a, i] += start[a] * cos[i] - start[b] * sin[i]
            k[b, i] += start[b] * cos[i] + start[a] * sin[i]
    for d in bias.still:
        for i in range(k.shape[1]):
            k[d, i] += start[d]


@njit(parallel=True, fastmath=MATH, cache=True)
def bias_scores(q, parts, bias):  # type: ignore[no-untyped-def]
    """Returns how much the missing bias adds to the products of the queries q [rows, Hq, D] with the keys of pages:
    [Hq, n * 64] float32. ``parts`` [S, 4] give the pages of each row, as in BatchPages. With NO_BIAS: [Hq, 0].
    """
    heads, pages = bias.starts.shape[:2]
    out, group = np.zeros((q.shape[1], pages * PAGE), np.float32), q.shape[1] // max(1, heads)
    for task in prange(heads * len(parts)):
        head, part = task // len(parts), parts[task % len(parts)]
        some = slice(head * group, head * group + group)
        room = np.empty((group, len(bias.turns)), np.float32), np.empty((group, PAGE), np.float32)
        _scores_of_part(q[part[0], some], bias, head, part[1], part[2], room, out[some])
    return out


@njit(cache=True)
def scores_at(chosen, extra):  # type: ignore[no-untyped-def]
    """Returns the ``bias_scores`` ``extra`` [Hq, n * 64] of the pages ``chosen`` [H, count] alone: [Hq, count * 64]."""
    if extra.shape[1] == 0:
        return extra
    count, group = chosen.shape[1], len(extra) // len(chosen)
    out = np.empty((len(extra), count * PAGE), np.float32)
    for head in range(len(extra)):
        for i in range(count):
            at = chosen[head // group, i] * PAGE
            out[head, i * PAGE : i * PAGE + PAGE] = extra[head, at : at + PAGE]
    return out


@njit(**INNER)
def _scores_of_part(q, bias, head, first, stop, room, out):  # type: ignore[no-untyped-def]
    """Compute ``bias_scores`` of a head's queries q [group, D] for the pages ``first`` to ``stop``. ``room`` is scratch
    memory: [group, 2 * pairs] and [group, 64].
    """
    (waves, scores), pairs, floats, here = room, len(bias.first), np.int64(32), np.int64(0)
    for page in range(first, stop):
        start = bias.starts[head, page]
        for i in range(len(q)):
            for j in range(pairs):
                a, b = bias.first[j], bias.second[j]
                waves[i, j] = q[i, a] * start[a] + q[i, b] * start[b]
                waves[i, pairs + j] = q[i, b] * start[a] - q[i, a] * start[b]
            same = np.float32(0)
            for d in bias.still:
                same += q[i, d] * start[d]
            scores[i] = same
        product(floats, address_of(bias.turns), np.int64(PAGE), here, waves, scores)
        for i in range(len(q)):
            for t in range(PAGE):
                out[i, page * PAGE + t] = scores[i, t]
