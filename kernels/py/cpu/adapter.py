"""Low-rank changes of linear layers (LoRA, arXiv:2106.09685) on the CPU. They apply to some of the rows of a
product.
"""

from typing import NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor

from localctx.kernels.cpu.linear import Blocks, exact_blocks, multiply_block, multiply_blocks, multiply_in_bf16
from localctx.kernels.llvm.integer_product import FEW_ROWS
from localctx.kernels.llvm.vector_math import copy_into
from localctx.kernels.llvm.weight_groups import WIDTH

_NOTHING = np.empty((0, 0, 0), np.uint8)


class Change(NamedTuple):
    """A LoRA change of a weight [out, in]: the product of ``up`` [out, r] and ``down`` [r, in], which is added to the
    weight.

    ``up_codes`` and ``down_codes`` hold the two matrices like ``codes`` of ``cpu.linear.Blocks``. ``up_kind`` and
    ``down_kind`` are their number formats: FLOAT (float32), BFLOAT (bf16) or HALF (float16). ``down_codes`` is empty if
    the weight does not change.
    """

    down_kind: int
    down_codes: np.ndarray
    up_kind: int
    up_codes: np.ndarray

    @property
    def nbytes(self) -> int:
        """The size of both matrices in bytes."""
        return self.down_codes.nbytes + self.up_codes.nbytes


NO_CHANGE = Change(0, _NOTHING, 0, _NOTHING)
NO_ROWS = np.empty(0, np.int64)


def change_of(down: Tensor, up: Tensor) -> Change:
    """Returns the ``Change`` that adds ``up`` [out, r] times ``down`` [r, in] to a weight."""
    a, b = exact_blocks(down), exact_blocks(up)
    return Change(a.kind, a.codes, b.kind, b.codes)


@njit
def add_change(out, x, change, rows):  # type: ignore[no-untyped-def]
    """Apply a LoRA ``change`` to the output of a linear layer: multiply some rows of the input x [n, in] by ``change``,
    and add the products to the same rows of the output out [n, >= out]. ``rows`` are the indices of these rows. The
    result of a row does not depend on the other rows.
    """
    if len(rows) == 0 or len(change.down_codes) == 0:
        return
    rank, some = change.up_codes.shape[1], np.empty((len(rows), x.shape[1]), np.float32)
    for i in range(len(rows)):
        copy_into(some[i], x[rows[i]])
    reduced = _product(some, change.down_kind, change.down_codes)
    added = _product(np.ascontiguousarray(reduced[:, :rank]), change.up_kind, change.up_codes)
    for i in range(len(rows)):
        for column in range(added.shape[1]):
            out[rows[i], column] += added[i, column]


def add_change_in_bf16(out: np.ndarray, x: np.ndarray, change: Change, rows: np.ndarray) -> None:
    """Compute ``add_change``, with the same arguments, in bf16 for the many rows of a chunk. torch chooses the order of
    sums, so a result may depend on the number of rows.
    """
    if not len(rows) or not len(change.down_codes):
        return
    down = Blocks(change.down_kind, change.down_codes, x.shape[1], change.up_codes.shape[1])
    up = Blocks(change.up_kind, change.up_codes, down.outputs, out.shape[1])
    out[rows] += multiply_in_bf16(multiply_in_bf16(torch.from_numpy(x[rows]), down), up).float().numpy()


@njit
def _product(x, kind, codes):  # type: ignore[no-untyped-def]
    """Returns x [n, in] times a weight: [n, blocks * 32]. The weight is stored as ``codes`` [blocks, in, 32 * size]
    with the number format ``kind``.
    """
    out = np.empty((len(x), len(codes) * WIDTH), np.float32)
    if len(x) > FEW_ROWS:
        multiply_blocks(x, kind, codes, out)
        return out
    for block in range(len(codes)):
        multiply_block(x, kind, codes[block], out[:, block * WIDTH : block * WIDTH + WIDTH])
    return out
