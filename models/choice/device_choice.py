"""Chooses the device and precision of a model."""

import torch

from localctx.errors import ModelError


def pick_device(device: str) -> torch.device:
    """Returns the torch device for the setting ``device``: ``cpu``, ``cuda`` (or one GPU, such as ``cuda:1``) or
    ``auto``, which is the first GPU, or the CPU if there is none. Raises ModelError for a missing device, and for any
    other name.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ModelError(f"there is no {device} here", "use --device cpu, or install the CUDA build of torch")
    if device.split(":")[0] not in ("cpu", "cuda"):
        raise ModelError(f"{device!r} is not a device that localctx supports", "use --device cpu, cuda or auto")
    return torch.device(device)


def pick_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """Returns the torch dtype for the setting ``dtype``. ``auto`` is bf16 on a GPU or on a CPU with bf16 instructions,
    else f32, because emulated bf16 makes prefill 5 times slower. Raises ModelError for an unknown dtype.
    """
    named = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
    if dtype in named:
        return named[dtype]
    if dtype != "auto":
        raise ModelError(f"there is no precision {dtype!r}", f"use one of: auto, {', '.join(named)}")
    if device.type != "cpu":
        return torch.bfloat16
    flags = torch.cpu.get_capabilities()
    return torch.bfloat16 if flags.get("avx512_bf16") or flags.get("amx_bf16") or flags.get("bf16") else torch.float32
