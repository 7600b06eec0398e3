"""Quantizes linear layers to int8 or nf4 on a GPU with bitsandbytes, while transformers loads them, and computes the
sizes of such layers.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from math import ceil, prod
from typing import Any

import torch

from localctx.errors import ModelError
from localctx.models.quantized.dequantized_experts import NF4_SHARED, packed_expert_bytes
from localctx.models.quantized.fused_experts import expert_shape, fused_experts, fused_names

DEVICES = ("cuda",)  # on CPUs it is slower than ``blocked_linear``
_OPTIONS: dict[str, dict[str, Any]] = {
    "int8": {"load_in_8bit": True},
    "nf4": {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_compute_dtype": torch.bfloat16,
    },
}
_TABLE = 16  # entries of the nf4 code table, stored per layer


def is_packed(weights: str, device: torch.device) -> bool:
    """Returns True if bitsandbytes quantizes weights on ``device`` to the format ``weights`` (full, int8, int4 or
    nf4).
    """
    return weights != "full" and device.type in DEVICES


def bitsandbytes_options(weights: str, device: torch.device) -> dict[str, Any]:
    """Returns the ``BitsAndBytesConfig`` arguments for ``weights`` on a GPU; empty for full weights, and on a CPU.

    Raises ModelError if bitsandbytes is needed but not installed, or does not load.
    """
    if not is_packed(weights, device):
        return {}
    if not find_spec("bitsandbytes"):
        remedy = "pip install 'localctx[gpu]', or --weights full"
        raise ModelError(f"{weights} weights on a GPU need bitsandbytes", remedy)
    try:
        _import_bitsandbytes()
    except Exception as e:  # its native libraries raise anything
        raise ModelError(f"bitsandbytes does not load ({e})", "install it again, or use --weights full") from e
    return _OPTIONS[weights]


def packed_bytes(module: Any, weights: str) -> int:
    """Returns the size in bytes that the parameters of ``module`` will have after quantization to the format
    ``weights``; tied parameters count once.

    ``module`` is a transformers decoder that is not quantized yet. It may be on torch's meta device.
    """
    layers = list(_packed_layers(module))
    experts = [(child, name) for _, child in fused_experts(module) for name in fused_names(child)]
    packed = {id(p) for p in (*(layer.weight for layer in layers), *(getattr(*one) for one in experts))}
    others = sum(p.nbytes for p in module.parameters() if id(p) not in packed)
    mixed = sum(packed_expert_bytes(weights, *expert_shape(*one)) for one in experts)
    return others + mixed + sum(_layer_bytes(layer, weights) for layer in layers)


def scale_bytes(parameter: torch.nn.Parameter) -> int:
    """Returns the size in bytes of the scales (and code table) of a loaded ``parameter``; 0 if it is not quantized."""
    state = getattr(parameter, "quant_state", None)
    kept = (state.absmax, state.code) if state else (getattr(parameter, "SCB", None),)
    return sum(scales.nbytes for scales in kept if scales is not None)


def weights_in(parameter: torch.nn.Parameter) -> int:
    """Returns the number of elements of the weight in a loaded ``parameter``, quantized or not."""
    state = getattr(parameter, "quant_state", None)
    return prod(state.shape) if state else parameter.numel()


def packed_by(module: torch.nn.Module) -> str:
    """Returns the name and version of bitsandbytes if it quantized layers of ``module``; otherwise an empty string."""
    return f"bitsandbytes {version('bitsandbytes')}" if any(map(scale_bytes, module.parameters())) else ""


def _packed_layers(module: Any) -> Iterator[Any]:
    """Yields the layers that transformers quantizes with bitsandbytes: neither the output layer nor a tied one."""
    from transformers.pytorch_utils import Conv1D
    from transformers.quantizers.base import get_keys_to_not_convert
    from transformers.quantizers.quantizers_utils import should_convert_module

    kept = [*get_keys_to_not_convert(module), *(module._keep_in_fp32_modules or ())]
    for name, child in module.named_modules():
        if (type(child) is torch.nn.Linear or isinstance(child, Conv1D)) and should_convert_module(name, kept):
            yield child


def _layer_bytes(layer: Any, weights: str) -> int:
    count = layer.weight.numel()
    if weights == "nf4":
        return ceil(count / 2) + torch.float32.itemsize * (ceil(count / NF4_SHARED) + _TABLE)
    outputs = layer.out_features if isinstance(layer, torch.nn.Linear) else layer.nf
    return count + torch.float32.itemsize * outputs


def _import_bitsandbytes() -> None:
    """Import bitsandbytes, keeping it from fetching code from the hub and from warning about every bf16 product."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    with _hidden("kernels"):  # bitsandbytes would use it to fetch code on some CPUs, even if a GPU computes
        import bitsandbytes  # noqa: F401


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Hide the module ``name`` from imports within the block."""
    there, sys.modules[name] = sys.modules.get(name), None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]
        if there is not None:
            sys.modules[name] = there
