"""Weights in fewer bits than they came in: what is possible where, and how it is asked of who does it.

On a processor they are blocks of ``localctx.models.blocked_linear``; on a GPU bitsandbytes packs them while they are
loaded.
"""

from importlib.util import find_spec
from typing import Any

import torch

from localctx.errors import ModelError

BITS = {"int8": 8.5, "nf4": 4.5}  # of a number, with a float32 scale for every 64
_PACKED: dict[str, dict[str, Any]] = {
    "int8": {"load_in_8bit": True},
    "nf4": {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_compute_dtype": torch.bfloat16,
    },
}


def refuse_weights(weights: str, place: torch.device, precision: torch.dtype) -> None:
    """Raises ModelError for ``weights`` that nothing here multiplies by on such a device in this precision."""
    if weights == "full" or place.type == "cuda":
        return
    if weights == "nf4":
        raise ModelError("nf4 weights are for a GPU", "use --weights int8, or full")
    if precision != torch.float32:
        given = name_of(precision)
        raise ModelError(f"int8 weights are computed in float32, not in {given}", "add --dtype f32, or --weights full")


def packing(weights: str, place: torch.device) -> dict[str, Any]:
    """What ``from_pretrained`` is told of ``weights``: nothing, unless a GPU is to have them in fewer bits.

    Raises ModelError where bitsandbytes, which does it, is not installed.
    """
    if weights == "full" or place.type != "cuda":
        return {}
    if not find_spec("bitsandbytes"):
        raise ModelError(f"{weights} weights on a GPU need bitsandbytes", "pip install bitsandbytes, or --weights full")
    from transformers import BitsAndBytesConfig

    return {"quantization_config": BitsAndBytesConfig(**_PACKED[weights]), "device_map": {"": place}}


def loaded_bits(weights: str, place: torch.device, precision: torch.dtype) -> float:
    """Bits of a number at the peak of loading: a processor has all of them whole before any is in blocks."""
    return BITS[weights] if weights != "full" and place.type == "cuda" else 8 * precision.itemsize


def stored_bytes(module: Any, weights: str) -> int:
    """Bytes of the parameters of ``module``, tied ones once, as it is or with its linear layers in ``weights``."""
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


def name_of(precision: torch.dtype, weights: str = "full") -> str:
    """``float32``, or ``float32, int8 weights``."""
    return str(precision).removeprefix("torch.") + ("" if weights == "full" else f", {weights} weights")
