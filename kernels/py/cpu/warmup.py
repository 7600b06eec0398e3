"""Compiles the CPU kernels. This takes two minutes in the first run on a machine; later runs load the compiled kernels
in tenths of a second.

Numba compiles in one thread. With two cores or more, a helper process (``python -m localctx.kernels.cpu.warmup``)
compiles the attention kernels meanwhile, and this process loads them from numba's cache files.
"""

import os
import subprocess
import sys
from pathlib import Path
from threading import Thread

import numpy as np
import torch
from numba import get_num_threads, threading_layer

from localctx.kernels import CACHE
from localctx.kernels.cpu.adapter import NO_CHANGE, NO_ROWS
from localctx.kernels.cpu.decode import PAGE, LayerLayout, unpack_pages
from localctx.kernels.cpu.decode_batch import BatchOpenPages, BatchPages, attend_pages, attend_rows
from localctx.kernels.cpu.decode_layers import NEVER, NO_SELECTION, LayerPages, arguments_of, decode_layers, no_bias
from localctx.kernels.cpu.decoder_layer import (
    EntryWeights,
    ExitWeights,
    LayerChanges,
    enter,
    enter_chunk,
    leave,
    leave_chunk,
    normalize,
)
from localctx.kernels.cpu.experts import exact_expert_blocks, multiply_experts
from localctx.kernels.cpu.linear import exact_blocks, multiply
from localctx.kernels.cpu.prefill import attend_chunk
from localctx.kernels.cpu.selection import choose
from localctx.kernels.cpu.sketch import sketch_pages
from localctx.kernels.cpu.sparse_prefill import attend_chunk_sparsely

_DIM = 8
_RECORD, _OPEN = np.zeros(2 * _DIM * PAGE, np.float32), np.zeros((2, _DIM * PAGE), np.float32)
_LAYOUT = LayerLayout(1, _DIM, _DIM, np.array([[32, 32, 0, 0, 0, _DIM * PAGE * 4, 0, 0]], np.int64))


def compiled() -> bool:
    """Returns True if an earlier run compiled these kernels. It looks for ``decode_layers``, which is compiled last."""
    return any(CACHE.rglob(f"decode_layers.decode_layers-*.py{sys.version_info[0]}{sys.version_info[1]}.nbi"))


def warm() -> None:
    """Compile the kernels, or load them from numba's cache.

    If they are cached, and numba's threading layer allows it, a thread loads the decoding kernels in the background. A
    decode step that starts earlier waits for that thread.
    """
    first = not compiled()  # then wait for the decoding kernels too, while the user is told why
    if helper := _start_helper() if first else None:
        warm_layer()
        warm_selection()
        helper.wait()  # kernels that it failed to compile are compiled below
    warm_prefill()
    later = Thread(target=warm_decoding, daemon=False)  # an ending process still caches them
    later.start()
    if first or threading_layer() == "workqueue":  # workqueue aborts if two threads compute at once
        later.join()


def _start_helper() -> "subprocess.Popen[bytes] | None":
    """Start the helper process, which compiles the attention kernels and ends with this process. Returns None if a
    helper would save no time.
    """
    if getattr(sys, "frozen", False) or not sys.executable or get_num_threads() < 2 or not _writable(CACHE):
        return None
    flags = getattr(subprocess, "CREATE_NO_WINDOW", 0)
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    command = [sys.executable, "-P", "-m", "localctx.kernels.cpu.warmup"]  # -P: ignore modules in the working folder
    try:
        return subprocess.Popen(command, stdin=pipe, stdout=nothing, stderr=nothing, creationflags=flags)
    except OSError:
        return None


def _writable(folder: Path) -> bool:
    """Returns True if numba can write cache files to ``folder``, where the other process finds them. Creates the folder
    if needed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def help_parent() -> None:
    """Compile the attention kernels for the parent process, into numba's cache files. Exits early if the parent process
    ends, which closes standard input.
    """
    Thread(target=_end_with_parent, daemon=True).start()
    warm_attention()


def _end_with_parent() -> None:
    os.read(0, 1)
    os._exit(1)


def warm_prefill() -> None:
    """Compile the kernels for a chunk of a prompt."""
    warm_layer()
    _attend_chunk()


def warm_layer() -> None:
    """Compile a decoder layer without attention: hidden size 8, one head, MLP size 16."""
    (entry, exits), angles = _layer(), _zeros(1, _DIM // 2)
    heads = [_zeros(1, 1, _DIM) for _ in range(3)]
    for enters, leaves in ((enter, leave), (enter_chunk, leave_chunk)):
        enters(_zeros(1, _DIM), entry, NO_CHANGE, NO_ROWS, 1e-5, angles, angles, *heads)
        leaves(_zeros(1, _DIM), _zeros(1, _DIM), exits, LayerChanges(), NO_ROWS, 1e-5)
    normalize(_zeros(1, _DIM), entry.norm, 1e-5)
    multiply(_tensor(1, _DIM), exits.output)


def warm_attention() -> None:
    """Compile the attention of a chunk and of single tokens, which share much code."""
    _attend_chunk()
    _attend_rows(*_pages())


def warm_selection() -> None:
    """Compile sketches of pages, and page selection by them."""
    sketch, _ = sketch_pages(*_records(), _LAYOUT)
    choose(_tensor(1, 1, _DIM), sketch, 1, 1)


def warm_decoding() -> None:
    """Compile the attention of one new token over a page. The kernel for all layers in one call comes first, because
    most models use it.
    """
    sealed, open_pages = _pages()
    _decode(sealed, open_pages)
    _attend_rows(sealed, open_pages)


def _attend_chunk() -> None:
    """Run the chunk kernels with two tokens and a record of one head."""
    unpack_pages(*_records(), _LAYOUT)
    new = _tensor(1, 2, _DIM)
    attend_chunk(new, new, new, *_records(), _LAYOUT, 1.0)


def _attend_rows(sealed: BatchPages, open_pages: BatchOpenPages) -> None:
    """Run the decoding kernels with one token: over these pages, and over a single record."""
    row = _zeros(1, 1, _DIM)
    attend_rows(row, row, row, sealed, open_pages, _LAYOUT, 1.0)
    attend_pages(_zeros(1, _DIM), *_records(), _LAYOUT, 1.0)


def _pages() -> tuple[BatchPages, BatchOpenPages]:
    """Returns one sealed page and one open page of zeros."""
    addresses, formats = _records()
    tails = np.array([[_OPEN[0].ctypes.data, _OPEN[1].ctypes.data]], np.int64)
    nothing = np.zeros(1, np.int64)
    sealed = BatchPages(np.array([[0, 0, 1, 0]], np.int64), addresses[None], formats[None])
    return sealed, BatchOpenPages(tails, 32, nothing, nothing)


def _decode(sealed: BatchPages, tails: BatchOpenPages) -> None:
    """Run ``decode_layers`` with one token and one layer over these pages."""
    pages = LayerPages(
        sealed,
        tails._replace(addresses=tails.addresses[None]),
        _LAYOUT._replace(table=_LAYOUT.table[None]),
        no_bias(1),
        NO_SELECTION,
        NEVER,
    )
    layer, change, angles = _layer(), LayerChanges(), _zeros(1, _DIM // 2)
    weights, changes = arguments_of([layer]), arguments_of([change])
    decode_layers(_zeros(1, _DIM), 1, weights, changes, NO_ROWS, 1e-5, angles, angles, 1.0, pages)


def _layer() -> tuple[EntryWeights, ExitWeights]:
    """Returns the weights of a small decoder layer, all zeros."""
    norm, nothing = _zeros(_DIM), np.empty(0, np.float32)
    qkv, output, both, down = (exact_blocks(_tensor(n, width)) for n, width in ((24, 8), (8, 8), (32, 8), (8, 16)))
    return EntryWeights(norm, qkv, nothing, nothing, nothing), ExitWeights(output, norm, both, down)


def warm_sparse_prefill() -> None:
    """Compile the sparse attention of a chunk over a record of one head."""
    new = _tensor(1, 2, _DIM)
    attend_chunk_sparsely(new, new, new, *_records(), _LAYOUT, 1.0, 0.0, 0.5)


def warm_experts() -> None:
    """Compile the product of a row with one expert."""
    multiply_experts(_tensor(1, _DIM), [0], [1], exact_expert_blocks(_tensor(1, _DIM, _DIM)))


def _records() -> tuple[np.ndarray, np.ndarray]:
    """Returns the address of one record of zeros, and its format."""
    return np.array([_RECORD.ctypes.data], np.int64), np.zeros(1, np.uint8)


def _tensor(*shape: int) -> torch.Tensor:
    """Returns zeros in float32. The type is explicit, because transformers may have set another
    default while it loads.
    """
    return torch.zeros(shape, dtype=torch.float32)


def _zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


if __name__ == "__main__":
    help_parent()
