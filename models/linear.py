"""Linear layers of a model on the processor: their weights lie in the blocks of ``localctx.kernels.linear``."""

import torch
from torch import Tensor

from localctx.kernels.linear import Blocks, exact_blocks, int8_blocks, multiply

WEIGHTS = {"full": exact_blocks, "int8": int8_blocks}
"""By name: as they are, or at 8 bits with a scale for every 64 inputs."""

_COMPUTED = "cpu", torch.float32


class BlockedLinear(torch.nn.Module):
    """A linear layer whose weight is kept in blocks; it holds no other copy of it."""

    def __init__(self, blocks: Blocks, bias: Tensor | None = None) -> None:
        super().__init__()
        self.blocks, self.bias = blocks, bias

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] to [..., out]."""
        out = multiply(x.flatten(0, -2), self.blocks)
        return (out if self.bias is None else out + self.bias).unflatten(0, x.shape[:-1])


def block_linears(module: torch.nn.Module, weights: str = "full") -> None:
    """Block every plain linear layer of ``module`` that is in float32 on the processor."""
    make = WEIGHTS[weights]
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if type(child) is torch.nn.Linear and (child.weight.device.type, child.weight.dtype) == _COMPUTED:
                setattr(parent, name, BlockedLinear(make(child.weight.detach()), child.bias))


def weight_bytes(module: torch.nn.Module) -> int:
    """What its weights take, blocked or not."""
    blocked = (child.blocks.nbytes for child in module.modules() if isinstance(child, BlockedLinear))
    return sum(parameter.nbytes for parameter in module.parameters()) + sum(blocked)
