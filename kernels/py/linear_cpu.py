"""Linear layers for processors: weights in blocks that a vector unit reads in order, multiplied in float32.

They are kept in the narrowest format that loses nothing, or as int8. One token costs reading the weights once; the
result of a row does not depend on how many rows there are: every output is one chain of multiply-adds along the inputs.
"""

from typing import NamedTuple

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from localctx.kernels.simd import block_product
from localctx.kernels.vector_math import (
    BFLOAT,
    FLOAT,
    HALF,
    SIGNED,
    add_scaled,
    address_of,
    aligned_floats,
    widen_bytes,
)

WIDTH = 32  # outputs of a block: the width of a large tile
AT_ONCE = 1024  # outputs quantized to int8 at a time: their floats take several times the memory
GROUP = 64  # inputs that share a scale, where weights are int8
MANY = 12  # rows; for more of them int8 codes are converted to floats first, and weights are not what takes time
AHEAD = 16384  # bytes of weights that are prefetched: some processors' own prefetchers stop at the end of every page
STRIP = 48  # rows of a task: their inputs stay in a core's cache while blocks pass

_NARROW = torch.bfloat16, torch.float16
_STORED = {torch.bfloat16: BFLOAT, torch.float16: HALF, torch.float32: FLOAT, torch.int8: SIGNED}


class Blocks(NamedTuple):
    """A weight [out, in]: the ``kind`` of its numbers, their bytes [blocks, in, 32 * size], scales
    [blocks, in / 64, 32] float32 (none but for int8), and how many outputs there are: the last block is filled up.
    """

    kind: int
    codes: np.ndarray
    scales: np.ndarray
    outputs: int

    @property
    def nbytes(self) -> int:
        """Bytes of the weight."""
        return self.codes.nbytes + self.scales.nbytes

    @property
    def size(self) -> int:
        """The number of elements of the weight."""
        return self.outputs * self.codes.shape[1]


def exact_blocks(weight: Tensor, dtype: torch.dtype | None = None) -> Blocks:
    """``weight`` [out, in], float32 or 16 bits, as it is: in ``dtype``, or in 16 bits where no number of it needs
    more.
    """
    numbers = weight.to(dtype or narrowest(weight))
    return _blocks(numbers, weight.new_empty(len(weight), 0, dtype=torch.float32))


def narrowest(*weights: Tensor) -> torch.dtype:
    """The narrowest type that loses nothing of ``weights``, which are of one type."""
    dtype = weights[0].dtype
    if dtype != torch.float32:
        return dtype
    return next((d for d in _NARROW if all(torch.equal(w.to(d).float(), w) for w in weights)), dtype)


def int8_blocks(weight: Tensor) -> Blocks:
    """``weight`` [out, in] at 8 bits, symmetric, a scale for every 64 inputs of an output."""
    parts = (_int8(some) for some in weight.split(AT_ONCE))
    codes, scales = (torch.cat(found) for found in zip(*parts, strict=True))
    return _blocks(codes, scales)


def int8_bytes(outputs: int, inputs: int) -> int:
    """Bytes of a weight [outputs, inputs] in ``int8_blocks``."""
    return -(-outputs // WIDTH) * WIDTH * (inputs + 4 * -(-inputs // GROUP))


def _int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    weight = weight.float()
    padded = torch.nn.functional.pad(weight, (0, -weight.shape[1] % GROUP)).unflatten(1, (-1, GROUP))
    scales = padded.abs().amax(-1).clamp_min(1e-30) / 127
    codes = (padded / scales[..., None]).round_().to(torch.int8).flatten(1)[:, : weight.shape[1]]
    return codes, scales


def dense(blocks: Blocks) -> Tensor:
    """The weight [out, in] float32 that ``multiply`` multiplies by."""
    weight = _stored(blocks).float()
    if blocks.scales.size:
        scales = torch.from_numpy(blocks.scales).repeat_interleave(GROUP, 1)
        weight = weight * scales[:, : weight.shape[1]]
    return weight.transpose(1, 2).flatten(0, 1)[: blocks.outputs].contiguous()


def gather_rows(blocks: Blocks, rows: Tensor) -> Tensor:
    """The ``rows`` [n] of the weight, [n, in] float32: what an embedding gives."""
    block, column = rows // WIDTH, rows % WIDTH
    found = _stored(blocks)[block, :, column].float()
    if blocks.scales.size:
        scales = torch.from_numpy(blocks.scales)[block, :, column].repeat_interleave(GROUP, 1)
        found *= scales[:, : found.shape[1]]
    return found


def multiply(x: Tensor, blocks: Blocks) -> Tensor:
    """x [n, in] float32 times the weight: [n, out] float32."""
    assert x.shape[1] == blocks.codes.shape[1], "another number of inputs"
    out = x.new_empty(len(x), len(blocks.codes) * WIDTH)
    multiply_blocks(x.detach().contiguous().numpy(), blocks.kind, blocks.codes, blocks.scales, out.numpy())
    return out[:, : blocks.outputs]


def multiply_in_bf16(x: Tensor, blocks: Blocks) -> Tensor:
    """x [n, in] times the weight, both rounded to bf16 and summed in float32: [n, out] bf16.

    A processor with bf16 instructions does this several times as fast as ``multiply`` where rows are many. The order of
    the sums is the library's choice and depends on the number of rows.
    """
    weight = _stored(blocks).to(torch.bfloat16).transpose(1, 2).reshape(-1, x.shape[1])[: blocks.outputs]
    return torch.nn.functional.linear(x.to(torch.bfloat16), weight)


def _stored(blocks: Blocks) -> Tensor:
    """[blocks, in, 32], of the type they are kept in."""
    dtype = next(dtype for dtype, kind in _STORED.items() if kind == blocks.kind)
    return torch.from_numpy(blocks.codes).view(dtype)


def _blocks(codes: Tensor, scales: Tensor) -> Blocks:
    stored = _blocked(codes).view(torch.uint8).numpy()
    return Blocks(_STORED[codes.dtype], stored, _blocked(scales).numpy(), len(codes))


def _blocked(x: Tensor) -> Tensor:
    """[out, in] as [blocks, in, 32]."""
    if missing := -len(x) % WIDTH:  # padding by nothing would still copy
        x = torch.nn.functional.pad(x, (0, 0, 0, missing))
    return x.unflatten(0, (-1, WIDTH)).transpose(1, 2).contiguous()


@njit(parallel=True, cache=True)
def multiply_blocks(x, kind, codes, scales, out):  # type: ignore[no-untyped-def]
    """``multiply`` for compiled code: x [n, in], contiguous, into out [n, blocks * 32]."""
    rows, blocks = len(x), len(codes)
    strips = (rows + STRIP - 1) // STRIP
    strip = (rows + strips - 1) // strips  # strips of about equal length, so that threads have equal shares
    for task in prange(strips * blocks):
        block, row = task % blocks, task // blocks * strip
        block_out = out[row : row + strip, block * WIDTH : block * WIDTH + WIDTH]
        multiply_block(x[row : row + strip], kind, codes[block], scales[block], block_out)


@njit
def multiply_block(x, kind, codes, scales, out):  # type: ignore[no-untyped-def]
    """``multiply_blocks`` for one block, whose codes are [in, 32 * size]: into out [n, 32]."""
    (rows, inputs), width = x.shape, codes.shape[1]
    if kind == SIGNED:
        _multiply_int8(x, codes, scales, out)
        return
    out[:] = np.float32(0)
    source, target, step = address_of(x), address_of(out), out.strides[0] // 4
    ahead = AHEAD if rows <= MANY else 0
    block_product(kind, address_of(codes), width, ahead, source, inputs, rows, inputs, target, step, np.int64(WIDTH))


@njit
def _multiply_int8(x, codes, scales, out):  # type: ignore[no-untyped-def]
    """Sum a group at a time, then apply its scales. For many rows codes are converted once, with the same sums."""
    (rows, inputs), step = x.shape, np.int64(WIDTH)
    total, part = np.zeros((rows, WIDTH), np.float32), np.empty((rows, WIDTH), np.float32)
    floats = aligned_floats(GROUP, WIDTH)
    for group in range(len(scales)):
        first = group * GROUP
        some, at, kind = min(GROUP, inputs - first), address_of(codes) + first * WIDTH, SIGNED
        width, ahead = WIDTH, AHEAD
        if rows > MANY:
            widen_bytes(at, address_of(floats), some * WIDTH)
            at, kind, width, ahead = address_of(floats), FLOAT, 4 * WIDTH, 0
        part[:] = np.float32(0)
        source, target, sums = address_of(x) + first * 4, address_of(part), address_of(total)
        block_product(kind, at, width, ahead, source, inputs, rows, some, target, step, step)
        for row in range(rows):
            add_scaled(target + row * 4 * WIDTH, address_of(scales) + group * 4 * WIDTH, sums + row * 4 * WIDTH, step)
    out[:] = total
