"""Linear layers of a model on the processor: their weights lie in the blocks of ``localctx.kernels.linear_cpu``."""

import torch
from torch import Tensor

from localctx.kernels.linear_cpu import Blocks, exact_blocks, int8_blocks, multiply, multiply_in_bf16

WEIGHTS = {"full": exact_blocks, "int8": int8_blocks}
"""By name: as they are, or at 8 bits with a scale for every 64 inputs."""

_COMPUTED = torch.float32, torch.bfloat16


class RowByRow:
    """Whether products are computed so that what comes of a row does not depend on the others. In bf16 that is too slow
    for the many rows of a chunk, which are multiplied by torch.
    """

    def __init__(self) -> None:
        self.on = True


class BlockedLinear(torch.nn.Module):
    """A linear layer whose weight is kept in blocks; it holds no other copy of it. ``row_by_row`` is its model's."""

    def __init__(self, blocks: Blocks, bias: Tensor | None = None, row_by_row: RowByRow | None = None) -> None:
        super().__init__()
        self.blocks, self.bias, self._row_by_row = blocks, bias, row_by_row or RowByRow()

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] to [..., out], in the type of x."""
        rows = x.flatten(0, -2)
        if x.dtype == torch.bfloat16 and not self._row_by_row.on:
            out = multiply_in_bf16(rows, self.blocks)
        else:
            out = multiply(rows.float(), self.blocks).to(x.dtype)
        return (out if self.bias is None else out + self.bias).unflatten(0, x.shape[:-1])


def block_linears(module: torch.nn.Module, weights: str = "full") -> RowByRow:
    """Block every plain linear layer of ``module`` on the processor; how they all multiply can then be changed."""
    make, row_by_row = WEIGHTS[weights], RowByRow()
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if type(child) is torch.nn.Linear and child.weight.device.type == "cpu" and child.weight.dtype in _COMPUTED:
                setattr(parent, name, BlockedLinear(make(child.weight.detach()), child.bias, row_by_row))
    return row_by_row


def weight_bytes(module: torch.nn.Module) -> int:
    """What its weights take, blocked or not."""
    blocked = (child.blocks.nbytes for child in module.modules() if isinstance(child, BlockedLinear))
    return sum(parameter.nbytes for parameter in module.parameters()) + sum(blocked)


def weight_count(module: torch.nn.Module) -> int:
    """How many numbers its weights are, blocked or not."""
    blocked = (child.blocks.size for child in module.modules() if isinstance(child, BlockedLinear))
    return sum(parameter.numel() for parameter in module.parameters()) + sum(blocked)
