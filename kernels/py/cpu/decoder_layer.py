"""Computes a Llama-like decoder layer without its attention, in two calls: ``enter`` before attention, ``leave`` after
it. With few rows the calls themselves take most of the time, so there are no more than two.

The result of a row does not depend on the other rows, bit for bit: the same code runs for any number of rows, and for
rows with and without an adapter. The functions for chunks differ: they multiply many rows in bf16, and their sums
depend on the number of rows.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from numba import njit, prange

from localctx.kernels.cpu.adapter import NO_CHANGE, Change, add_change, add_change_in_bf16
from localctx.kernels.cpu.decode import MATH
from localctx.kernels.cpu.linear import Blocks, multiply_blocks, multiply_in_bf16
from localctx.kernels.llvm.integer_product import FEW_ROWS
from localctx.kernels.llvm.vector_math import gate
from localctx.kernels.llvm.weight_groups import WIDTH


class EntryWeights(NamedTuple):
    """The weights of a layer that are used before attention: ``norm`` [hidden] of the RMS norm, and ``qkv``, the
    projections of q, k and v joined to one weight, with ``bias`` [out], which may be empty.

    ``q_norm`` and ``k_norm`` [D] are the RMS norms of each head's q and k; they may be empty.
    """

    norm: np.ndarray
    qkv: Blocks
    bias: np.ndarray
    q_norm: np.ndarray
    k_norm: np.ndarray


class ExitWeights(NamedTuple):
    """The weights of a layer that are used after attention: the output projection, the RMS norm [hidden] before the
    MLP, and the MLP's weights (gate and up joined to one weight, and down).
    """

    output: Blocks
    norm: np.ndarray
    gate_up: Blocks
    down: Blocks


class LayerChanges(NamedTuple):
    """The changes that a LoRA adapter makes to the weights of one layer. ``qkv`` is the change of the joined weight of
    q, k and v.
    """

    qkv: Change = NO_CHANGE
    output: Change = NO_CHANGE
    gate_up: Change = NO_CHANGE
    down: Change = NO_CHANGE


@njit(cache=True)
def enter(x, entry, change, rows, eps, cos, sin, q, k, v):  # type: ignore[no-untyped-def]
    """Compute the part of a layer before attention: from the tokens x [n, hidden], fill q [n, Hq, D], k [n, H, D] and v
    [n, H, Dv]. ``entry`` are the EntryWeights of the layer. ``eps`` is the small number in RMS norms that prevents a
    division by zero. q and k are rotated by cos and sin [n, <= D / 2] (RoPE, arXiv:2104.09864).

    ``change`` is the Change that a LoRA adapter makes to the joined weight of q, k and v. It applies to the tokens
    whose indices are ``rows``.
    """
    normed = normalize(x, entry.norm, eps)
    out = _times(normed, entry.qkv)
    add_change(out, normed, change, rows)
    _part(out, entry.bias, entry.q_norm, entry.k_norm, eps, cos, sin, q, k, v)


@njit(cache=True)
def leave(x, attended, exits, changes, rows, eps):  # type: ignore[no-untyped-def]
    """Compute the part of a layer after attention: add the projected attention output to the tokens x [n, hidden] in
    place, and then add the output of the gated MLP. ``attended`` [n, Hq * Dv] is the attention output before its
    projection.

    ``exits`` are the ExitWeights of the layer. ``eps`` is the small number in RMS norms that prevents a division by
    zero. ``changes`` are the LayerChanges of a LoRA adapter, which apply to the tokens whose indices are ``rows``.
    """
    _add(x, attended, exits.output, changes.output, rows)
    normed = normalize(x, exits.norm, eps)
    both = _times(normed, exits.gate_up)
    add_change(both, normed, changes.gate_up, rows)
    _add(x, _gated(both, exits.gate_up.outputs // 2), exits.down, changes.down, rows)


def enter_chunk(x, entry, change, rows, eps, cos, sin, q, k, v):  # type: ignore[no-untyped-def]
    """Compute ``enter``, with the same arguments, for the many tokens of a chunk. The product is computed in bf16."""
    normed = normalize(x, entry.norm, eps)
    out = _times_in_bf16(normed, entry.qkv)
    add_change_in_bf16(out, normed, change, rows)
    _part(out, entry.bias, entry.q_norm, entry.k_norm, eps, cos, sin, q, k, v)


def leave_chunk(x, attended, exits, changes, rows, eps):  # type: ignore[no-untyped-def]
    """Compute ``leave``, with the same arguments, for the many tokens of a chunk. The products are computed in bf16."""
    added = _times_in_bf16(attended, exits.output)
    add_change_in_bf16(added, attended, changes.output, rows)
    x += added
    normed = normalize(x, exits.norm, eps)
    both = _times_in_bf16(normed, exits.gate_up)
    add_change_in_bf16(both, normed, changes.gate_up, rows)
    gated = _gated(both, exits.gate_up.outputs // 2)
    added = _times_in_bf16(gated, exits.down)
    add_change_in_bf16(added, gated, changes.down, rows)
    x += added


def _times_in_bf16(x: np.ndarray, blocks: Blocks) -> np.ndarray:
    return multiply_in_bf16(torch.from_numpy(x), blocks).float().numpy()


@njit(parallel=True, fastmath=MATH, cache=True)
def normalize(x, weight, eps):  # type: ignore[no-untyped-def]
    """Returns the rows of x [n, d] divided by the root of their mean square, times ``weight`` [d] (RMSNorm,
    arXiv:1910.07467). ``eps`` is added to the mean square, so that no division is by zero.
    """
    out = np.empty(x.shape, np.float32)
    if len(x) <= FEW_ROWS:
        for row in range(len(x)):
            _normalize_row(x[row], weight, eps, out[row])
    else:
        for row in prange(len(x)):
            _normalize_row(x[row], weight, eps, out[row])
    return out


@njit(parallel=True, cache=True)
def _part(out, bias, q_norm, k_norm, eps, cos, sin, q, k, v):  # type: ignore[no-untyped-def]
    if len(out) <= FEW_ROWS:
        for row in range(len(out)):
            _part_row(out[row], bias, q_norm, k_norm, eps, cos[row], sin[row], q[row], k[row], v[row])
    else:
        for row in prange(len(out)):
            _part_row(out[row], bias, q_norm, k_norm, eps, cos[row], sin[row], q[row], k[row], v[row])


@njit
def _part_row(out, bias, q_norm, k_norm, eps, cos, sin, q, k, v):  # type: ignore[no-untyped-def]
    (heads, dim), (kv_heads, v_dim) = q.shape, v.shape
    for i in range(len(bias)):
        out[i] += bias[i]
    for head in range(heads):
        _rotate(out[head * dim : head * dim + dim], q_norm, eps, cos, sin, q[head])
    for head in range(kv_heads):
        at = (heads + head) * dim
        _rotate(out[at : at + dim], k_norm, eps, cos, sin, k[head])
        at = (heads + kv_heads) * dim + head * v_dim
        for i in range(v_dim):
            v[head, i] = out[at + i]


@njit(fastmath=MATH)
def _normalize_row(x, weight, eps, out):  # type: ignore[no-untyped-def]
    total = np.float32(0)
    for i in range(len(x)):
        total += x[i] * x[i]
    scale = np.float32(1 / math.sqrt(total / len(x) + eps))
    for i in range(len(x)):
        out[i] = x[i] * scale * weight[i]


@njit(fastmath=MATH)
def _rotate(x, norm, eps, cos, sin, out):  # type: ignore[no-untyped-def]
    if len(norm) > 0:
        _normalize_row(x, norm, eps, x)
    half = len(cos)
    for i in range(half):
        out[i] = x[i] * cos[i] - x[half + i] * sin[i]
        out[half + i] = x[half + i] * cos[i] + x[i] * sin[i]
    for i in range(2 * half, len(x)):
        out[i] = x[i]


@njit
def _times(x, blocks):  # type: ignore[no-untyped-def]
    """Returns x [n, in] times the weight ``blocks``: [n, blocks * 32]."""
    out = np.empty((len(x), len(blocks.codes) * WIDTH), np.float32)
    multiply_blocks(x, blocks.kind, blocks.codes, out)
    return out


@njit(parallel=True)
def _add(x, y, blocks, change, rows):  # type: ignore[no-untyped-def]
    out, width = _times(y, blocks), x.shape[1]
    add_change(out, y, change, rows)
    if len(x) <= FEW_ROWS:
        for row in range(len(x)):
            for i in range(width):
                x[row, i] += out[row, i]
    else:
        for row in prange(len(x)):
            for i in range(width):
                x[row, i] += out[row, i]


@njit(parallel=True, cache=True)
def _gated(both, width):  # type: ignore[no-untyped-def]
    """Returns silu(gate) * up (SwiGLU, arXiv:2002.05202). Each row of ``both`` has ``width``
    gates, then ``width`` ups.
    """
    out = np.empty((len(both), width), np.float32)
    if len(both) <= FEW_ROWS:
        for row in range(len(both)):
            gate(both[row, :width], both[row, width : 2 * width], out[row])
    else:
        for row in prange(len(both)):
            gate(both[row, :width], both[row, width : 2 * width], out[row])
    return out
