"""CPU linear layers and experts, with weights in the blocks of ``localctx.kernels.cpu.linear``."""

from typing import Any

import torch
from torch import Tensor

from localctx.kernels.cpu.experts import (
    ExpertBlocks,
    exact_expert_blocks,
    int4_expert_blocks,
    int8_expert_blocks,
    multiply_experts,
)
from localctx.kernels.cpu.linear import Blocks, exact_blocks, int4_blocks, int8_blocks, multiply, multiply_in_bf16
from localctx.models.architecture.decoder_config import NATIVE_PRECISIONS
from localctx.models.quantized.bitsandbytes_layers import scale_bytes, weights_in
from localctx.models.quantized.fused_experts import ExpertWeights, PackExperts, pack_experts, packed_experts

WEIGHTS = {"full": exact_blocks, "int8": int8_blocks, "int4": int4_blocks}
"""Functions that block weights, by format: unchanged, or at 8 or 4 bits with a scale per 32 inputs."""
OUTPUT_WEIGHTS = WEIGHTS | {"int4": int8_blocks}
"""The same for the output layer. It has at least 8 bits, because it decides between nearly equally likely tokens."""

_EXPERTS = {"full": exact_expert_blocks, "int8": int8_expert_blocks, "int4": int4_expert_blocks}


class RowByRow:
    """A switch that all linear layers of a model share. While it is on, products are batch-invariant: the result of a
    row does not depend on other rows. In bf16 this is too slow for a prefill chunk. The switch is then off, and torch
    multiplies.
    """

    def __init__(self) -> None:
        self.on = True


class BlockedLinear(torch.nn.Module):
    """A linear layer that stores its weight only in the blocks of our CPU kernels. ``row_by_row`` is the model's
    RowByRow, the switch that makes products batch-invariant. Some model families read the dtype of a layer's
    ``weight``, so there is an empty placeholder of this ``dtype``.
    """

    def __init__(
        self,
        blocks: Blocks,
        bias: Tensor | None = None,
        row_by_row: RowByRow | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.blocks, self.bias, self.row_by_row = blocks, bias, row_by_row or RowByRow()
        shape = blocks.outputs, blocks.inputs
        self.weight = torch.empty(shape, dtype=dtype, device="meta")  # some families read its dtype

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., in] to [..., out], in the dtype of x."""
        rows = x.flatten(0, -2)
        if x.dtype == torch.bfloat16 and self.blocks.exact and not self.row_by_row.on:
            out = multiply_in_bf16(rows, self.blocks)
        else:
            out = multiply(rows.float(), self.blocks).to(x.dtype)
        return (out if self.bias is None else out + self.bias).unflatten(0, x.shape[:-1])


class BlockedExperts(ExpertWeights):
    """The weights of the experts of a layer (MoE), stored only in the blocks of our CPU kernels. ``row_by_row`` is the
    model's RowByRow, the switch that makes products batch-invariant.
    """

    def __init__(self, blocks: ExpertBlocks) -> None:
        super().__init__()
        self._blocks, self.row_by_row = blocks, RowByRow()
        self.nbytes, self.size = blocks.nbytes, blocks.size

    def multiply(self, x: Tensor, experts: Tensor) -> Tensor:
        chosen, counts = experts.unique_consecutive(return_counts=True)
        if x.dtype != torch.bfloat16 or not self._blocks.exact or self.row_by_row.on:
            return multiply_experts(x.float(), chosen.tolist(), counts.cumsum(0).tolist(), self._blocks).to(x.dtype)
        parts = zip(x.split(counts.tolist()), chosen.tolist(), strict=True)
        return torch.cat([multiply_in_bf16(rows, self._blocks.of(expert)) for rows, expert in parts])


def expert_packer(weights: str) -> PackExperts:
    """Returns a function that converts expert weights to BlockedExperts on a CPU, in the format ``weights``: full, int8
    or int4.
    """
    return lambda fused: BlockedExperts(_EXPERTS[weights](fused))


def _is_supported(weight: Tensor) -> bool:
    return weight.device.type == "cpu" and weight.dtype in NATIVE_PRECISIONS


def block_linears(module: torch.nn.Module, weights: str = "full") -> RowByRow:
    """Replace the CPU linear layers of ``module`` by BlockedLinear, and its experts by BlockedExperts, except layers
    already replaced. ``weights`` is the format of their weights: full, int8 or int4. Returns the RowByRow switch that
    these layers share.
    """
    row_by_row, output = RowByRow(), output_layer(module)
    pack_experts(module, expert_packer(weights))
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if type(child) is torch.nn.Linear and _is_supported(child.weight):
                make = (OUTPUT_WEIGHTS if child is output else WEIGHTS)[weights]
                blocked = BlockedLinear(make(child.weight.detach()), child.bias, dtype=child.weight.dtype)
                setattr(parent, name, blocked)
    for child in module.modules():  # including those blocked during loading
        if isinstance(child, BlockedLinear | BlockedExperts):
            child.row_by_row = row_by_row
    return row_by_row


def output_layer(module: Any) -> Any:
    """Returns the output layer (lm_head) of a decoder; None for other modules."""
    return module.get_output_embeddings() if hasattr(module, "get_output_embeddings") else None


def weight_bytes(module: torch.nn.Module) -> int:
    """Returns the size in bytes of a module's weights, in any format."""
    blocked = (child.blocks.nbytes for child in module.modules() if isinstance(child, BlockedLinear))
    experts = (packed.nbytes for packed in packed_experts(module))
    return sum(p.nbytes + scale_bytes(p) for p in module.parameters()) + sum(blocked) + sum(experts)


def weight_count(module: torch.nn.Module) -> int:
    """Returns the number of a module's parameters, in any format."""
    blocked = (child.blocks.size for child in module.modules() if isinstance(child, BlockedLinear))
    experts = (packed.size for packed in packed_experts(module))
    return sum(map(weights_in, module.parameters())) + sum(blocked) + sum(experts)
