"""Affine quantization of page-sized groups, in torch on any device."""

import torch
from torch import Tensor

_TINY = 2.0**-20  # smallest scale: a constant channel must not divide by zero


def quantize(x: Tensor, dim: int, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """Codes (uint8, shape of x), scale and zero (float16, ``dim`` removed) with ``x ~ zero + scale * codes``.

    One group runs along ``dim`` (KIVI: tokens for K, channels for V). ``zero`` and ``zero + levels * scale`` bound
    the group: both are rounded outward to float16, so no element is clipped.
    """
    levels = (1 << bits) - 1
    x = x.float()
    low, high = x.amin(dim), x.amax(dim)
    zero = (low - low.abs() * 2.0**-11).half()
    scale = ((high - zero.float()) / levels * (1 + 2.0**-10)).clamp_min(_TINY).half()
    codes = ((x - zero.float().unsqueeze(dim)) / scale.float().unsqueeze(dim)).round_().clamp_(0, levels)
    return codes.to(torch.uint8), scale, zero


def dequantize(codes: Tensor, scale: Tensor, zero: Tensor, dim: int) -> Tensor:
    """The float32 values that ``quantize`` encoded along ``dim``."""
    return torch.addcmul(zero.float().unsqueeze(dim), codes.float(), scale.float().unsqueeze(dim))
