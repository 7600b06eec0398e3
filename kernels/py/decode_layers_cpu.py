"""All layers of a plain decoder for a few new tokens, in one call: from Python, the calls of each layer would take as
long as the arithmetic of a short context.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import carray, njit

from localctx.kernels.adapter_cpu import Change
from localctx.kernels.decode_batch_cpu import BatchOpenPages, BatchPages, attend_plainly
from localctx.kernels.decode_cpu import LayerLayout
from localctx.kernels.decoder_layer_cpu import EntryWeights, ExitWeights, LayerChanges, enter, leave
from localctx.kernels.linear_cpu import Blocks
from localctx.kernels.vector_math import as_pointer


class LayerPages(NamedTuple):
    """What the rows of a batch attend to in every layer: ``parts`` [S, 4] and ``formats`` [layers, pages] as in
    ``BatchPages``, ``addresses`` [layers, pages], open pages as in ``BatchOpenPages`` with ``tails`` [layers, n, 2],
    and the ``tables`` [layers, formats, 8] of layouts, whose ``heads`` and widths are the same in every layer.
    """

    parts: np.ndarray
    addresses: np.ndarray
    formats: np.ndarray
    tails: np.ndarray
    bits: int
    filled: np.ndarray
    hidden: np.ndarray
    heads: int
    k_dim: int
    v_dim: int
    integers: bool
    tables: np.ndarray


def rows_of(layers: Sequence[tuple[Any, ...]]) -> np.ndarray:
    """The numbers, and the addresses and shapes of arrays, in each layer's (nested) tuples, in order: [layers, n]
    int64. The arrays must outlive it.
    """
    return np.array([list(_numbers(layer)) for layer in layers], np.int64)


def _numbers(part: Any) -> Iterator[int]:
    if isinstance(part, tuple):
        for each in part:
            yield from _numbers(each)
    elif isinstance(part, np.ndarray):
        assert part.flags.c_contiguous, "compiled code is told only the shape"
        yield part.ctypes.data
        yield from part.shape
    else:
        yield int(part)


@njit(cache=True)
def decode_layers(x, queries, weights, changes, changed, eps, cos, sin, scale, pages):  # type: ignore[no-untyped-def]
    """Change the rows x [n, hidden] of one new token each by all layers, as ``enter``, ``attend_rows`` and ``leave``
    one after another do. ``weights`` are ``rows_of`` EntryWeights and ExitWeights, ``changes`` of LayerChanges, which
    apply to the rows ``changed``; there are ``queries`` heads of queries.

    Returns the new keys [layers, n, H, D] and values [layers, n, H, Dv], which are also in the open pages.
    """
    layers, n = len(weights), len(x)
    keys = np.empty((layers, n, pages.heads, pages.k_dim), np.float32)
    values = np.empty((layers, n, pages.heads, pages.v_dim), np.float32)
    q = np.empty((n, queries, pages.k_dim), np.float32)
    attended = np.empty((n, queries, pages.v_dim), np.float32)
    for i in range(layers):
        change = _changes_at(changes[i])
        enter(x, _entry_at(weights[i]), change.qkv, changed, eps, cos, sin, q, keys[i], values[i])
        sealed = BatchPages(pages.parts, pages.addresses[i : i + 1], pages.formats[i : i + 1])
        tails = BatchOpenPages(pages.tails[i], pages.bits, pages.filled, pages.hidden)
        layout = LayerLayout(pages.heads, pages.k_dim, pages.v_dim, pages.tables[i], pages.integers)
        attend_plainly(q, keys[i], values[i], sealed, tails, layout, scale, attended)
        leave(x, attended.reshape(n, queries * pages.v_dim), _exit_at(weights[i]), change, changed, eps)
    return keys, values


@njit
def _entry_at(row):  # type: ignore[no-untyped-def]
    return EntryWeights(_floats(row, 0), _blocks(row, 2), _floats(row, 9), _floats(row, 11), _floats(row, 13))


@njit
def _exit_at(row):  # type: ignore[no-untyped-def]
    return ExitWeights(_blocks(row, 15), _floats(row, 22), _blocks(row, 24), _blocks(row, 31))


@njit
def _changes_at(row):  # type: ignore[no-untyped-def]
    return LayerChanges(_change(row, 0), _change(row, 10), _change(row, 20), _change(row, 30))


@njit
def _change(row, at):  # type: ignore[no-untyped-def]
    return Change(row[at], _codes(row, at + 1), row[at + 5], _codes(row, at + 6))


@njit
def _blocks(row, at):  # type: ignore[no-untyped-def]
    return Blocks(row[at], _codes(row, at + 1), row[at + 5], row[at + 6])


@njit
def _codes(row, at):  # type: ignore[no-untyped-def]
    return carray(as_pointer(row[at]), (row[at + 1], row[at + 2], row[at + 3]), np.uint8)


@njit
def _floats(row, at):  # type: ignore[no-untyped-def]
    return carray(as_pointer(row[at]), (row[at + 1],), np.float32)
