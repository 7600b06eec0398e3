"""Says which kernels a device can run, without importing them."""

import os
import shutil
from importlib.util import find_spec

import torch


def has_triton(device: torch.device) -> bool:
    """Returns True if Triton kernels run on ``device``. They need an NVIDIA GPU, Ampere or newer, and a C compiler for
    the code that launches kernels.
    """
    if device.type != "cuda" or torch.version.hip or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    return bool(compiler) and find_spec("triton") is not None
