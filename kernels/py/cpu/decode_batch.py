"""Attention of a few new tokens, of one or several sequences. A single call computes all rows, to share its
overhead.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from numba import carray, njit, prange

from localctx.kernels import quant
from localctx.kernels.cpu.decode import HIDDEN, MATH, PAGE, SPLIT, LayerLayout, attend_part
from localctx.kernels.llvm.vector_math import address_of, as_pointer, bits_of_float, copy_into, exp_below, float_of_bits


class BatchPages(NamedTuple):
    """The sealed pages that each row of a batch attends to. A row is one new token of one sequence. The pages of all
    rows are listed one after another.

    ``addresses`` and ``formats`` of the pages' records are [1 or H, pages], with one row for all KV heads or one per
    head. ``parts`` [S, 4] split the list into tasks, in the order of rows: (row, first page, end page, number of hidden
    tokens in the first page).
    """

    parts: np.ndarray
    addresses: np.ndarray
    formats: np.ndarray


class BatchOpenPages(NamedTuple):
    """The open (partly filled) page of each of n rows. A row is one new token of one sequence. ``addresses`` [n, 2]
    point to the keys [H, 64, D] and values [H, 64, Dv] of the page, which have ``bits`` bits a number: 32 (float32) or
    16 (bf16).

    The page of a row has ``filled`` [n] tokens, of which the first ``hidden`` [n] are not seen. The kernel writes the
    row's new token after them, because the next row may belong to the same sequence.
    """

    addresses: np.ndarray
    bits: int
    filled: np.ndarray
    hidden: np.ndarray


def attend_rows(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    pages: BatchPages,
    tails: BatchOpenPages,
    layout: LayerLayout,
    scale: float,
    *,
    softcap: float = 0,
    sinks: np.ndarray | None = None,
    extra: np.ndarray | None = None,
    rotated: bool = False,
    masses: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Attend with one new token per row: q [n, Hq, D], k [n, H, D] and v [n, H, Dv]. A row sees its sealed ``pages``,
    its open page (``tails``) and itself. ``scale`` is the factor of scores.

    Returns out [n, Hq, Dv] and, with ``masses``, the share of the row's attention that each page got, [Hq, pages] (else
    empty); both are float32. ``rotated``: pages were rotated by ``quant.rotate``. ``extra`` [Hq, pages * 64] is added
    to the scaled scores of pages. With ``softcap`` c > 0, a score becomes c * tanh(score / c). ``sinks`` [Hq] are
    learned logits that take attention mass but add no value. The result of a row does not depend on the other rows. The
    context is split as in Flash-Decoding; all rows of a layer share one call as in vLLM's PagedAttention
    (arXiv:2309.06180).
    """
    n, heads = q.shape[:2]
    q, cap = q * np.float32(scale), np.float32(softcap)
    each = np.empty((heads, pages.addresses.shape[1] if masses else 0), np.float32)
    more = np.empty((heads, 0), np.float32) if extra is None else extra
    out, tops, totals = _attend(q, _rotate(q) if rotated else q, k, v, *pages, *tails, layout, cap, more, each)
    if rotated:
        out[: len(pages.parts)] = _rotate(out[: len(pages.parts)])
    learned = _NO_SINKS if sinks is None else sinks
    result = np.empty((n, heads, layout.v_dim), np.float32)
    _merge(pages.parts, out, tops, totals, learned, each, result)
    return result, each


def attend_pages(
    q: np.ndarray,
    addresses: np.ndarray,
    formats: np.ndarray,
    layout: LayerLayout,
    scale: float,
    skip: int = 0,
    softcap: float = 0,
    extra: np.ndarray | None = None,
    masses: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Attend with one query token q [Hq, D] float32 to sealed pages. Returns (out [Hq, Dv], lse [Hq], masses), float32.

    ``addresses`` int64 and ``formats`` uint8 (rows of the layout's table) are [n >= 1], or [H, n] if each KV head has
    other pages. The first ``skip`` (< 64) tokens of the first page are not seen. ``extra`` [Hq, n * 64] is added to the
    scaled scores. With ``softcap`` c > 0, a score becomes c * tanh(score / c). ``masses`` [Hq, n] is the log-sum-exp of
    each single page, or is empty if not requested. The context is split as in Flash-Decoding, and a page is read once
    for all query heads of a KV head.
    """
    heads, pages = q.shape[0], addresses.shape[-1]
    # copied, because numba compiles again for read-only arrays
    addresses, formats = (np.array(np.atleast_2d(a), order="C") for a in (addresses, formats))
    parts = np.array([(0, at, min(pages, at + SPLIT), 0) for at in range(0, pages, SPLIT)], np.int64)
    parts[0, 3], q = skip, q[None] * np.float32(scale)
    each = np.empty((heads, pages if masses else 0), np.float32)
    more = np.empty((heads, 0), np.float32) if extra is None else extra
    k, v = (np.empty((0, layout.heads, width), np.float32) for width in (layout.k_dim, layout.v_dim))
    none, cap = np.empty(0, np.int64), np.float32(softcap)
    out, tops, totals = _attend(
        q, q, k, v, parts, addresses, formats, none.reshape(0, 2), 32, none, none, layout, cap, more, each
    )
    top = tops.max(0)
    weights = np.exp(tops - top)
    total = (weights * totals).sum(0)
    return np.einsum("si,sid->id", weights / total, out), top + np.log(total), each


@njit
def attend_plainly(q, k, v, pages, tails, layout, extra, result, masses):  # type: ignore[no-untyped-def]
    """Compute ``attend_rows`` in compiled code. q are already scaled queries. The softcap, sinks and rotation of
    ``attend_rows`` are not supported; ``extra`` may be empty. Writes the output to ``result`` [n, Hq, Dv], and each
    page's share of attention to ``masses`` [Hq, pages] unless ``masses`` is empty.
    """
    no_sinks, cap = np.empty(0, np.float32), np.float32(0)
    parts, addresses, formats = pages
    at, bits, filled, hidden = tails
    out, tops, totals = _attend(
        q, q, k, v, parts, addresses, formats, at, bits, filled, hidden, layout, cap, extra, masses
    )
    _merge(parts, out, tops, totals, no_sinks, masses, result)


_NO_SINKS = np.empty(0, np.float32)


def _rotate(x: np.ndarray) -> np.ndarray:
    return quant.rotate(torch.from_numpy(x)).numpy()


@njit(parallel=True, fastmath=MATH, cache=True)
def _attend(q, q_pages, k, v, parts, addresses, formats, tails, bits, filled, hidden, lay, cap, extra, masses):  # type: ignore[no-untyped-def]
    """Attend with ``q_pages`` to every part of the sealed pages, and with ``q`` to every open page and the row's new
    token.

    Returns the outputs [S + n, Hq, Dv], the greatest scores (tops) and the sums of weights (totals), both [S + n, Hq].
    """
    count, group = len(parts), q.shape[1] // lay.heads
    all_of = count + len(tails)
    out = np.zeros((all_of, q.shape[1], lay.v_dim), np.float32)
    tops, totals = np.full((all_of, q.shape[1]), HIDDEN), np.zeros((all_of, q.shape[1]), np.float32)
    for row in range(len(tails)):
        for head in range(lay.heads):
            _write(tails[row, 0], bits, head, filled[row], k[row, head])
            _write(tails[row, 1], bits, head, filled[row], v[row, head])
    for task in prange(all_of * lay.heads):
        head, i = task // all_of, task % all_of
        if i < count:
            attend_part(
                q_pages, parts[i], head, addresses, formats, lay, cap, extra, out[i], tops[i], totals[i], masses
            )
        else:
            row, some = i - count, slice(head * group, head * group + group)
            places = hidden[row], filled[row] + 1
            _attend_tail(
                q[row, some], tails[row], bits, head, places, lay, cap, out[i, some], tops[i, some], totals[i, some]
            )
    return out, tops, totals


@njit(fastmath=MATH)
def _attend_tail(q, addresses, bits, head, places, lay, softcap, out, tops, totals):  # type: ignore[no-untyped-def]
    """Attend with the queries q [group, D] of one KV head to the tokens of an open page from the first to the end of
    ``places``.
    """
    first, end = places
    keys = _tail(addresses[0], bits, head, end, lay.k_dim)
    values = _tail(addresses[1], bits, head, end, lay.v_dim)
    s = np.empty(PAGE, np.float32)
    for i in range(len(q)):
        s[:] = HIDDEN
        top = HIDDEN
        for t in range(first, end):
            score = np.float32(0)
            for d in range(lay.k_dim):
                score += q[i, d] * keys[t, d]
            s[t] = softcap * math.tanh(score / softcap) if softcap > 0 else score
            top = max(top, s[t])
        tops[i] = top
        totals[i] = exp_below(address_of(s), top, PAGE)
        for t in range(first, end):
            for d in range(lay.v_dim):
                out[i, d] += s[t] * values[t, d]


@njit(fastmath=MATH)
def _write(address, bits, head, place, new):  # type: ignore[no-untyped-def]
    """Write the key or value ``new`` of a token to position ``place`` of one head in an open page."""
    at = (head * PAGE + place) * len(new)
    if bits == 32:
        f = carray(as_pointer(address + at * 4), (len(new),), np.float32)
        copy_into(f, new)
    else:
        h = carray(as_pointer(address + at * 2), (len(new),), np.uint16)
        for d in range(len(new)):
            h[d] = np.uint16(bits_of_float(new[d]) >> np.int32(16))  # exact: the value came as bf16


@njit(fastmath=MATH)
def _tail(address, bits, head, end, dim):  # type: ignore[no-untyped-def]
    """Returns the keys or values of the first ``end`` tokens of one head in an open page: [end, dim] float32."""
    n = PAGE * dim
    if bits == 32:
        return carray(as_pointer(address + head * n * 4), (end, dim), np.float32)
    h = carray(as_pointer(address + head * n * 2), (end, dim), np.uint16)
    out = np.empty((end, dim), np.float32)
    for t in range(end):
        for d in range(dim):
            out[t, d] = float_of_bits(np.int32(h[t, d]) << np.int32(16))
    return out


@njit(parallel=True, fastmath=MATH, cache=True)
def _merge(parts, out, tops, totals, sinks, masses, result):  # type: ignore[no-untyped-def]
    """Merge the parts of each row with its open page, like ``reference.merge``. Converts ``masses`` from the
    log-sum-exp of each page to the page's share of attention.
    """
    for row in prange(len(result)):
        _merge_row(row, parts, out, tops, totals, sinks, masses, result[row])


@njit(fastmath=MATH)
def _merge_row(row, parts, out, tops, totals, sinks, masses, result):  # type: ignore[no-untyped-def]
    count = len(parts)
    first = 0
    while first < count and parts[first, 0] < row:
        first += 1
    stop = first
    while stop < count and parts[stop, 0] == row:
        stop += 1
    for i in range(len(result)):
        top = tops[count + row, i]
        for part in range(first, stop):
            top = max(top, tops[part, i])
        total = totals[count + row, i] * math.exp(tops[count + row, i] - top)
        for part in range(first, stop):
            total += totals[part, i] * math.exp(tops[part, i] - top)
        if len(sinks) > 0:
            total += math.exp(sinks[i] - top)
        weight = np.float32(math.exp(tops[count + row, i] - top) / total)
        for d in range(result.shape[1]):
            result[i, d] = out[count + row, i, d] * weight
        for part in range(first, stop):
            weight = np.float32(math.exp(tops[part, i] - top) / total)
            for d in range(result.shape[1]):
                result[i, d] += out[part, i, d] * weight
        if masses.shape[1] > 0 and first < stop:
            lse = top + math.log(total)
            for page in range(parts[first, 1], parts[stop - 1, 2]):
                masses[i, page] = math.exp(masses[i, page] - lse)
