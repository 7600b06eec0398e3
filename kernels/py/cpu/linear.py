"""Linear layers on the CPU. Weights are stored in blocks that a vector unit reads in order, and are multiplied in
float32.

Weights are stored in the narrowest lossless format, or at 8 or 4 bits. At 8 or 4 bits, the rows are rounded to bytes
and multiplied as integers (``integer_product``). Decoding one token reads each weight once. The result of a row does
not depend on the number of rows: every output is one chain of multiply-adds along the inputs.
"""

from typing import NamedTuple

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from localctx.kernels.llvm.integer_product import add_block, rounded
from localctx.kernels.llvm.processor import WIDEST
from localctx.kernels.llvm.simd import HEIGHT, block_product, tiles_product
from localctx.kernels.llvm.vector_math import (
    BFLOAT,
    FLOAT,
    HALF,
    INNER,
    NIBBLES,
    SIGNED,
    address_of,
    aligned_floats,
    copy_into,
    widen,
    widen_bfloats,
)
from localctx.kernels.llvm.weight_groups import WIDTH, Groups, int4_groups, int8_groups, pack, unpack

ALONE = 4  # rows whose sums stay in a core's cache whatever their addresses
MANY = 12  # rows; with more, reading the weights is not the bottleneck
AHEAD = 16384  # bytes of weights to prefetch: some processors' own prefetchers stop at the end of every page
STRIP = 48  # rows of a task: their inputs stay in a core's cache while blocks pass
TALL = 96  # transposed rows of a task
PART = 512  # inputs of a tile transposed at a time: they stay in a core's first-level cache
TRANSPOSED = WIDEST == 16  # whether many rows are transposed in tiles; lower tiles of narrower vectors gain nothing

_NARROW = torch.bfloat16, torch.float16
_STORED = {torch.bfloat16: BFLOAT, torch.float16: HALF, torch.float32: FLOAT}


class Blocks(NamedTuple):
    """A weight [outputs, inputs] of a linear layer, stored in blocks of 32 outputs. The last block is padded.

    ``kind`` is the number format of the codes (such as FLOAT or NIBBLES). For floats, ``codes`` are [blocks, in, 32 *
    bytes per number]. For 8 or 4 bits, they are the records [blocks, groups, bytes] of ``weight_groups``.
    """

    kind: int
    codes: np.ndarray
    inputs: int
    outputs: int

    @property
    def nbytes(self) -> int:
        """The size of the weight in bytes."""
        return self.codes.nbytes

    @property
    def size(self) -> int:
        """The number of elements of the weight."""
        return self.outputs * self.inputs

    @property
    def exact(self) -> bool:
        """True if the weight is stored as floats, without rounding."""
        return self.kind in _STORED.values()


def exact_blocks(weight: Tensor, dtype: torch.dtype | None = None) -> Blocks:
    """Returns ``weight`` [out, in], float32 or 16 bits, in blocks of ``dtype``. The default is the narrowest type that
    loses nothing.
    """
    numbers = weight.to(dtype or narrowest(weight))
    stored = _blocked(numbers).view(torch.uint8).numpy()
    return Blocks(_STORED[numbers.dtype], stored, weight.shape[1], len(weight))


def narrowest(*weights: Tensor) -> torch.dtype:
    """Returns the narrowest type that stores ``weights`` (all of one type) without loss."""
    dtype = weights[0].dtype
    if dtype != torch.float32:
        return dtype
    return next((d for d in _NARROW if all(torch.equal(w.to(d).float(), w) for w in weights)), dtype)


def grouped_blocks(groups: Groups) -> Blocks:
    """Returns the blocks of a weight that was quantized in ``groups`` of 32 inputs."""
    return Blocks(groups.kind, pack(groups).numpy(), groups.inputs, len(groups.codes))


def int8_blocks(weight: Tensor) -> Blocks:
    """Returns ``weight`` [out, in] quantized to 8 bits, symmetric, with a scale for every 32 inputs of an output."""
    return grouped_blocks(int8_groups(weight))


def int4_blocks(weight: Tensor) -> Blocks:
    """Returns ``weight`` [out, in] quantized to 4 bits, with a scale and a minimum for every 32 inputs of an output."""
    return grouped_blocks(int4_groups(weight))


def dense(blocks: Blocks) -> Tensor:
    """Returns the weight stored in ``blocks`` as [out, in] float32. A quantized weight is dequantized."""
    if blocks.exact:
        return _stored(blocks).float().transpose(1, 2).flatten(0, 1)[: blocks.outputs].contiguous()
    weight = unpack(blocks.kind, torch.from_numpy(blocks.codes))
    return weight[: blocks.outputs, : blocks.inputs].contiguous()


def gather_rows(blocks: Blocks, rows: Tensor) -> Tensor:
    """Returns the rows of an exact weight whose indices are ``rows`` [n]: [n, in] float32. Embeddings are looked up in
    this way.
    """
    return _stored(blocks)[rows // WIDTH, :, rows % WIDTH].float()


def multiply(x: Tensor, blocks: Blocks) -> Tensor:
    """Returns the rows x [n, in] float32 times the weight: [n, out] float32.

    For a weight at 8 or 4 bits, x is rounded to int8 too, in groups of 32 inputs.
    """
    assert x.shape[1] == blocks.inputs, "another number of inputs"
    out = x.new_empty(len(x), len(blocks.codes) * WIDTH)
    multiply_blocks(x.detach().contiguous().numpy(), blocks.kind, blocks.codes, out.numpy())
    return out[:, : blocks.outputs]


def multiply_in_bf16(x: Tensor, blocks: Blocks) -> Tensor:
    """Returns x [n, in] times an exact weight, both rounded to bf16 and summed in float32: [n, out] bf16.

    With many rows, a processor with bf16 instructions does this several times as fast as ``multiply``. torch chooses
    the order of the sums, which depends on the number of rows.
    """
    weight = _stored(blocks).to(torch.bfloat16).transpose(1, 2).reshape(-1, x.shape[1])[: blocks.outputs]
    return torch.nn.functional.linear(x.to(torch.bfloat16), weight)


def _stored(blocks: Blocks) -> Tensor:
    """Returns an exact weight as [blocks, in, 32], in the float type in which it is stored."""
    dtype = next(dtype for dtype, kind in _STORED.items() if kind == blocks.kind)
    return torch.from_numpy(blocks.codes).view(dtype)


def _blocked(x: Tensor) -> Tensor:
    """Returns the weight x [out, in] in blocks of 32 outputs, [blocks, in, 32]."""
    if missing := -len(x) % WIDTH:  # padding by zero rows would still copy
        x = torch.nn.functional.pad(x, (0, 0, 0, missing))
    return x.unflatten(0, (-1, WIDTH)).transpose(1, 2).contiguous()


@njit(parallel=True, cache=True)
def multiply_blocks(x, kind, codes, out):  # type: ignore[no-untyped-def]
    """Compute ``multiply`` in compiled code: multiply contiguous x [n, in] by a weight into out [n, blocks * 32].
    ``kind`` and ``codes`` are those of the weight's Blocks.
    """
    rows, blocks = len(x), len(codes)
    if kind in (SIGNED, NIBBLES):
        small, (strips, strip) = rounded(x), _strips(rows, STRIP)
        for task in prange(strips * blocks):
            block, row = task % blocks, task // blocks * strip
            block_out = out[row : row + strip, block * WIDTH : block * WIDTH + WIDTH]
            multiply_rounded(small, row, kind, codes[block], block_out)
        return
    if TRANSPOSED and rows > MANY:
        tiles = transposed(x)
        strips, strip = _strips(len(tiles), TALL // HEIGHT)
        for task in prange(strips * blocks):
            block, tile = task % blocks, task // blocks * strip
            some = slice(tile * HEIGHT, min(rows, (tile + strip) * HEIGHT))
            block_out = out[some, block * WIDTH : block * WIDTH + WIDTH]
            multiply_tiles(tiles[tile : tile + strip], kind, codes[block], block_out)
        return
    strips, strip = _strips(rows, STRIP)
    for task in prange(strips * blocks):
        block, row = task % blocks, task // blocks * strip
        block_out = out[row : row + strip, block * WIDTH : block * WIDTH + WIDTH]
        multiply_block(x[row : row + strip], kind, codes[block], block_out)


@njit
def _strips(count, most):  # type: ignore[no-untyped-def]
    """Divide ``count`` items into strips of at most ``most`` items, of about equal length, so that threads get equal
    work. Returns the number of strips and their length.
    """
    strips = (count + most - 1) // most
    return strips, (count + strips - 1) // max(1, strips)


@njit(parallel=True)
def transposed(x):  # type: ignore[no-untyped-def]
    """Returns the rows x [n, in] as transposed tiles of HEIGHT rows, [tiles, in, HEIGHT], for ``multiply_tiles``. The
    last tile is padded with zeros.
    """
    rows, inputs = x.shape
    tiles = np.empty(((rows + HEIGHT - 1) // HEIGHT, inputs, HEIGHT), np.float32)
    if rows % HEIGHT:
        tiles[-1] = np.float32(0)
    for tile in prange(len(tiles)):
        first = tile * HEIGHT
        for start in range(0, inputs, PART):
            _transpose(x[first : first + HEIGHT, start : start + PART], tiles[tile, start : start + PART])
    return tiles


@njit(**INNER)
def _transpose(x, out):  # type: ignore[no-untyped-def]
    for row in range(len(x)):
        numbers, column = x[row], out[:, row]
        for i in range(len(numbers)):
            column[i] = numbers[i]


@njit
def multiply_tiles(tiles, kind, codes, out):  # type: ignore[no-untyped-def]
    """Multiply many rows by one block (32 outputs) of an exact weight into out [n, 32]. ``tiles`` [tiles, in, HEIGHT]
    are the rows as ``transposed`` returns them. The result is the same as that of ``multiply_block``. The weights are
    converted to float32 once for all rows.
    """
    if kind == FLOAT:
        _multiply_floats(tiles, codes.view(np.float32), out)
        return
    weights = aligned_floats(tiles.shape[1], WIDTH)
    if kind == BFLOAT:
        widen_bfloats(address_of(codes), address_of(weights), weights.size)
    else:
        widen(address_of(codes), weights.reshape(weights.size))
    _multiply_floats(tiles, weights, out)


@njit
def _multiply_floats(tiles, weights, out):  # type: ignore[no-untyped-def]
    """Compute ``multiply_tiles`` with float32 weights [in, 32]."""
    inputs, whole, source = tiles.shape[1], len(out) // HEIGHT, address_of(weights)
    tiles_product(source, address_of(tiles), whole, inputs, address_of(out), out.strides[0] // 4)
    if whole < len(tiles):
        last = aligned_floats(HEIGHT, WIDTH)
        tiles_product(source, address_of(tiles[whole]), 1, inputs, address_of(last), WIDTH)
        for row in range(whole * HEIGHT, len(out)):
            copy_into(out[row], last[row - whole * HEIGHT])


@njit
def multiply_block(x, kind, codes, out):  # type: ignore[no-untyped-def]
    """Compute ``multiply_blocks`` for one block (32 outputs) of an exact weight: multiply x [n, in] into out [n, 32].
    ``codes`` are [in, 32 * bytes per number].
    """
    (rows, inputs), width = x.shape, codes.shape[1]
    out[:] = np.float32(0)
    source, target, step = address_of(x), address_of(out), out.strides[0] // 4
    ahead = AHEAD if rows <= MANY else 0
    block_product(kind, address_of(codes), width, ahead, source, inputs, rows, inputs, target, step, np.int64(WIDTH))


@njit
def multiply_rounded(x, first, kind, codes, out):  # type: ignore[no-untyped-def]
    """Compute ``multiply_blocks`` for one block (32 outputs) of a weight at 8 or 4 bits. x are rows that ``rounded``
    has rounded to int8. The n rows from ``first`` on are multiplied into out [n, 32]. ``codes`` [groups, bytes] are the
    block's records.
    """
    if len(out) <= ALONE:
        out[:] = np.float32(0)
        add_block(x, first, len(out), kind, codes, out)
        return
    sums = aligned_floats(len(out), WIDTH)  # rows of ``out`` a multiple of 4 KiB apart would collide in the cache
    sums[:] = np.float32(0)
    add_block(x, first, len(out), kind, codes, sums)
    for row in range(len(out)):
        copy_into(out[row], sums[row])
