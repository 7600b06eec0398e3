"""Compiling what a processor computes with: a minute on the first run on a machine, then tenths of a second."""

import numpy as np
import torch

from localctx.kernels.chunk import attend_chunk
from localctx.kernels.cpu import PAGE, Layout, attend_pages, unpack_pages
from localctx.kernels.layer import Entry, Exit, enter, leave
from localctx.kernels.linear import exact_blocks
from localctx.kernels.rows import Pages, Tails, attend_rows

_DIM = 8


def warm() -> None:
    """Compile the kernels of reading and decoding, or load them compiled."""
    layout = Layout(1, _DIM, _DIM, np.array([[32, 32, 0, 0, 0, _DIM * PAGE * 4, 0, 0]], np.int64))
    record, page = np.zeros(2 * _DIM * PAGE, np.float32), np.zeros((2, _DIM * PAGE), np.float32)
    addresses, formats = np.array([record.ctypes.data], np.int64), np.zeros(1, np.uint8)
    attend_pages(_zeros(1, _DIM), addresses, formats, layout, 1.0)
    unpack_pages(addresses, formats, layout)
    new = torch.zeros(1, 2, _DIM)
    attend_chunk(new, new, new, addresses, formats, layout, 1.0)
    tails = np.array([[page[0].ctypes.data, page[1].ctypes.data]], np.int64)
    nothing = np.zeros(1, np.int64)
    pages = Pages(np.array([[0, 0, 1, 0]], np.int64), addresses[None], formats[None])
    row = _zeros(1, 1, _DIM)
    attend_rows(row, row, row, pages, Tails(tails, 32, nothing, nothing), layout, 1.0)
    _warm_layer()


def _warm_layer() -> None:
    """A decoder layer of 8 numbers, one head and 16 gates."""
    norm, nothing = _zeros(_DIM), np.empty(0, np.float32)
    qkv, output, down = (exact_blocks(torch.zeros(n, width)) for n, width in ((24, 8), (8, 8), (8, 16)))
    entry, exits = (
        Entry(norm, qkv, nothing, nothing, nothing),
        Exit(output, norm, exact_blocks(torch.zeros(32, 8)), down),
    )
    turn, heads = _zeros(1, _DIM), (_zeros(1, 1, _DIM) for _ in range(3))
    enter(_zeros(1, _DIM), entry, 1e-5, turn, turn, *heads)
    leave(_zeros(1, _DIM), _zeros(1, _DIM), exits, 1e-5)


def _zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)
