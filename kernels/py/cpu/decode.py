"""Attention and unpacking directly over page records in memory, for CPUs (numba, any vector width).

Records are given by address. They may be in any mix of allocations and mapped files, and must outlive the call.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import carray, njit, prange

from localctx.kernels.llvm.simd import product
from localctx.kernels.llvm.vector_math import (
    INLINED,
    INNER,
    LANES,
    MATH,
    address_of,
    as_pointer,
    exp_below,
    fetch,
    float_of_bits,
    float_of_half,
    greatest,
    scale_bytes,
    value_of_code,
    widen,
)
from localctx.kernels.quant import PAGE

HIDDEN = np.float32(-1e30)  # the score of a hidden key
SPLIT = 16  # pages per task; fixed, so that results do not depend on the number of threads


class LayerLayout(NamedTuple):
    """Describes the page records of one layer: the number of KV ``heads``, the widths of keys (``k_dim``) and values
    (``v_dim``), and a ``table`` [formats, 8] int64 with a row for each record format.

    Columns 0 and 1 of the table are the number formats of K and V (keys of ``vector_math.RECORD_KINDS``). Columns 2 to
    7 are byte offsets in the record: of K's codes, scales and zeros, then of V's codes, scales and zeros.
    """

    heads: int
    k_dim: int
    v_dim: int
    table: np.ndarray


@njit(fastmath=MATH)
def _load(address, kind, codes, scale, zero, head, rows, cols, out):  # type: ignore[no-untyped-def]
    """Decode a block [rows, cols] of one head in a record into ``out``. ``codes``, ``scale`` and ``zero`` are the
    record's byte offsets. Below 16 bits, each row of the block has one scale and one zero.
    """
    n, bits = rows * cols, kind & 255
    flat = out.reshape(n)
    if kind == 32:
        f = carray(as_pointer(address + codes + head * n * 4), (n,), np.float32)
        for i in range(n):
            flat[i] = f[i]
        return
    if kind == 16:
        h = carray(as_pointer(address + codes + head * n * 2), (n,), np.uint16)
        for i in range(n):
            flat[i] = float_of_bits(np.int32(h[i]) << np.int32(16))
        return
    s = carray(as_pointer(address + scale + head * rows * 2), (rows,), np.uint16)
    z = carray(as_pointer(address + zero + head * rows * 2), (rows,), np.uint16)
    width = cols * bits // 8
    if kind == 8 and width % LANES == 0:
        at, target = address + codes + head * rows * width, address_of(out)
        for r in range(rows):
            scale_bytes(at + r * width, float_of_half(s[r]), float_of_half(z[r]), target + r * cols * 4, width)
        return
    c = carray(as_pointer(address + codes + head * rows * width), (rows * width,), np.uint8)
    mask = np.uint8((1 << bits) - 1)
    for r in range(rows):
        a, b = float_of_half(s[r]), float_of_half(z[r])
        row, packed = flat[r * cols : r * cols + cols], c[r * width : r * width + width]
        if bits == 8:
            for i in range(width):
                row[i] = value_of_code(kind, packed[i]) * a + b
        else:
            for part in range(8 // bits):
                shift = np.uint8(part * bits)
                some = row[part * width : part * width + width]
                for i in range(width):
                    some[i] = value_of_code(kind, (packed[i] >> shift) & mask) * a + b


@njit(fastmath=MATH)
def load_k(address, lay, row, head, out):  # type: ignore[no-untyped-def]
    """Decode the keys of one KV ``head`` in the record at ``address`` into ``out`` [D, 64]. ``lay`` is the LayerLayout
    of the record, and ``row`` is the row of its table for this record's format.
    """
    t = lay.table[row]
    _load(address, t[0], t[2], t[3], t[4], head, lay.k_dim, PAGE, out)


@njit(fastmath=MATH)
def load_v(address, lay, row, head, out):  # type: ignore[no-untyped-def]
    """Decode the values of one KV ``head`` in the record at ``address`` into ``out`` [64, Dv]. ``lay`` is the
    LayerLayout of the record, and ``row`` is the row of its table for this record's format.
    """
    t = lay.table[row]
    _load(address, t[1], t[5], t[6], t[7], head, PAGE, lay.v_dim, out)


@njit(**INNER)
def _by_block(x, address, ahead, kind, codes, scale, zero, head, columns, scaled, wide, out):  # type: ignore[no-untyped-def]
    """Add x [n, rows] times a head's block [rows, columns] of a record to out, without decoding the block: each row's
    scale is multiplied into x, and each row's zero adds the same number to all columns. ``scaled`` and ``wide`` are
    scratch memory for ``_fold``. The next record is ``ahead`` bytes further, for prefetching.
    """
    rows, bits = x.shape[1], kind & 255
    at = address + codes + head * rows * columns * bits // 8
    if bits >= 16:
        product(kind, at, columns, ahead, x, out)
        return
    scales, zeros = address + scale + head * rows * 2, address + zero + head * rows * 2
    fetch(scales + ahead, rows * 2)
    fetch(zeros + ahead, rows * 2)
    _fold(x, scales, zeros, scaled, wide, out)
    product(kind, at, columns, ahead, scaled, out)


@njit(**INLINED)
def _fold(x, scale, zero, scaled, wide, out):  # type: ignore[no-untyped-def]
    """Fold the rows' scales and zeros into x, so that codes need no decoding: set ``scaled`` [n, rows] to x times each
    row's scale, and add x times each row's zero to out [n, columns]. ``scale`` and ``zero`` are addresses of float16.
    ``wide`` [2, >= rows] is scratch memory.
    """
    n, rows = x.shape
    widen(scale, wide[0, :rows])
    widen(zero, wide[1, :rows])
    for i in range(n):
        base = np.float32(0)
        for r in range(rows):
            scaled[i, r] = x[i, r] * wide[0, r]
            base += x[i, r] * wide[1, r]
        for c in range(out.shape[1]):
            out[i, c] += base


@njit(**INLINED)
def finish_scores(s, extra, softcap, first, stop):  # type: ignore[no-untyped-def]
    """Change the scores ``s`` [64] of one query with a page's tokens in place, in three steps, and return the greatest
    score. Add ``extra`` [64], unless it is empty. If ``softcap`` > 0, replace a score by softcap * tanh(score /
    softcap). Hide the tokens before ``first`` and from ``stop`` on.
    """
    for t in range(len(extra)):
        s[t] += extra[t]
    if softcap > 0:
        for t in range(PAGE):
            s[t] = softcap * math.tanh(s[t] / softcap)
    for t in range(first):
        s[t] = HIDDEN
    for t in range(stop, PAGE):
        s[t] = HIDDEN
    return greatest(address_of(s), PAGE)


@njit(**INNER)
def _attend_part(q, part, head, addresses, formats, lay, softcap, extra, room, out, tops, totals, masses):  # type: ignore[no-untyped-def]
    """Attend with the queries q [group, D] of one KV head to the pages of one part. Adds to ``out`` [group, Dv],
    ``tops`` and ``totals`` [group]. ``extra`` and ``masses`` have a row for each of these queries. ``room`` is scratch
    memory: two arrays [group, 64], one [group, D], and ``wide`` of ``_fold``.
    """
    group, (_, first, stop, skip) = len(q), part
    scores, p, scaled, wide = room
    for page in range(first, stop):
        address, t = addresses[page], lay.table[formats[page]]
        ahead = addresses[min(page + 1, len(addresses) - 1)] - address
        scores[:] = np.float32(0)
        _by_block(q, address, ahead, t[0], t[2], t[3], t[4], head, np.int64(PAGE), scaled, wide, scores)
        for g in range(group):
            more = extra[g, page * PAGE : page * PAGE + PAGE]
            top = finish_scores(scores[g], more, softcap, skip if page == first else 0, PAGE)
            if top > tops[g]:
                shrink = np.float32(math.exp(tops[g] - top))
                tops[g] = top
                totals[g] *= shrink
                for d in range(lay.v_dim):
                    out[g, d] *= shrink
            mass = exp_below(address_of(scores[g]), tops[g], PAGE)
            totals[g] += mass
            if masses.shape[1] > 0:
                masses[g, page] = tops[g] + math.log(mass)
        _by_block(scores, address, ahead, t[1], t[5], t[6], t[7], head, lay.v_dim, p, wide, out)


@njit(fastmath=MATH)
def attend_part(q, part, head, addresses, formats, lay, softcap, extra, out, tops, totals, masses):  # type: ignore[no-untyped-def]
    """Attend to a range of pages with one query token, for all query heads of one KV ``head``. q [n, Hq, D] are scaled
    queries. ``part`` is the range: (index of the query token, first page, end page, number of hidden tokens in the
    first page). ``addresses`` and ``formats`` of the pages' records are [1 or H, pages], with one row for all heads or
    one per head. ``lay`` is the layout of the records.

    Adds weighted values to ``out`` [Hq, Dv] and weights to ``totals`` [Hq], which the caller has set to zero. Weights
    are relative to ``tops`` [Hq], the greatest scores, which the caller has set to ``HIDDEN``. ``extra`` [Hq, pages *
    64] is added to scores. With ``softcap`` c > 0, a score becomes c * tanh(score / c). ``masses`` [Hq, pages] is set
    to the log-sum-exp of each page. ``extra`` and ``masses`` may be empty.
    """
    group, own = q.shape[1] // lay.heads, head % len(addresses)
    some = slice(head * group, head * group + group)
    scores, p = np.empty((group, PAGE), np.float32), np.empty((group, PAGE), np.float32)
    wide = np.empty((2, max(PAGE, lay.k_dim)), np.float32)
    room = scores, p, np.empty((group, lay.k_dim), np.float32), wide
    _attend_part(
        q[part[0], some],
        part,
        head,
        addresses[own],
        formats[own],
        lay,
        softcap,
        extra[some],
        room,
        out[some],
        tops[some],
        totals[some],
        masses[some],
    )


@njit(parallel=True, fastmath=MATH, cache=True)
def _unpack(addresses, formats, lay, k_out, v_out):  # type: ignore[no-untyped-def]
    for task in prange(len(addresses) * lay.heads):
        page, head = task // lay.heads, task % lay.heads
        k = np.empty((lay.k_dim, PAGE), np.float32)
        load_k(addresses[page], lay, formats[page], head, k)
        rows = k_out[head, page * PAGE : page * PAGE + PAGE]
        for t in range(PAGE):
            for d in range(lay.k_dim):
                rows[t, d] = k[d, t]
        load_v(addresses[page], lay, formats[page], head, v_out[head, page * PAGE : page * PAGE + PAGE])


def unpack_pages(addresses: np.ndarray, formats: np.ndarray, layout: LayerLayout) -> tuple[np.ndarray, np.ndarray]:
    """Decode n page records of one layer. Returns the keys [H, n * 64, D] and values [H, n * 64, Dv] in float32. The
    records are at ``addresses`` [n], and their ``formats`` [n] are rows of the layout's table.

    If a codec rotated the records (Hadamard), the result is still rotated.
    """
    tokens = len(addresses) * PAGE
    k = np.empty((layout.heads, tokens, layout.k_dim), np.float32)
    v = np.empty((layout.heads, tokens, layout.v_dim), np.float32)
    _unpack(addresses, formats, layout, k, v)
    return k, v
