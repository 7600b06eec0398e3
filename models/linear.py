"""Linear layers for the processor: weights lie in the order in which oneDNN's kernels read them.

It is faster than the plain layout where few rows are computed, and what comes of a row does not depend on how many
others are computed with it: an answer is the same alone and among others.
"""

import torch
from torch import Tensor

_PACKED = "cpu", torch.float32


class PackedLinear(torch.nn.Module):
    """A linear layer whose weight is packed; it holds no other copy of it."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.bias, self.nbytes = linear.bias, linear.weight.nbytes
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach())

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] to [..., out]."""
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")


def pack_linears(module: torch.nn.Module) -> None:
    """Pack every plain linear layer of ``module`` that is in float32 on the processor, where torch has oneDNN."""
    if not torch.backends.mkldnn.is_available():
        return
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if type(child) is torch.nn.Linear and (child.weight.device.type, child.weight.dtype) == _PACKED:
                setattr(parent, name, PackedLinear(child))


def weight_bytes(module: torch.nn.Module) -> int:
    """What its weights take, packed or not."""
    packed = (child.nbytes for child in module.modules() if isinstance(child, PackedLinear))
    return sum(parameter.nbytes for parameter in module.parameters()) + sum(packed)
