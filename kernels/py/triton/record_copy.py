"""Copies page records to a GPU with one kernel, which reads the host's pinned memory directly (Triton).

One launch copies any number of records. A driver copy for each record would cost more CPU time than the transfer takes.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from localctx.kernels.triton.records import launching

PROGRAMS = 32  # few, to leave room for other kernels: programs mostly wait for the bus
_WORDS = tl.constexpr(2048)  # words of 8 bytes that a program reads at once


@launching
def gather(out: Tensor, addresses: Tensor, rows: Tensor) -> None:
    """Copy n page records to the rows ``rows`` [n] int64 of ``out``. The records are at ``addresses`` [n] int64, on the
    device or in pinned memory.

    ``out`` [any, total] uint8 is contiguous; ``total`` is the size in bytes of a record. ``total`` and the addresses
    are multiples of 16.
    """
    words = out.view(torch.int64)
    blocks = triton.cdiv(words.shape[1], _WORDS.value)
    programs = min(PROGRAMS, len(addresses) * blocks)
    _gather[(programs,)](words, addresses, rows, len(addresses), words.shape[1], blocks, num_warps=4)


@triton.jit(do_not_specialize=["count", "blocks"])
def _gather(out, addresses, rows, count, width, blocks):  # type: ignore[no-untyped-def]
    """Copy the records in blocks, shared among programs: program i copies the blocks i, i + number of programs, and so
    on.
    """
    for task in range(tl.program_id(0), count * blocks, tl.num_programs(0)):
        i, word = task // blocks, task % blocks * _WORDS + tl.arange(0, _WORDS)
        record = tl.multiple_of(tl.load(addresses + i).to(tl.pointer_type(tl.int64)), 16)
        row = tl.load(rows + i) * width
        tl.store(out + row + word, tl.load(record + word, mask=word < width), mask=word < width)
