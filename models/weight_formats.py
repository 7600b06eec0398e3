"""Weight quantization (int8, nf4): which device supports it, and the size of quantized weights on a CPU.

On a CPU the layers of ``localctx.models.blocked_linear`` quantize; on a GPU those of ``bitsandbytes_layers``.
"""

from typing import Any

import torch

from localctx.errors import ModelError
from localctx.kernels.linear_cpu import int8_bytes
from localctx.models.bitsandbytes_layers import is_packed
from localctx.models.fused_experts import expert_shape, fused_experts, fused_names

BITS = {"int8": 8.5, "nf4": 4.5}  # a parameter, with a float32 scale for every 64


def refuse_weights(weights: str, device: torch.device, precision: torch.dtype) -> None:
    """Raises ModelError for ``weights`` that are not supported on ``device`` in this precision."""
    if weights == "full" or is_packed(weights, device):
        return
    if weights == "nf4":
        raise ModelError("nf4 weights are for a GPU", "use --weights int8, or full")
    if precision != torch.float32:
        given = precision_name(precision)
        raise ModelError(f"int8 weights are computed in float32, not in {given}", "add --dtype f32, or --weights full")


def parameter_bytes(module: Any, weights: str) -> int:
    """Returns the bytes of the parameters of ``module``, tied ones once, with its linear layers and experts in
    ``weights`` as ``blocked_linear`` stores them.
    """
    if weights == "full":
        return sum(p.nbytes for p in module.parameters())
    linears = {id(m): m.weight for m in module.modules() if type(m) is torch.nn.Linear}
    experts = [(child, name) for _, child in fused_experts(module) for name in fused_names(child)]
    fused = {id(getattr(*one)) for one in experts}
    whole = {id(p): p for m in module.modules() for p in m.parameters(recurse=False) if p is not linears.get(id(m))}
    blocks = sum(count * int8_bytes(out, width) for count, out, width in (expert_shape(*one) for one in experts))
    blocks += sum(int8_bytes(*weight.shape) for weight in linears.values())
    return blocks + sum(p.nbytes for key, p in whole.items() if key not in fused)


def precision_name(precision: torch.dtype, weights: str = "full") -> str:
    """Returns ``float32``, or ``float32, int8 weights``, for reports."""
    return str(precision).removeprefix("torch.") + ("" if weights == "full" else f", {weights} weights")
