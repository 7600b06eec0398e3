"""Attention of a chunk of new tokens on the CPU. Sealed pages are decoded one at a time into a core's cache."""

import math
from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor
from torch.nn import functional

from localctx.kernels.cpu.decode import HIDDEN, PAGE, LayerLayout, finish_scores, load_k, load_v
from localctx.kernels.cpu.key_bias import NO_BIAS, KeyBias, add_bias
from localctx.kernels.llvm.simd import product
from localctx.kernels.llvm.vector_math import INNER, MATH, address_of, aligned_floats, exp_below

ROWS = 96  # queries of a task, which share a decoded page; their scores stay in the cache beside the page


def attend_chunk(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    addresses: np.ndarray,
    formats: np.ndarray,
    layout: LayerLayout,
    scale: float,
    softcap: float = 0,
    bias: KeyBias = NO_BIAS,
) -> tuple[Tensor, Tensor]:
    """Attend with the last T tokens q [Hq, T, D] to n sealed pages, and causally to the S >= T tokens after the pages.

    These S tokens have keys k [H, S, D] and values v [H, S, Dv]. Returns (out [Hq, T, Dv], lse [Hq, T]); all tensors
    are float32. ``addresses`` int64 and ``formats`` uint8 (rows of the layout's table) of the pages' records are [n].
    ``scale`` is the factor of scores. With ``softcap`` c > 0, a score becomes c * tanh(score / c). ``bias`` is the bias
    of k_proj that the pages' stored keys lack. Follows FlashAttention (arXiv:2205.14135) with pages as the blocks of
    keys. The result of a token does not depend on the chunk's length.
    """
    return compute_chunk(_attend, q, k, v, addresses, formats, layout, scale, softcap, bias)


def compute_chunk(
    attend: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    addresses: np.ndarray,
    formats: np.ndarray,
    layout: LayerLayout,
    scale: float,
    softcap: float,
    *more: Any,
) -> tuple[Tensor, Tensor]:
    """Run the compiled kernel ``attend`` with the arguments of ``attend_chunk``, and return the result of
    ``attend_chunk``: (out [Hq, T, Dv], lse [Hq, T]). ``more`` are further arguments of the kernel, after those that
    ``_attend`` takes.
    """
    heads, tokens, _ = q.shape
    scaled = (q * scale).reshape(layout.heads, -1, q.shape[2]).contiguous()
    out = torch.zeros(*scaled.shape[:2], layout.v_dim, dtype=torch.float32)  # loading may change the default type
    tops = torch.full(scaled.shape[:2], float(HIDDEN), dtype=torch.float32)
    totals = torch.zeros_like(tops)
    mine, before = (_paged(k).transpose(2, 3).contiguous(), _paged(v).contiguous()), k.shape[1] - tokens
    attend(
        scaled.numpy(),
        mine[0].numpy(),
        mine[1].numpy(),
        addresses.copy(),  # numba compiles again for read-only arrays
        formats.copy(),
        layout,
        tokens,
        before,
        np.float32(softcap),
        out.numpy(),
        tops.numpy(),
        totals.numpy(),
        *more,
    )
    return out.view(heads, tokens, -1), (tops + totals.log()).view(heads, tokens)


def _paged(x: Tensor) -> Tensor:
    """Returns x [H, S, D] as [H, pages, 64, D]. The last page is padded with zeros, which are masked later."""
    return functional.pad(x, (0, 0, 0, -x.shape[1] % PAGE)).unflatten(1, (-1, PAGE))


@njit(parallel=True, fastmath=MATH, cache=True)
def _attend(q, keys, values, addresses, formats, lay, tokens, before, softcap, out, tops, totals, bias):  # type: ignore[no-untyped-def]
    """Attend with the scaled queries q [H, n, D]; the n queries of a KV head come from all its query heads. The
    unsealed tokens are in pages of ``keys`` [H, m, D, 64] and ``values`` [H, m, 64, Dv]. ``out`` and ``totals`` begin
    as zeros, ``tops`` as HIDDEN.
    """
    blocks = (q.shape[1] + ROWS - 1) // ROWS
    for task in prange(lay.heads * blocks):
        head, first = task // blocks, task % blocks * ROWS
        stop = min(first + ROWS, q.shape[1])
        k, v = aligned_floats(lay.k_dim, PAGE), aligned_floats(PAGE, lay.v_dim)
        scores, last = np.empty((stop - first, PAGE), np.float32), np.empty(stop - first, np.int64)
        last[:] = PAGE
        for page in range(len(addresses)):
            load_k(addresses[page], lay, formats[page], head, k)
            add_bias(bias, head, page, k)
            load_v(addresses[page], lay, formats[page], head, v)
            attend_page(q[head, first:stop], k, v, last, softcap, scores, out[head], tops[head], totals[head], first)
        for page in range(keys.shape[1]):
            if visible_keys(first, tokens, before - page * PAGE, last):
                k, v = keys[head, page], values[head, page]
                attend_page(
                    q[head, first:stop], k, v, last, softcap, scores, out[head], tops[head], totals[head], first
                )
        divide_rows(out[head], totals[head], first, stop)


@njit(**INNER)
def visible_keys(first, tokens, before, last):  # type: ignore[no-untyped-def]
    """Set ``last`` [n] to the number of tokens of a page that each of n queries sees, 0 to 64. Returns True if any
    token is seen.

    The queries of a KV head are listed query head by query head, with ``tokens`` queries each, and the n queries begin
    at index ``first``. ``before`` is the number of tokens from the page's first token to the chunk's first token; it is
    negative if the page begins later.
    """
    max_seen = 0
    for i in range(len(last)):
        last[i] = min(max(before + (first + i) % tokens + 1, 0), PAGE)
        max_seen = max(max_seen, last[i])
    return max_seen > 0


@njit(**INNER)
def attend_page(q, k, v, last, softcap, scores, out, tops, totals, first):  # type: ignore[no-untyped-def]
    """Attend with n queries of one KV head to the keys k [D, 64] and values v [64, Dv] of a page. Query i of q [n, D]
    sees the first ``last[i]`` tokens of the page, and has the index ``first + i`` in the results.

    Adds weighted values to ``out`` [queries, Dv] and weights to ``totals`` [queries]. Weights are relative to ``tops``
    [queries], the greatest scores so far, which it raises where needed. ``scores`` [n, 64] is scratch memory. With
    ``softcap`` c > 0, a score becomes c * tanh(score / c).
    """
    scores[:] = np.float32(0)
    floats, here = np.int64(32), np.int64(0)  # typed as in decoding: numba compiles again for literals
    product(floats, address_of(k), np.int64(PAGE), here, q, scores)
    for i in range(len(q)):
        top, at = finish_scores(scores[i], scores[i, :0], softcap, 0, last[i]), first + i
        if top > tops[at]:
            shrink = np.float32(math.exp(tops[at] - top))
            tops[at] = top
            totals[at] *= shrink
            for d in range(out.shape[1]):
                out[at, d] *= shrink
        totals[at] += exp_below(address_of(scores[i]), tops[at], PAGE)
    product(floats, address_of(v), out.shape[1], here, scores, out[first : first + len(q)])


@njit(**INNER)
def divide_rows(out, totals, first, stop):  # type: ignore[no-untyped-def]
    """Divide the rows ``first`` to ``stop`` of ``out`` [queries, Dv], sums of weighted values, by their sums of weights
    in ``totals`` [queries].
    """
    for at in range(first, stop):
        for d in range(out.shape[1]):
            out[at, d] /= totals[at]
