"""Computes all layers of a plain decoder for a few new tokens, in one call.

Calling each layer from Python would take as long as the arithmetic of a short context.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import carray, njit

from localctx.kernels.cpu.adapter import Change
from localctx.kernels.cpu.decode import LayerLayout
from localctx.kernels.cpu.decode_batch import BatchOpenPages, BatchPages, attend_plainly
from localctx.kernels.cpu.decoder_layer import EntryWeights, ExitWeights, LayerChanges, enter, leave
from localctx.kernels.cpu.key_bias import NO_BIAS, KeyBias, bias_scores, bias_scores_at
from localctx.kernels.cpu.linear import Blocks
from localctx.kernels.cpu.selection import choose_plainly
from localctx.kernels.llvm.vector_math import as_pointer


class PageSelection(NamedTuple):
    """Says how ``decode_layers`` selects pages for a batch of one row. The layers before layer ``dense`` attend to all
    pages. In later layers each KV head attends to ``selected`` pages, always including the first ``sinks`` pages.

    ``parts`` [S, 4] split the selected pages into tasks: (0 for the only row, first page, end page, number of hidden
    tokens in the first page). ``sketches`` [selecting layers, 21] describe each layer's Sketch and KeyRanges, as
    ``arguments_of`` returns them.
    """

    dense: int
    selected: int
    sinks: int
    parts: np.ndarray
    sketches: np.ndarray


class LayerPages(NamedTuple):
    """The pages that a batch attends to, in all layers. ``sealed`` are the sealed pages: ``parts`` are the same in all
    layers, but ``addresses`` and ``formats`` are [layers, pages]. ``tails`` are the open pages, with ``addresses``
    [layers, n, 2].

    ``layout`` has a table [layers, formats, 8]; heads and widths are the same in every layer. ``bias`` is the bias of
    k_proj that stored keys lack, with ``starts`` [layers, H, pages, D]; it is ``no_bias`` if the keys include any bias.
    ``selection`` is NO_SELECTION if every layer attends to all pages. From layer ``recorded`` on, ``decode_layers``
    returns each page's share of attention.
    """

    sealed: BatchPages
    tails: BatchOpenPages
    layout: LayerLayout
    bias: KeyBias
    selection: PageSelection
    recorded: int


NEVER = 1 << 30  # more layers than a model has
NO_SELECTION = PageSelection(NEVER, 0, 0, np.empty((0, 4), np.int64), np.empty((0, 21), np.int64))


def no_bias(layers: int) -> KeyBias:
    """Returns the KeyBias of ``layers`` layers whose stored keys already include any bias of k_proj, so that kernels
    add nothing.
    """
    return NO_BIAS._replace(starts=np.empty((layers, *NO_BIAS.starts.shape), np.float32))


def arguments_of(layers: Sequence[tuple[Any, ...]]) -> np.ndarray:
    """Returns the arguments of compiled code for each layer as one array [layers, n] int64. ``layers`` has a (nested)
    tuple of numbers and arrays for each layer. A number stays a number; an array becomes its address and shape.

    Compiled code takes one such array quickly, whereas numba would check the type of each array. The original arrays
    must outlive the result.
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
    """Run the new tokens x [n, hidden] through all layers in place. Each layer computes ``enter``, ``attend_rows`` and
    ``leave``.

    ``queries`` is the number of query heads, and ``scale`` the factor of attention scores. ``weights`` are the
    EntryWeights and ExitWeights of each layer, and ``changes`` its LayerChanges, both flattened by ``arguments_of``.
    The LayerChanges apply to the tokens whose indices are ``changed``. ``eps``, ``cos`` and ``sin`` are those of
    ``enter``, and ``pages`` are LayerPages.

    Returns four arrays: the new keys [layers, n, H, D]; the new values [layers, n, H, Dv]; the indices of the selected
    pages [selecting layers, H, count]; and the share of its attention that each query head gave to each page [recorded
    layers, Hq, pages]. The new keys and values are also written to the open pages.
    """
    layers, n = len(weights), len(x)
    sealed, tails, y, biases, selection, recorded = pages
    shares = np.empty((max(0, layers - recorded), queries, sealed.addresses.shape[1]), np.float32)
    chosen = np.empty((max(0, layers - selection.dense), y.heads, selection.selected), np.int64)
    keys = np.empty((layers, n, y.heads, y.k_dim), np.float32)
    values = np.empty((layers, n, y.heads, y.v_dim), np.float32)
    q = np.empty((n, queries, y.k_dim), np.float32)
    attended = np.empty((n, queries, y.v_dim), np.float32)
    for i in range(layers):
        change = _changes_at(changes[i])
        enter(x, _entry_at(weights[i]), change.qkv, changed, eps, cos, sin, q, keys[i], values[i])
        scaled = q * np.float32(scale)
        bias = KeyBias(biases.starts[i], biases.turns, biases.first, biases.second, biases.still)
        own_sealed = BatchPages(sealed.parts, sealed.addresses[i : i + 1], sealed.formats[i : i + 1])
        if i >= selection.dense:
            own = i - selection.dense
            _select(scaled[0], bias, selection, selection.sketches[own], chosen[own])
            own_sealed = _pages_at(chosen[own], selection.parts, sealed.addresses[i], sealed.formats[i])
            extra = bias_scores_at(scaled[0], chosen[own], bias)
        else:
            extra = bias_scores(scaled, sealed.parts, bias)
        own_tails = BatchOpenPages(tails.addresses[i], tails.bits, tails.filled, tails.hidden)
        layout = LayerLayout(y.heads, y.k_dim, y.v_dim, y.table[i])
        seen = own_sealed.addresses.shape[1] if i >= recorded else 0
        masses = np.empty((queries, seen), np.float32)
        attend_plainly(scaled, keys[i], values[i], own_sealed, own_tails, layout, extra, attended, masses)
        if seen > 0:
            shares[i - recorded, :, :seen] = masses
        leave(x, attended.reshape(n, queries * y.v_dim), _exit_at(weights[i]), change, changed, eps)
    return keys, values, chosen, shares


@njit
def _select(q, bias, selection, sketch, chosen):  # type: ignore[no-untyped-def]
    """Set ``chosen`` [H, count] to the pages that the scaled queries q [Hq, D] select with a layer's ``sketch`` and
    ``bias``.
    """
    heads = len(chosen)
    queries = q.reshape(heads, len(q) // heads, q.shape[1])
    codes = carray(as_pointer(sketch[0]), (sketch[1], sketch[2], sketch[3], sketch[4]), np.uint8)
    halves = _halves(sketch, 5), _halves(sketch, 9), _halves(sketch, 13), _halves(sketch, 17)
    choose_plainly(queries, (codes, *halves), queries, bias, selection.sinks, chosen)


@njit
def _pages_at(chosen, parts, addresses, formats):  # type: ignore[no-untyped-def]
    """Returns the BatchPages of the selected pages. ``chosen`` [H, count] are their indices in the layer's
    ``addresses`` and ``formats`` [pages].
    """
    own_addresses, own_formats = np.empty(chosen.shape, np.int64), np.empty(chosen.shape, np.uint8)
    for head in range(chosen.shape[0]):
        for i in range(chosen.shape[1]):
            own_addresses[head, i] = addresses[chosen[head, i]]
            own_formats[head, i] = formats[chosen[head, i]]
    return BatchPages(parts, own_addresses, own_formats)


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
def _halves(row, at):  # type: ignore[no-untyped-def]
    return carray(as_pointer(row[at]), (row[at + 1], row[at + 2], row[at + 3]), np.uint16)


@njit
def _floats(row, at):  # type: ignore[no-untyped-def]
    return carray(as_pointer(row[at]), (row[at + 1],), np.float32)
