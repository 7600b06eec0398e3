"""Selects pages for queries by the pages' sketches (keys at two bits), on the CPU."""

from typing import NamedTuple

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from localctx.kernels.cpu.key_bias import NO_BIAS, KeyBias, scores_of_page
from localctx.kernels.llvm.ranking import kth_greatest, take_greatest
from localctx.kernels.llvm.sketch_scores import LEVELS, STEP, add_channel, score_keys, spread_codes
from localctx.kernels.llvm.vector_math import INNER, LANES, MATH, address_of, dots_of_halves, exp_below, fetch, greatest
from localctx.kernels.quant import PAGE
from localctx.kernels.sketch import LEAST, KeyRanges, Score, Sketch, best_scores

TASK = 16  # pages per task
CANDIDATES = 64  # minimum per KV head: bounds are loose, so too few candidates would lose a fact
PROMISING = 2  # minimum per chosen page; every query of a KV head adds one, because each looks at pages of its own
FEW = 128  # up to this many pages, all are candidates


class BiasedKeys(NamedTuple):
    """What ``choose`` needs if the keys of a sketch lack a bias of k_proj: the scaled ``queries`` [H, Q, D], which are
    not rotated by a Hadamard transform, the ``bias``, and the ``ranges`` of the keys with the bias.
    """

    queries: Tensor
    bias: KeyBias
    ranges: KeyRanges


def choose(
    q: Tensor,
    sketch: Sketch,
    count: int,
    sinks: int,
    extra: Tensor | None = None,
    score: Score | None = None,
    biased: BiasedKeys | None = None,
) -> Tensor:
    """Returns for each KV head the ``count`` pages that should get the most attention, in ascending order: [H, count]
    int64.

    q [H, Q, D] are scaled queries, and ``sketch`` has the keys of n pages at two bits. The first ``sinks`` pages and
    the last page are always chosen; ties go to the earlier page. A page's weight for a query is the exp of the greatest
    approximate score of its keys. Each query's weights are divided by its ``count``-th greatest weight, and their sum
    over the Q queries ranks the pages.

    ``score`` is a function of (q, ``sketch``, ``extra``) that returns the greatest approximate score of each page, [H,
    Q, n], where ``extra`` [H, Q, n * 64] is added to the scores of single keys. By default, ``best_scores`` computes it
    on a GPU, and compiled code on the CPU.

    The compiled code rounds queries to int8. With more than FEW pages, it first rules out pages by an upper bound on
    their scores (Quest, arXiv:2406.10774), and does not read their sketches. It adds the bias of ``biased`` keys to
    their scores instead of ``extra``.
    """
    if score or q.device.type != "cpu":
        assert biased is None, "on a GPU the bias is in extra"
        # ranking by the greatest scores would let queries with large scores decide for all; ranking by softmax shares
        # would give the first choices of a flat query less than any page of a peaked query
        weights = (score or best_scores)(q, sketch, extra).softmax(-1)
        each = (weights / weights.topk(count, -1).values[..., -1:].clamp_min(float(LEAST))).sum(1)
        each[:, :sinks] = each[:, -1] = float("inf")
        return each.sort(dim=-1, descending=True, stable=True).indices[:, :count].sort(-1).values
    assert extra is None, "compiled code takes biased keys"
    plain, bias, ranges = biased or BiasedKeys(q, NO_BIAS, KeyRanges(sketch.scale, sketch.zero))
    queries, plain_queries = (x.float().contiguous().numpy() for x in (q, plain))
    halves = [part.numpy().view(np.uint16) for part in (sketch.scale, sketch.zero, *ranges)]
    max_pages = num_candidates(sketch.codes.shape[1], count, q.shape[1])
    out = np.empty((len(q), count), np.int64)
    _choose(queries, (sketch.codes.numpy(), *halves), plain_queries, bias, max_pages, sinks, out)
    return torch.from_numpy(out)


@njit
def num_candidates(pages, count, queries):  # type: ignore[no-untyped-def]
    """Returns how many pages' sketches ``choose`` reads to choose ``count`` of ``pages`` pages for the ``queries`` of a
    KV head. A cheap upper bound on scores rules out the other pages.
    """
    return pages if pages <= FEW else min(pages, max(CANDIDATES, max(PROMISING, queries) * count))


@njit
def choose_plainly(q, sketch, plain, bias, sinks, out):  # type: ignore[no-untyped-def]
    """Compute ``choose``, without a ``score`` function, in compiled code, and write the chosen pages to ``out`` [H,
    count]. ``sketch`` are five arrays: the codes, scales and zeros of a Sketch, then the scales and zeros of the
    KeyRanges, with float16 numbers as uint16. ``plain`` [H, Q, D] and ``bias`` are those of BiasedKeys; with NO_BIAS
    nothing is added.
    """
    max_pages = num_candidates(sketch[0].shape[1], out.shape[1], q.shape[1])
    _choose(q, sketch, plain, bias, max_pages, sinks, out)


@njit(parallel=True, fastmath=MATH, cache=True)
def _choose(q, sketch, plain, bias, max_pages, sinks, out):  # type: ignore[no-untyped-def]
    """Compute ``choose``, reading the sketches of ``max_pages`` pages of each head. This function only has the parallel
    loops: threads would share any variable assigned in it.
    """
    (heads, pages), (queries, dim) = sketch[0].shape[:2], q.shape[1:]
    count, bounds, places = out.shape[1], _scores(heads, queries, pages), _all_pages(heads, max_pages)
    tasks, rising = ((pages + TASK - 1) // TASK, _rising(q)) if max_pages < pages else (0, q)
    for task in prange(heads * tasks):
        _bound_some(q, rising, sketch, task // tasks, task % tasks * TASK, bounds)
    for head in prange(heads if tasks else 0):
        take_greatest(_promises(bounds[head], pages, count, sinks), places[head])
    found, tasks = _scores(heads, queries, max_pages), (max_pages + TASK - 1) // TASK
    for task in prange(heads * tasks):
        room = np.empty((dim, PAGE), np.uint8), np.empty(5 * dim, np.uint8), np.empty(PAGE, np.float32)
        added = np.empty((queries, len(bias.turns)), np.float32), np.empty((queries, PAGE), np.float32)
        _best_of_some(q, sketch, plain, bias, places, task // tasks, task % tasks * TASK, room, added, found)
    for head in prange(heads):
        take_greatest(_promises(found[head], max_pages, count, sinks), out[head])
        for i in range(count):
            out[head, i] = places[head, out[head, i]]


@njit
def _scores(heads, queries, pages):  # type: ignore[no-untyped-def]
    """Returns an array for scores of pages, padded to whole vectors. All scores begin as -inf, so that padding is never
    chosen.
    """
    return np.full((heads, queries, (pages + LANES - 1) // LANES * LANES), np.float32(-np.inf))


@njit
def _rising(q):  # type: ignore[no-untyped-def]
    """Returns the positive part of the queries q times the greatest code. Only these elements can raise a key's product
    with q above that of a key whose codes are all 0.
    """
    return np.maximum(q, np.float32(0)) * np.float32(LEVELS)


@njit
def _all_pages(heads, pages):  # type: ignore[no-untyped-def]
    """Returns the indices of all pages, [H, n]."""
    places = np.empty((heads, pages), np.int64)
    for head in range(heads):
        for page in range(pages):
            places[head, page] = page
    return places


@njit(**INNER)
def _bound_some(q, rising, sketch, head, first, out):  # type: ignore[no-untyped-def]
    """Set ``out`` [H, Q, n], for the pages of one task of a head, to upper bounds: no key of the page has a greater
    product with the query in q [H, Q, D]. ``rising`` is the result of ``_rising``.
    """
    scale, zero = sketch[3], sketch[4]
    for page in range(first, min(scale.shape[1], first + TASK)):
        scales, zeros = address_of(scale[head, page]), address_of(zero[head, page])
        for j in range(q.shape[1]):
            out[head, j, page] = dots_of_halves(rising[head, j], q[head, j], scales, zeros)


@njit(**INNER)
def _best_of_some(q, sketch, plain, bias, places, head, first, room, added, out):  # type: ignore[no-untyped-def]
    """Set ``out`` [H, Q, m], for one task's share of the pages ``places`` [H, m], to the greatest product of a query in
    q [H, Q, D] with a key of the page's sketch. ``room`` is scratch memory: bytes [D, 64], [5 * D] and float32 [64]. So
    is ``added``, for ``scores_of_page``.
    """
    codes, scale, zero = sketch[:3]
    (queries, dim), max_pages, (spread, rounded, scores) = q.shape[1:], places.shape[1], room
    whole, score_at = dim // LANES * LANES, address_of(scores)
    for i in range(first, min(max_pages, first + TASK)):
        page = places[head, i]
        fetch(address_of(codes[head, places[head, min(i + 1, max_pages - 1)]]), dim * STEP)
        spread_codes(address_of(codes[head, page]), whole, address_of(spread))
        scales, zeros = address_of(scale[head, page]), address_of(zero[head, page])
        if bias.starts.shape[1] > 0:
            scores_of_page(plain[head], bias, head, page, added)
        for j in range(queries):
            score_keys(address_of(q[head, j]), whole, address_of(spread), scales, zeros, address_of(rounded), score_at)
            for d in range(whole, dim):
                add_channel(q[head, j, d], codes[head, page, d], scale[head, page, d], zero[head, page, d], scores)
            for t in range(PAGE if bias.starts.shape[1] > 0 else 0):
                scores[t] += added[1][j, t]
            out[head, j, i] = greatest(score_at, PAGE)


@njit(fastmath=MATH)
def _promises(scores, pages, count, sinks):  # type: ignore[no-untyped-def]
    """Returns the weights by which pages are ranked, [n]: exp of each query's ``scores`` [Q, n], divided by that
    query's ``count``-th greatest weight, and summed over queries. Pages that are always chosen get infinity. Padding,
    from index ``pages`` on, gets 0, so that real pages come first.
    """
    added = np.zeros(scores.shape[1], np.float32)
    for row in scores:
        at = address_of(row)
        exp_below(at, greatest(at, len(row)), len(row))
        part = np.float32(1) / max(LEAST, kth_greatest(at, len(row), count))
        for i in range(len(row)):
            added[i] += row[i] * part
    added[pages:] = 0
    added[:sinks] = added[pages - 1] = np.inf
    return added
