"""A Llama-like decoder layer but for its attention, for a few rows: two calls a layer, since calls are what costs."""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from localctx.kernels.cpu import MATH
from localctx.kernels.linear import WIDTH, Blocks, multiply_blocks
from localctx.kernels.vectors import LANES, address_of, exp_below


class Entry(NamedTuple):
    """What comes before attention: an RMS norm [hidden], q, k and v as one weight, its bias [out] (or empty), and the
    norms of a head's q and k [D] (or empty).
    """

    norm: np.ndarray
    qkv: Blocks
    bias: np.ndarray
    q_norm: np.ndarray
    k_norm: np.ndarray


class Exit(NamedTuple):
    """What comes after it: the output's weight, an RMS norm [hidden], gate and up as one weight, and down."""

    output: Blocks
    norm: np.ndarray
    gate_up: Blocks
    down: Blocks


@njit(cache=True)
def enter(x, entry, eps, cos, sin, q, k, v):  # type: ignore[no-untyped-def]
    """Of the rows x [n, hidden], q [n, Hq, D], k [n, H, D] and v [n, H, Dv], turned by cos and sin [n, <= D] (RoPE)."""
    n, heads, kv_heads, dim, v_dim = len(x), q.shape[1], k.shape[1], q.shape[2], v.shape[2]
    normed = normalize(x, entry.norm, eps)
    out = _times(normed, entry.qkv)
    for row in range(n):
        for i in range(len(entry.bias)):
            out[row, i] += entry.bias[i]
        for head in range(heads):
            _turn(out[row, head * dim : head * dim + dim], entry.q_norm, eps, cos[row], sin[row], q[row, head])
        for head in range(kv_heads):
            at = (heads + head) * dim
            _turn(out[row, at : at + dim], entry.k_norm, eps, cos[row], sin[row], k[row, head])
            at = (heads + kv_heads) * dim + head * v_dim
            for i in range(v_dim):
                v[row, head, i] = out[row, at + i]


@njit(cache=True)
def leave(x, attended, exits, eps):  # type: ignore[no-untyped-def]
    """Add to the rows x [n, hidden] what was attended [n, Hq * Dv], and then what the gated layers make of that."""
    _add(x, attended, exits.output)
    normed = normalize(x, exits.norm, eps)
    _add(x, _gated(_times(normed, exits.gate_up)), exits.down)


@njit(fastmath=MATH, cache=True)
def normalize(x, weight, eps):  # type: ignore[no-untyped-def]
    """The rows of x [n, d] by the root of their mean square, times ``weight`` (RMSNorm, arXiv:1910.07467)."""
    out = np.empty(x.shape, np.float32)
    for row in range(len(x)):
        _normalize_row(x[row], weight, eps, out[row])
    return out


@njit(fastmath=MATH)
def _normalize_row(x, weight, eps, out):  # type: ignore[no-untyped-def]
    total = np.float32(0)
    for i in range(len(x)):
        total += x[i] * x[i]
    scale = np.float32(1 / math.sqrt(total / len(x) + eps))
    for i in range(len(x)):
        out[i] = x[i] * scale * weight[i]


@njit(fastmath=MATH)
def _turn(x, norm, eps, cos, sin, out):  # type: ignore[no-untyped-def]
    if len(norm) > 0:
        _normalize_row(x, norm, eps, x)
    turned, half = len(cos), len(cos) // 2
    for i in range(half):
        out[i] = x[i] * cos[i] - x[half + i] * sin[i]
        out[half + i] = x[half + i] * cos[half + i] + x[i] * sin[half + i]
    for i in range(turned, len(x)):
        out[i] = x[i]


@njit
def _times(x, blocks):  # type: ignore[no-untyped-def]
    """x [n, in] by a weight: [n, blocks * 32]."""
    out = np.empty((len(x), len(blocks.codes) * WIDTH), np.float32)
    multiply_blocks(x, blocks.kind, blocks.codes, blocks.scales, out)
    return out


@njit
def _add(x, y, blocks):  # type: ignore[no-untyped-def]
    out = _times(y, blocks)
    for row in range(len(x)):
        for i in range(x.shape[1]):
            x[row, i] += out[row, i]


@njit(fastmath=MATH)
def _gated(both):  # type: ignore[no-untyped-def]
    """silu(gate) * up of rows that hold gate and then up (SwiGLU, arXiv:2002.05202)."""
    n, width = len(both), both.shape[1] // 2
    out, e = np.empty((n, width), np.float32), np.zeros((width + LANES - 1) // LANES * LANES, np.float32)
    for row in range(n):
        for i in range(width):
            e[i] = -abs(both[row, i])
        exp_below(address_of(e), np.float32(0), len(e))
        for i in range(width):
            gate = both[row, i]
            share = (np.float32(1) if gate >= 0 else e[i]) / (np.float32(1) + e[i])
            out[row, i] = gate * share * both[row, width + i]
    return out
