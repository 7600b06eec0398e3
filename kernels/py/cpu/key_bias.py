"""The bias of k_proj, which quantized pages leave out of the stored keys. It is added to decoded keys, or to the scores
of queries.
"""

from typing import NamedTuple

import numpy as np
from numba import njit, prange

from localctx.kernels.llvm.simd import product
from localctx.kernels.llvm.vector_math import INNER, MATH, address_of
from localctx.kernels.quant import PAGE


class KeyBias(NamedTuple):
    """The bias of k_proj (float32) that the stored keys of n pages of one layer lack. It is added after RoPE, so it
    depends on the token's position.

    ``starts`` [H, n, D] is the rotated bias at the first position of each page; it is 0 for a page whose keys include
    the bias. RoPE rotates it further for the page's other tokens. ``first`` and ``second`` [pairs] int64 are the
    channels of each pair that RoPE rotates. ``turns`` [2 * pairs, 64] has, for each of the 64 tokens, the cosines and
    then the sines of the pairs' angles. The channels ``still`` int64 do not rotate.
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
    """Add the missing bias of k_proj to the decoded keys k [D, 64] of one KV head and page. ``bias`` is a KeyBias;
    NO_BIAS adds nothing.
    """
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
    """Returns the score that the missing bias of k_proj adds to each key of n pages: [Hq, n * 64] float32, or [Hq, 0]
    with NO_BIAS. q [rows, Hq, D] are the queries. ``parts`` [S, 4] say which pages each row sees, as in BatchPages.
    """
    heads, pages = bias.starts.shape[:2]
    out, group = np.zeros((q.shape[1], pages * PAGE), np.float32), q.shape[1] // max(1, heads)
    for task in prange(heads * len(parts)):
        head, part = task // len(parts), parts[task % len(parts)]
        some = slice(head * group, head * group + group)
        room = np.empty((group, len(bias.turns)), np.float32), np.empty((group, PAGE), np.float32)
        _scores_of_part(q[part[0], some], bias, head, part[1], part[2], room, out[some])
    return out


@njit(parallel=True, fastmath=MATH, cache=True)
def bias_scores_at(q, chosen, bias):  # type: ignore[no-untyped-def]
    """Returns ``bias_scores`` of the queries q [Hq, D] for the selected pages alone: [Hq, count * 64], or [Hq, 0] with
    NO_BIAS. ``chosen`` [H, count] are the indices of the pages that each KV head selected.
    """
    (heads, count), biased = chosen.shape, bias.starts.shape[1] > 0
    group = len(q) // heads
    out = np.empty((len(q), count * PAGE if biased else 0), np.float32)
    for task in prange(heads * count if biased else 0):
        head, i = task // count, task % count
        some = slice(head * group, head * group + group)
        room = np.empty((group, len(bias.turns)), np.float32), np.empty((group, PAGE), np.float32)
        scores_of_page(q[some], bias, head, chosen[head, i], room)
        out[some, i * PAGE : i * PAGE + PAGE] = room[1]
    return out


@njit(**INNER)
def _scores_of_part(q, bias, head, first, stop, room, out):  # type: ignore[no-untyped-def]
    """Compute ``bias_scores`` for the queries q [group, D] of one KV head and the pages ``first`` to ``stop``. ``room``
    is scratch memory: [group, 2 * pairs] and [group, 64].
    """
    for page in range(first, stop):
        scores_of_page(q, bias, head, page, room)
        for i in range(len(q)):
            for t in range(PAGE):
                out[i, page * PAGE + t] = room[1][i, t]


@njit(**INNER)
def scores_of_page(q, bias, head, page, room):  # type: ignore[no-untyped-def]
    """Set ``room[1]`` [group, 64] to ``bias_scores`` of the queries q [group, D] of one KV head for one page.
    ``room[0]`` is scratch memory [group, 2 * pairs].
    """
    (waves, scores), start, pairs = room, bias.starts[head, page], len(bias.first)
    for i in range(len(q)):
        for j in range(pairs):
            a, b = bias.first[j], bias.second[j]
            waves[i, j] = q[i, a] * start[a] + q[i, b] * start[b]
            waves[i, pairs + j] = q[i, b] * start[a] - q[i, a] * start[b]
        same = np.float32(0)
        for d in bias.still:
            same += q[i, d] * start[d]
        scores[i] = same
    product(np.int64(32), address_of(bias.turns), np.int64(PAGE), np.int64(0), waves, scores)
