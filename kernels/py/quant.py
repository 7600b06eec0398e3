"""Affine quantization of page-sized groups, in torch on any device."""

import torch
from torch import Tensor

_STEP = 2.0**-24  # between the smallest float16 numbers: a constant channel must not divide by zero
_MOST = 65_000  # float16 ends at 65,504


def quantize(x: Tensor, dim: int, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """Codes (uint8, shape of x), scale and zero (float16, ``dim`` removed) with ``x ~ zero + scale * codes``.

    One group runs along ``dim`` (KIVI: tokens for K, channels for V). ``zero`` and ``zero + levels * scale`` bound
    the group: both are rounded outward to float16, so no element is clipped, but for those beyond 65,000.
    """
    levels = (1 << bits) - 1
    x = x.float().clamp(-_MOST, _MOST)
    low, high = x.amin(dim), x.amax(dim)
    zero = (low - low.abs() * 2.0**-11 - _STEP).half()
    scale = ((high - zero.float()) / levels * (1 + 2.0**-10) + _STEP).half()
    codes = ((x - zero.float().unsqueeze(dim)) / scale.float().unsqueeze(dim)).round_().clamp_(0, levels)
    return codes.to(torch.uint8), scale, zero


def dequantize(codes: Tensor, scale: Tensor, zero: Tensor, dim: int) -> Tensor:
    """The float32 values that ``quantize`` encoded along ``dim``."""
    return torch.addcmul(zero.float().unsqueeze(dim), codes.float(), scale.float().unsqueeze(dim))
