"""Matrix products with many experts (MoE) on the CPU: each row is multiplied by the matrix of the expert it chose.

The matrices are stored in the blocks of ``localctx.kernels.cpu.linear``. Matrices that no row chose are not read.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numba import njit, prange
from torch import Tensor

from localctx.kernels.cpu.linear import (
    STRIP,
    Blocks,
    exact_blocks,
    int4_blocks,
    int8_blocks,
    multiply_block,
    multiply_rounded,
    narrowest,
)
from localctx.kernels.llvm.integer_product import rounded
from localctx.kernels.llvm.vector_math import NIBBLES, SIGNED
from localctx.kernels.llvm.weight_groups import WIDTH


class ExpertBlocks(NamedTuple):
    """The weights [experts, out, in] of all experts of a layer (MoE), stored like ``Blocks``. ``codes`` have one more
    dimension, the expert, which comes first.
    """

    kind: int
    codes: np.ndarray
    inputs: int
    outputs: int

    @property
    def nbytes(self) -> int:
        """The size of the weights in bytes."""
        return self.codes.nbytes

    @property
    def size(self) -> int:
        """The number of weights of all experts."""
        return len(self.codes) * self.outputs * self.inputs

    @property
    def exact(self) -> bool:
        """True if the weights are stored as floats, without rounding."""
        return self.of(0).exact

    def of(self, expert: int) -> Blocks:
        """Returns the weight of one expert."""
        return Blocks(self.kind, self.codes[expert], self.inputs, self.outputs)


def exact_expert_blocks(weights: Tensor) -> ExpertBlocks:
    """Returns ``weights`` [experts, out, in], float32 or 16 bits, as blocks without loss. The blocks have 16 bits a
    weight if that loses nothing.
    """
    dtype = narrowest(*weights)
    return _stacked(len(weights), (exact_blocks(weight, dtype) for weight in weights))


def int8_expert_blocks(weights: Tensor) -> ExpertBlocks:
    """Returns ``weights`` [experts, out, in] quantized to 8 bits, as ``int8_blocks`` quantizes one weight."""
    return _stacked(len(weights), map(int8_blocks, weights))


def int4_expert_blocks(weights: Tensor) -> ExpertBlocks:
    """Returns ``weights`` [experts, out, in] quantized to 4 bits, as ``int4_blocks`` quantizes one weight."""
    return _stacked(len(weights), map(int4_blocks, weights))


def _stacked(count: int, matrices: Iterable[Blocks]) -> ExpertBlocks:
    """Stack the weights of ``count`` experts into one ExpertBlocks. ``matrices`` makes them one at a time, so that only
    one exists beside the result.
    """
    stack = np.empty(0)
    for expert, blocks in enumerate(matrices):
        if expert == 0:
            stack = np.empty((count, *blocks.codes.shape), blocks.codes.dtype)
        stack[expert] = blocks.codes
    return ExpertBlocks(blocks.kind, stack, blocks.inputs, blocks.outputs)


def multiply_experts(x: Tensor, experts: Sequence[int], ends: Sequence[int], blocks: ExpertBlocks) -> Tensor:
    """Multiply each row of x [n, in] float32 by the weight of its expert. Returns [n, out] float32. The rows are sorted
    by expert.

    Rows ``ends[i - 1]`` (0 for the first) to ``ends[i]`` belong to expert ``experts[i]``. The result of a row does not
    depend on the other rows.
    """
    assert x.shape[1] == blocks.inputs, "another number of inputs"
    assert all(0 <= expert < len(blocks.codes) for expert in experts), "an expert that is not there"
    out = x.new_empty(len(x), blocks.codes.shape[1] * WIDTH)
    chosen, until = np.array(experts, np.int64), np.array(ends, np.int64)
    multiply_chosen(x.contiguous().numpy(), chosen, until, blocks.kind, blocks.codes, out.numpy())
    return out[:, : blocks.outputs]


@njit(parallel=True, cache=True)
def multiply_chosen(x, experts, ends, kind, codes, out):  # type: ignore[no-untyped-def]
    """Compute ``multiply_experts`` in compiled code: multiply contiguous x [n, in] into out [n, blocks * 32]. ``kind``
    and ``codes`` are those of the ExpertBlocks.
    """
    blocks, by_integers = codes.shape[1], kind in (SIGNED, NIBBLES)
    small = rounded(x if by_integers else x[:0])
    for task in prange(len(experts) * blocks):
        group, block = task // blocks, task % blocks
        first, column = ends[group - 1] if group else 0, block * WIDTH
        for row in range(first, ends[group], STRIP):
            end = min(row + STRIP, ends[group])
            some = out[row:end, column : column + WIDTH]
            if by_integers:
                multiply_rounded(small, row, kind, codes[experts[group], block], some)
            else:
                multiply_block(x[row:end], kind, codes[experts[group], block], some)
