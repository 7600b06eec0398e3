"""Compiles the CPU kernels: two or three minutes of one core on the first run on a machine, then tenths of a second."""

from threading import Thread

import numpy as np
import torch
from numba import threading_layer

from localctx.kernels.adapter_cpu import NO_CHANGE, NO_ROWS
from localctx.kernels.decode_batch_cpu import BatchOpenPages, BatchPages, attend_pages, attend_rows
from localctx.kernels.decode_cpu import PAGE, LayerLayout, unpack_pages
from localctx.kernels.decode_layers_cpu import NO_SELECTION, LayerPages, arguments_of, decode_layers
from localctx.kernels.decoder_layer_cpu import (
    EntryWeights,
    ExitWeights,
    LayerChanges,
    enter,
    enter_chunk,
    leave,
    leave_chunk,
    normalize,
)
from localctx.kernels.experts_cpu import exact_expert_blocks, multiply_experts
from localctx.kernels.linear_cpu import exact_blocks, multiply
from localctx.kernels.prefill_cpu import attend_chunk

_DIM = 8
_RECORD = np.zeros(2 * _DIM * PAGE, np.float32)
_LAYOUT = LayerLayout(1, _DIM, _DIM, np.array([[32, 32, 0, 0, 0, _DIM * PAGE * 4, 0, 0]], np.int64))


def warm() -> None:
    """Compile the kernels of prefill, or load them compiled. Those of decoding follow in a thread, where numba allows
    that: a decode step that comes earlier waits for them.
    """
    warm_prefill()
    later = Thread(target=warm_decoding)
    later.start()
    if threading_layer() == "workqueue":  # it ends the process where two threads compute at once
        later.join()


def warm_prefill() -> None:
    """A decoder layer of 8 numbers, one head and 16 gates, and a record of one head."""
    (entry, exits), angles = _layer(), _zeros(1, _DIM // 2)
    heads = [_zeros(1, 1, _DIM) for _ in range(3)]
    for enters, leaves in ((enter, leave), (enter_chunk, leave_chunk)):
        enters(_zeros(1, _DIM), entry, NO_CHANGE, NO_ROWS, 1e-5, angles, angles, *heads)
        leaves(_zeros(1, _DIM), _zeros(1, _DIM), exits, LayerChanges(), NO_ROWS, 1e-5)
    normalize(_zeros(1, _DIM), entry.norm, 1e-5)
    multiply(_tensor(1, _DIM), exits.output)
    unpack_pages(*_records(), _LAYOUT)
    new = _tensor(1, 2, _DIM)
    attend_chunk(new, new, new, *_records(), _LAYOUT, 1.0)


def warm_decoding() -> None:
    """A token over a page; first through all layers, which is what most models need."""
    addresses, formats = _records()
    page = np.zeros((2, _DIM * PAGE), np.float32)
    tails = np.array([[page[0].ctypes.data, page[1].ctypes.data]], np.int64)
    nothing, row = np.zeros(1, np.int64), _zeros(1, 1, _DIM)
    sealed = BatchPages(np.array([[0, 0, 1, 0]], np.int64), addresses[None], formats[None])
    open_pages = BatchOpenPages(tails, 32, nothing, nothing)
    _decode(sealed, open_pages)
    attend_rows(row, row, row, sealed, open_pages, _LAYOUT, 1.0)
    attend_pages(_zeros(1, _DIM), addresses, formats, _LAYOUT, 1.0)


def _decode(sealed: BatchPages, tails: BatchOpenPages) -> None:
    """A token through one layer over these pages."""
    pages = LayerPages(
        sealed,
        tails._replace(addresses=tails.addresses[None]),
        _LAYOUT._replace(table=_LAYOUT.table[None]),
        NO_SELECTION,
    )
    layer, change, angles = _layer(), LayerChanges(), _zeros(1, _DIM // 2)
    weights, changes = arguments_of([layer]), arguments_of([change])
    decode_layers(_zeros(1, _DIM), 1, weights, changes, NO_ROWS, 1e-5, angles, angles, 1.0, pages)


def _layer() -> tuple[EntryWeights, ExitWeights]:
    """A decoder layer of zeros."""
    norm, nothing = _zeros(_DIM), np.empty(0, np.float32)
    qkv, output, both, down = (exact_blocks(_tensor(n, width)) for n, width in ((24, 8), (8, 8), (32, 8), (8, 16)))
    return EntryWeights(norm, qkv, nothing, nothing, nothing), ExitWeights(output, norm, both, down)


def warm_experts() -> None:
    """A row by one expert."""
    multiply_experts(_tensor(1, _DIM), [0], [1], exact_expert_blocks(_tensor(1, _DIM, _DIM)))


def _records() -> tuple[np.ndarray, np.ndarray]:
    """The address of one record of zeros, and its format."""
    return np.array([_RECORD.ctypes.data], np.int64), np.zeros(1, np.uint8)


def _tensor(*shape: int) -> torch.Tensor:
    """Zeros in float32, whatever default type transformers, which loads meanwhile, has set."""
    return torch.zeros(shape, dtype=torch.float32)


def _zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)
