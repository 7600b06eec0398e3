"""The Hadamard rotation in a GPU's memory (Triton). Torch reference: ``quant.rotate``."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from localctx.kernels.triton.records import block_of, half_of, launching


@launching
def rotate(x: Tensor, more: Tensor | None = None, dtype: torch.dtype = torch.float32) -> Tensor:
    """Rotate x [..., n] by the Hadamard matrix, which is its own inverse, and return the result in ``dtype``. If
    ``more`` is given, it is added to the rotated numbers.
    """
    n = x.shape[-1]
    rows = x.reshape(-1, n)
    out = torch.empty(rows.shape, dtype=dtype, device=x.device)
    size = n & -n
    _rotate[(triton.cdiv(len(rows), 16), n // size)](
        rows,
        None if more is None else more.reshape(-1, n),
        out,
        len(rows),
        *rows.stride(),
        WIDTH=n,
        SIZE=size,
        BLOCK=block_of(size),
    )
    return out.view(x.shape)


@triton.jit(do_not_specialize=["rows"])
def _rotate(x, more, out, rows, row_stride, col_stride, WIDTH: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # fmt: skip
    """Multiply rows by a block of the Hadamard matrix. The sign at (i, j) is the parity of i & j (Sylvester)."""
    r, i, j = tl.program_id(0) * 16 + tl.arange(0, 16), tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    bits = i[:, None] & j[None]
    bits ^= bits >> 4
    bits ^= bits >> 2
    bits ^= bits >> 1
    sign = tl.where((i[:, None] < SIZE) & (j[None] < SIZE), 1.0 - 2.0 * (bits & 1).to(tl.float32), 0.0).to(tl.float16)
    first = tl.program_id(1) * SIZE
    inside = (r[:, None] < rows) & (j[None] < SIZE)
    numbers = tl.load(
        x + r[:, None] * row_stride + (first + i[None]) * col_stride,
        mask=(r[:, None] < rows) & (i[None] < SIZE),
        other=0,
    )
    high = half_of(numbers)
    low = (numbers.to(tl.float32) - high.to(tl.float32)).to(tl.float16)
    result = tl.dot(high, sign, tl.dot(low, sign)) * (1.0 / SIZE**0.5)
    at = r[:, None].to(tl.int64) * WIDTH + first + j[None]
    if more is not None:
        result += tl.load(more + at, mask=inside, other=0)
    tl.store(out + at, result.to(out.dtype.element_ty), mask=inside)
