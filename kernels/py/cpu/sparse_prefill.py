"""Sparse attention of a chunk on the CPU: the 64 queries of a page skip pages to which sampled queries pay little
attention.
"""

import numpy as np
from numba import njit, prange
from torch import Tensor

from localctx.kernels.cpu.decode import HIDDEN, PAGE, LayerLayout, finish_scores, load_k, load_v
from localctx.kernels.cpu.key_bias import NO_BIAS, KeyBias, add_bias
from localctx.kernels.cpu.prefill import attend_page, compute_chunk, divide_rows, visible_keys
from localctx.kernels.llvm.simd import product
from localctx.kernels.llvm.vector_math import INNER, LANES, MATH, address_of, aligned_floats, exp_below, greatest

SAMPLES = 8  # queries of a page that choose for all 64: the last of each run of eight
_LEAST = 4  # fewest sealed pages that are worth choosing from
_HALVINGS = 20  # steps of the bisection for the threshold


def attend_chunk_sparsely(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    addresses: np.ndarray,
    formats: np.ndarray,
    layout: LayerLayout,
    scale: float,
    softcap: float,
    loss: float,
    bias: KeyBias = NO_BIAS,
) -> tuple[Tensor, Tensor]:
    """Attend with the tokens of a chunk like ``attend_chunk``, with the same shapes, but skip sealed pages that receive
    little attention. The 64 queries of each full page of the chunk skip the same pages, chosen for each query head.

    Some of the 64 queries are sampled to measure attention. No sampled query loses more than the share ``loss`` (0 to
    1) of its attention. Follows SampleAttention (arXiv:2406.15486), with pages instead of columns and a bound for each
    sampled query. Unsealed keys are never skipped. Queries that do not fill a page see everything.
    ``bias`` is as in ``attend_chunk``.
    """
    return compute_chunk(_attend, q, k, v, addresses, formats, layout, scale, softcap, np.float32(loss), bias)


@njit(parallel=True, fastmath=MATH, cache=True)
def _attend(q, keys, values, addresses, formats, lay, tokens, before, softcap, out, tops, totals, loss, bias):  # type: ignore[no-untyped-def]
    """Attend like ``_attend`` of ``cpu.prefill``, but skip pages. A task is one KV head and the tokens of one page."""
    group, start = q.shape[1] // tokens, before % PAGE
    blocks = (start + tokens + PAGE - 1) // PAGE
    for task in prange(lay.heads * blocks):
        head, block = task // blocks, task % blocks
        first, stop = max(block * PAGE - start, 0), min(block * PAGE + PAGE - start, tokens)
        k, v = aligned_floats(lay.k_dim, PAGE), aligned_floats(PAGE, lay.v_dim)
        scores, last = np.empty((stop - first, PAGE), np.float32), np.empty(stop - first, np.int64)
        sees = np.ones((group, len(addresses)), np.uint8)
        if stop - first == PAGE and len(addresses) >= _LEAST:
            _choose(
                q[head], keys[head], addresses, formats, lay, head, tokens, first, before, softcap, loss, bias, k, sees
            )
        last[:] = PAGE
        for page in range(len(addresses)):
            loaded = False
            for g in range(group):
                if sees[g, page]:
                    if not loaded:
                        load_k(addresses[page], lay, formats[page], head, k)
                        add_bias(bias, head, page, k)
                        load_v(addresses[page], lay, formats[page], head, v)
                        loaded = True
                    at = g * tokens + first
                    rows = q[head, at : at + stop - first]
                    attend_page(rows, k, v, last, softcap, scores, out[head], tops[head], totals[head], at)
        for page in range(keys.shape[1]):
            if visible_keys(first, tokens, before - page * PAGE, last):
                for g in range(group):
                    at = g * tokens + first
                    rows, mine, own = q[head, at : at + stop - first], keys[head, page], values[head, page]
                    attend_page(rows, mine, own, last, softcap, scores, out[head], tops[head], totals[head], at)
        for g in range(group):
            divide_rows(out[head], totals[head], g * tokens + first, g * tokens + stop)


@njit(fastmath=MATH)
def _choose(q, keys, addresses, formats, lay, head, tokens, first, before, softcap, loss, bias, k, sees):  # type: ignore[no-untyped-def]
    """Set ``sees`` [group, pages] to 1 for the pages that a head's 64 queries from ``first`` on attend to, else 0. q is
    [group * tokens, D], and the unsealed ``keys`` are [m, D, 64]. ``k`` is scratch memory for a page's keys.
    """
    group, pages = sees.shape
    n, padded = group * SAMPLES, (pages + len(keys) + LANES - 1) // LANES * LANES
    samples, scores = np.empty((n, q.shape[1]), np.float32), np.empty((n, PAGE), np.float32)
    last, highest, sums = np.empty(n, np.int64), np.empty((n, padded), np.float32), np.zeros((n, padded), np.float32)
    highest[:] = HIDDEN
    for i in range(n):
        at = first + (i % SAMPLES + 1) * (PAGE // SAMPLES) - 1
        last[i] = before + at + 1
        for d in range(q.shape[1]):
            samples[i, d] = q[i // SAMPLES * tokens + at, d]
    for page in range(pages):
        load_k(addresses[page], lay, formats[page], head, k)
        add_bias(bias, head, page, k)
        _sum_weights(samples, k, last, PAGE, softcap, scores, highest, sums, page)
    for page in range(len(keys)):
        _sum_weights(samples, keys[page], last, -page * PAGE, softcap, scores, highest, sums, pages + page)
    for g in range(group):
        weights = np.zeros(pages, np.float32)
        for i in range(g * SAMPLES, g * SAMPLES + SAMPLES):
            _add_weights(highest[i], sums[i], weights)
        _keep_most(weights, loss, sees[g])


@njit(**INNER)
def _sum_weights(q, k, last, shift, softcap, scores, highest, sums, at):  # type: ignore[no-untyped-def]
    """Set column ``at`` of ``highest`` and ``sums`` [n, pages] for one page with the keys k [D, 64]: each query's
    highest score in the page, and the sum of its weights there, relative to that score. A query sees the first ``last``
    [n] + ``shift`` keys of the page.
    """
    scores[:] = np.float32(0)
    product(np.int64(32), address_of(k), np.int64(PAGE), np.int64(0), q, scores)
    for i in range(len(q)):
        seen = min(last[i] + shift, PAGE)
        if seen > 0:
            highest[i, at] = finish_scores(scores[i], scores[i, :0], softcap, 0, seen)
            sums[i, at] = exp_below(address_of(scores[i]), highest[i, at], PAGE)


@njit(**INNER)
def _add_weights(highest, sums, weights):  # type: ignore[no-untyped-def]
    """Raise ``weights`` [sealed pages] to one query's shares of attention, wherever these are greater. ``highest`` and
    ``sums`` are that query's rows.
    """
    exp_below(address_of(highest), greatest(address_of(highest), len(highest)), len(highest))
    total = np.float32(0)
    for page in range(len(sums)):
        highest[page] *= sums[page]
        total += highest[page]
    for page in range(len(weights)):
        weights[page] = max(weights[page], highest[page] / total)


@njit(**INNER)
def _keep_most(weights, loss, sees):  # type: ignore[no-untyped-def]
    """Set ``sees`` [pages] to 0 for the pages with the least ``weights``, as long as these sum to at most ``loss``, and
    to 1 for the other pages.
    """
    low, high = np.float32(0), np.float32(1)
    for _ in range(_HALVINGS):
        middle, lost = (low + high) / 2, np.float32(0)
        for page in range(len(weights)):
            lost += weights[page] if weights[page] < middle else np.float32(0)
        if lost <= loss:
            low = middle
        else:
            high = middle
    for page in range(len(weights)):
        sees[page] = weights[page] >= low
