"""Copying records to a GPU by a kernel that reads pinned memory of the host where it lies (Triton).

One launch for any number of records: a copy each, by the driver, costs the processor more time than the bus takes.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from localctx.kernels.triton.records import launching

PROGRAMS = 32  # few, so that other kernels have room beside: they wait for the bus most of the time
_WORDS = tl.constexpr(2048)  # of 8 bytes, that a program reads at once


@launching
def gather(out: Tensor, addresses: Tensor, rows: Tensor) -> None:
    """Copy the records at ``addresses`` [n] int64, on the device or in pinned memory, to ``rows`` [n] int64 of ``out``
    [any, total] uint8, which is contiguous; ``total`` and the addresses are multiples of 16.
    """
    words = out.view(torch.int64)
    blocks = triton.cdiv(words.shape[1], _WORDS.value)
    programs = min(PROGRAMS, len(addresses) * blocks)
    _gather[(programs,)](words, addresses, rows, len(addresses), words.shape[1], blocks, num_warps=4)


@triton.jit(do_not_specialize=["count", "blocks"])
def _gather(out, addresses, rows, count, width, blocks):  # type: ignore[no-untyped-def]
    """Every program copies each so many-th block of the records."""
    for task in range(tl.program_id(0), count * blocks, tl.num_programs(0)):
        i, word = task // blocks, task % blocks * _WORDS + tl.arange(0, _WORDS)
        record = tl.multiple_of(tl.load(addresses + i).to(tl.pointer_type(tl.int64)), 16)
        row = tl.load(rows + i) * width
        tl.store(out + row + word, tl.load(record + word, mask=word < width), mask=word < width)
