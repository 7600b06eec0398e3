"""Weight quantization (int8, nf4): which device supports it, its options for loading, and its size.

On a CPU the layers of ``localctx.models.blocked_linear`` quantize; on a GPU bitsandbytes does while loading.
"""

from importlib.util import find_spec
from typing import Any

import torch

from localctx.errors import ModelError

BITS = {"int8": 8.5, "nf4": 4.5}  # a parameter, with a float32 scale for every 64
_BITSANDBYTES: dict[str, dict[str, Any]] = {
    "int8": {"load_in_8bit": True},
    "nf4": {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_compute_dtype": torch.bfloat16,
    },
}


def refuse_weights(weights: str, device: torch.device, precision: torch.dtype) -> None:
    """Raises ModelError for ``weights`` that are not supported on ``device`` in this precision."""
    if weights == "full" or device.type == "cuda":
        return
    if weights == "nf4":
        raise ModelError("nf4 weights are for a GPU", "use --weights int8, or full")
    if precision != torch.float32:
        given = precision_name(precision)
        raise ModelError(f"int8 weights are computed in float32, not in {given}", "add --dtype f32, or --weights full")


def bitsandbytes_options(weights: str, device: torch.device) -> dict[str, Any]:
    """Returns the keyword arguments of ``from_pretrained`` that quantize ``weights`` on a GPU; none in other cases.

    Raises ModelError where bitsandbytes is needed and not installed.
    """
    if weights == "full" or device.type != "cuda":
        return {}
    if not find_spec("bitsandbytes"):
        raise ModelError(f"{weights} weights on a GPU need bitsandbytes", "pip install bitsandbytes, or --weights full")
    from transformers import BitsAndBytesConfig

    return {"quantization_config": BitsAndBytesConfig(**_BITSANDBYTES[weights]), "device_map": {"": device}}


def loaded_bits(weights: str, device: torch.device, precision: torch.dtype) -> float:
    """Returns the bits of a parameter at the peak of loading. A CPU loads all weights before it quantizes them."""
    return BITS[weights] if weights != "full" and device.type == "cuda" else 8 * precision.itemsize


def parameter_bytes(module: Any, weights: str) -> int:
    """Returns the bytes of the parameters of ``module`` with its linear layers in ``weights``; tied ones count once."""
    if weights == "full":
        return sum(p.nbytes for p in module.parameters())
    linears = [m for m in module.modules() if type(m) is torch.nn.Linear]
    others = {id(p): p for m in module.modules() if m not in linears for p in m.parameters(recurse=False)}
    biases = sum(m.bias.nbytes for m in linears if m.bias is not None)
    return (
        int(sum(m.weight.numel() for m in linears) * BITS[weights] / 8)
        + sum(p.nbytes for p in others.values())
        + biases
    )


def precision_name(precision: torch.dtype, weights: str = "full") -> str:
    """Returns ``float32``, or ``float32, int8 weights``, for reports."""
    return str(precision).removeprefix("torch.") + ("" if weights == "full" else f", {weights} weights")
