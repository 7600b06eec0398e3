"""Formats of quantized weights (int8, int4, nf4): says which devices support them, and how large quantized weights are
on a CPU.

``localctx.models.quantized.blocked_linear`` quantizes on a CPU, ``bitsandbytes_layers`` on a GPU.
"""

from collections.abc import Collection
from typing import Any

import torch

from localctx.errors import ModelError
from localctx.kernels.llvm.vector_math import NIBBLES, SIGNED
from localctx.kernels.llvm.weight_groups import BITS as GROUP_BITS
from localctx.kernels.llvm.weight_groups import group_bytes
from localctx.models.architecture.decoder_config import NATIVE_PRECISIONS
from localctx.models.quantized.bitsandbytes_layers import DEVICES, is_packed
from localctx.models.quantized.blocked_linear import output_layer
from localctx.models.quantized.fused_experts import expert_shape, fused_experts, fused_names

KINDS = {"int8": SIGNED, "int4": NIBBLES}
"""The number kinds of weights that a CPU multiplies in integers."""
OUTPUT_KIND = SIGNED
"""The number kind of the output layer, with any of these formats."""
BITS = {name: GROUP_BITS[kind] for name, kind in KINDS.items()} | {"nf4": 4.5}
"""Bits per parameter, including its share of scales."""


def refuse_weights(weights: str, device: torch.device, precision: torch.dtype) -> None:
    """Raise ModelError if the weight format ``weights`` is not supported on ``device`` with the dtype ``precision``."""
    if weights == "int4" and device.type in DEVICES:
        raise ModelError("int4 weights are for a processor", "use --weights nf4, int8 or full")
    if weights == "full" or is_packed(weights, device):
        return
    if weights == "nf4":
        raise ModelError("nf4 weights are for a GPU", "use --weights int4, int8 or full")
    if precision not in NATIVE_PRECISIONS:
        given = precision_name(precision)
        raise ModelError(f"{weights} weights are not computed in {given}", "add --dtype f32, or --weights full")


def parameter_bytes(module: Any, weights: str, finer: Collection[str] = ()) -> int:
    """Returns the size in bytes of the parameters of ``module`` on a CPU. Linear layers and experts are in the format
    ``weights``, as ``blocked_linear`` stores them. Layers named in ``finer`` use 8 bits. Tied parameters count once.
    """
    if weights == "full":
        return sum(p.nbytes for p in module.parameters())
    kind, output = KINDS[weights], output_layer(module)
    linears = {
        id(m): (m.weight, OUTPUT_KIND if m is output else SIGNED if name in finer else kind)
        for name, m in module.named_modules()
        if _is_linear(m)
    }
    experts = [(child, name) for _, child in fused_experts(module) for name in fused_names(child)]
    fused = {id(getattr(*one)) for one in experts}
    others = (m for m in module.modules() if id(m) not in linears)
    biases = (m.bias for m in module.modules() if id(m) in linears and m.bias is not None)
    whole = {id(p): p for p in (*biases, *(p for m in others for p in m.parameters(recurse=False)))}
    blocks = sum(count * group_bytes(kind, out, width) for count, out, width in (expert_shape(*one) for one in experts))
    blocks += sum(group_bytes(of, *weight.shape) for weight, of in linears.values())
    return blocks + sum(p.nbytes for key, p in whole.items() if key not in fused)


def _is_linear(module: torch.nn.Module) -> bool:
    return type(module) is torch.nn.Linear


def arithmetic_of(weights: str, device: torch.device) -> str:
    """Returns the name of the arithmetic that computes products with quantized weights on ``device``, for fingerprints;
    empty for full weights.
    """
    if weights == "full" or device.type != "cpu":
        return "" if weights == "full" else weights
    return f"{weights} in groups of 32, by rows in int8"


def precision_name(precision: torch.dtype, weights: str = "full") -> str:
    """Returns a precision as text for reports, such as ``float32``, or ``float32, int8 weights``."""
    return str(precision).removeprefix("torch.") + ("" if weights == "full" else f", {weights} weights")
