"""Affine quantization in groups (a channel or a token of a page), packing of codes below a byte, and Hadamard rotation.
It uses only torch, so it runs on any device.
"""

from functools import cache

import torch
from torch import Tensor

PAGE = 64  # tokens
LEAST_STEP = 2.0**-24  # smallest float16 step, so that a constant channel does not divide by zero
MOST = 65_000  # float16 ends at 65,504
_E4M3, _E4M3_MAX = 256 + 8, 448.0  # the number kind of 8-bit floats (4 exponent, 3 mantissa bits), and their maximum


def quantize(x: Tensor, dim: int, kind: int) -> tuple[Tensor, Tensor, Tensor]:
    """Quantize x to codes. Returns codes (uint8, shape of x), and scale and zero (float16, without the axis ``dim``),
    so that ``x ~ zero + scale * codes``. ``kind`` is 8, 4 or 2 for integer codes of so many bits, or 264 for 8-bit
    floats (e4m3).

    All numbers along ``dim`` form a group with one scale and zero (KIVI: tokens for K, channels for V). For integer
    codes, ``zero`` and ``zero + levels * scale`` bound the group: both are rounded outward to float16, so only elements
    beyond 65,000 are clipped.
    """
    if kind == _E4M3:
        return _quantize_e4m3(x, dim)
    x = x.float().clamp(-MOST, MOST)
    scale, zero = scale_and_zero(x, dim, kind)
    codes = ((x - zero.float().unsqueeze(dim)) / scale.float().unsqueeze(dim)).round_().clamp_(0, (1 << kind) - 1)
    return codes.to(torch.uint8), scale, zero


def scale_and_zero(x: Tensor, dim: int, bits: int) -> tuple[Tensor, Tensor]:
    """Returns the scale and zero (float16, without the axis ``dim``) with which ``quantize`` makes integer codes of so
    many ``bits``.
    """
    low, high = (end.clamp(-MOST, MOST) for end in x.float().aminmax(dim=dim))
    zero = (low - low.abs() * 2.0**-11 - LEAST_STEP).half()
    return ((high - zero.float()) / ((1 << bits) - 1) * (1 + 2.0**-10) + LEAST_STEP).half(), zero


def _quantize_e4m3(x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Quantize to 8-bit floats. The scale maps the ends of a group to the greatest code.

    The zero is the middle of the group, because any other zero would cost precision.
    """
    x = x.float().clamp(-MOST, MOST)
    low, high = x.amin(dim), x.amax(dim)
    zero = ((low + high) / 2).half()
    reach = torch.maximum(high - zero.float(), zero.float() - low)
    scale = (reach / _E4M3_MAX * (1 + 2.0**-10) + LEAST_STEP).half()
    codes = (x - zero.float().unsqueeze(dim)) / scale.float().unsqueeze(dim)
    return codes.clamp_(-_E4M3_MAX, _E4M3_MAX).to(torch.float8_e4m3fn).view(torch.uint8), scale, zero


def dequantize(codes: Tensor, scale: Tensor, zero: Tensor, dim: int) -> Tensor:
    """Returns the float32 values of ``codes`` that ``quantize`` made along ``dim``, with their ``scale`` and
    ``zero``.
    """
    return torch.addcmul(zero.float().unsqueeze(dim), codes.float(), scale.float().unsqueeze(dim))


def pack(codes: Tensor, kind: int) -> Tensor:
    """Pack codes [..., n], which ``quantize`` made with this ``kind``, into bytes [..., m]. m is n * bits / 8, and byte
    j holds the elements j, j + m, j + 2 * m, and so on.

    With this stride, unpacking a row of bytes gives runs of neighbouring elements, which fit vector lanes.
    """
    bits = kind & 255
    if bits == 8:
        return codes
    parts = codes.unflatten(-1, (8 // bits, -1)).unbind(-2)
    packed = parts[0].clone()
    for i, part in enumerate(parts[1:], 1):
        packed |= part << (i * bits)
    return packed


def unpack(packed: Tensor, kind: int) -> Tensor:
    """Returns the codes that ``pack`` packed with this ``kind``. They are uint8, or torch.float8_e4m3fn for 8-bit
    floats.
    """
    bits = kind & 255
    if kind == _E4M3:
        return packed.view(torch.float8_e4m3fn)
    if bits == 8:
        return packed
    mask = (1 << bits) - 1
    return torch.cat([(packed >> shift) & mask for shift in range(0, 8, bits)], -1)


@cache
def _hadamard(n: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Returns an orthonormal symmetric matrix [n, n] of Hadamard blocks, sized by the largest power of two in n."""
    block = torch.ones(1, 1, dtype=torch.float32)
    while n % (2 * len(block)) == 0:
        block = torch.cat((torch.cat((block, block), 1), torch.cat((block, -block), 1)))
    return torch.block_diag(*[block / len(block) ** 0.5] * (n // len(block))).to(device, dtype)


def rotate(x: Tensor) -> Tensor:
    """Rotate x [..., n] by the Hadamard matrix, which is its own inverse. This keeps dot products and spreads outliers
    (QuaRot).
    """
    return x @ _hadamard(x.shape[-1], x.device, x.dtype)
