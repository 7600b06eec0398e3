"""Linear layers for the CPU, with weights stored in the blocks of ``localctx.kernels.linear_cpu``."""

import torch
from torch import Tensor

from localctx.kernels.linear_cpu import Blocks, exact_blocks, int8_blocks, multiply, multiply_in_bf16
from localctx.models.bitsandbytes_layers import scale_bytes, weights_in

WEIGHTS = {"full": exact_blocks, "int8": int8_blocks}
"""The functions that block weights, by name: unchanged, or as int8 with a scale for every 64 inputs."""

_COMPUTED = torch.float32, torch.bfloat16


class RowByRow:
    """A switch that all linear layers of a model share. While it is on, a row's product does not depend on the other
    rows of the batch. In bf16 this is too slow for the many rows of a prefill chunk, which torch multiplies.
    """

    def __init__(self) -> None:
        self.on = True


class BlockedLinear(torch.nn.Module):
    """A linear layer whose weight exists only in blocks. ``row_by_row`` is the switch of its model."""

    def __init__(self, blocks: Blocks, bias: Tensor | None = None, row_by_row: RowByRow | None = None) -> None:
        super().__init__()
        self.blocks, self.bias, self._row_by_row = blocks, bias, row_by_row or RowByRow()

    def forward(self, x: Tensor) -> Tensor:
        """Maps x [..., in] to [..., out], in the dtype of x."""
        rows = x.flatten(0, -2)
        if x.dtype == torch.bfloat16 and not self._row_by_row.on:
            out = multiply_in_bf16(rows, self.blocks)
        else:
            out = multiply(rows.float(), self.blocks).to(x.dtype)
        return (out if self.bias is None else out + self.bias).unflatten(0, x.shape[:-1])


def block_linears(module: torch.nn.Module, weights: str = "full") -> RowByRow:
    """Replaces every plain linear layer of ``module`` on the CPU by a BlockedLinear; returns the switch they share."""
    make, row_by_row = WEIGHTS[weights], RowByRow()
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if type(child) is torch.nn.Linear and child.weight.device.type == "cpu" and child.weight.dtype in _COMPUTED:
                setattr(parent, name, BlockedLinear(make(child.weight.detach()), child.bias, row_by_row))
    return row_by_row


def weight_bytes(module: torch.nn.Module) -> int:
    """Returns the bytes of a module's weights, blocked, packed or neither."""
    blocked = (child.blocks.nbytes for child in module.modules() if isinstance(child, BlockedLinear))
    return sum(p.nbytes + scale_bytes(p) for p in module.parameters()) + sum(blocked)


def weight_count(module: torch.nn.Module) -> int:
    """Returns the number of a module's parameters, blocked, packed or neither."""
    blocked = (child.blocks.size for child in module.modules() if isinstance(child, BlockedLinear))
    return sum(map(weights_in, module.parameters())) + sum(blocked)
