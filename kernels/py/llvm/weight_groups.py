"""Weights at 8 or 4 bits in groups of 32 inputs. They are stored as bytes in the order in which integer products read
them.

A block has 32 outputs. It has one record for each group of inputs: the codes, four inputs of an output side by side,
then float16 scales of the 32 outputs and, at 4 bits, their minima. A weight is scale * code, or scale * code + minimum,
as in GGUF's Q8_0 and Q4_1. Codes of Q4_0 are 8 above their values, so the minimum is -8 * scale.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from localctx.kernels.llvm.vector_math import NIBBLES, SIGNED

WIDTH = 32  # outputs of a block
GROUP = 32  # inputs that share a scale
RECORD = {SIGNED: GROUP * WIDTH + 2 * WIDTH, NIBBLES: GROUP * WIDTH // 2 + 4 * WIDTH}
"""The bytes of a group of a block, by number kind: 8.5 or 5 bits a weight."""
BITS = {kind: nbytes * 8 / (GROUP * WIDTH) for kind, nbytes in RECORD.items()}

_AT_ONCE = 1024  # outputs quantized at a time, because their floats take several times the memory
_TINY, _LARGEST = 2.0**-24, 65504.0  # smallest and largest float16


class Groups(NamedTuple):
    """A quantized weight [out, in], with a scale for each group of 32 inputs of an output. ``codes`` are [out, groups,
    32]: int8 at 8 bits, or uint8 from 0 to 15 at 4 bits.

    ``scales`` and ``minima`` are [out, groups] float16; at 8 bits there are no minima. Inputs are padded to whole
    groups.
    """

    codes: Tensor
    scales: Tensor
    minima: Tensor | None
    inputs: int

    @property
    def kind(self) -> int:
        """The number format of the codes: SIGNED (8 bits) or NIBBLES (4 bits)."""
        return SIGNED if self.minima is None else NIBBLES

    def join(self, *more: "Groups") -> "Groups":
        """Returns one weight with the outputs of this weight, followed by the outputs of the weights ``more``, which
        have the same number format.
        """
        parts = self, *more
        assert {(p.kind, p.inputs) for p in parts} == {(self.kind, self.inputs)}, "matrices of another kind"
        minima = torch.cat([p.minima for p in parts if p.minima is not None]) if self.minima is not None else None
        return Groups(torch.cat([p.codes for p in parts]), torch.cat([p.scales for p in parts]), minima, self.inputs)


def int8_groups(weight: Tensor) -> Groups:
    """Quantize ``weight`` [out, in] to 8 bits, symmetric."""
    return _in_parts(_int8, weight)


def int4_groups(weight: Tensor) -> Groups:
    """Quantize ``weight`` [out, in] to 4 bits: 16 equally spaced levels from the least to the greatest number of a
    group.
    """
    return _in_parts(_int4, weight)


def group_bytes(kind: int, outputs: int, inputs: int) -> int:
    """Returns the size in bytes of a packed weight [outputs, inputs], whose codes have the number format ``kind``:
    SIGNED (8 bits) or NIBBLES (4 bits).
    """
    return -(-outputs // WIDTH) * -(-inputs // GROUP) * RECORD[kind]


def pack(groups: Groups) -> Tensor:
    """Returns a quantized weight as packed records [blocks, groups, bytes] uint8, one for 32 outputs and 32 inputs. The
    last block is padded with zeros.
    """
    codes = _blocked(groups.codes).view(torch.uint8).unflatten(-1, (-1, 4)).permute(0, 2, 3, 1, 4)  # [.., 8, 32, 4]
    if groups.kind == NIBBLES:
        codes = codes[:, :, ::2] | codes[:, :, 1::2] << 4
    halves = [groups.scales, *([] if groups.minima is None else [groups.minima])]
    numbers = [_blocked(half).transpose(1, 2).contiguous().view(torch.uint8) for half in halves]
    return torch.cat([codes.flatten(2), *numbers], -1)


def unpack(kind: int, records: Tensor) -> Tensor:
    """Returns the dequantized weight [blocks * 32, groups * 32] float32 from packed records [blocks, groups, bytes].
    ``kind`` is the number format of the codes.
    """
    size = RECORD[kind] - (2 if kind == SIGNED else 4) * WIDTH
    codes = records[..., :size].unflatten(-1, (-1, WIDTH, 4))  # [blocks, groups, 8 or 4, 32, 4]
    codes = torch.stack([codes & 15, codes >> 4], 3).flatten(2, 3) if kind == NIBBLES else codes.view(torch.int8)
    values = codes.permute(0, 3, 1, 2, 4).flatten(3).float()  # [blocks, 32, groups, 32]
    numbers = records[..., size:].contiguous().view(torch.float16).float().unflatten(-1, (-1, WIDTH))
    scales = numbers.permute(2, 0, 3, 1)[..., None]  # [1 or 2, blocks, 32, groups, 1]
    weights = values * scales[0] if kind == SIGNED else values * scales[0] + scales[1]
    return weights.flatten(2).flatten(0, 1)


def _in_parts(quantize, weight: Tensor) -> Groups:  # type: ignore[no-untyped-def]
    parts = [quantize(_grouped(some.float()), weight.shape[1]) for some in weight.split(_AT_ONCE)]
    return parts[0].join(*parts[1:]) if len(parts) > 1 else parts[0]


def _grouped(weight: Tensor) -> Tensor:
    """Returns a weight as [out, groups, 32]. If the last group is not full, its last number is repeated."""
    if missing := -weight.shape[1] % GROUP:
        weight = torch.cat([weight, weight[:, -1:].expand(-1, missing)], 1)
    return weight.unflatten(1, (-1, GROUP))


def _int8(weight: Tensor, inputs: int) -> Groups:
    scales = _scales(weight.abs().amax(-1), 127)
    codes = (weight / _divisor(scales)).round_().clamp_(-127, 127)
    return Groups(codes.to(torch.int8), scales, None, inputs)


def _int4(weight: Tensor, inputs: int) -> Groups:
    least, most = weight.aminmax(dim=-1)
    minima = least.clamp(-_LARGEST, _LARGEST).half()
    scales = _scales(most - minima.float(), 15)
    codes = ((weight - minima.float()[..., None]) / _divisor(scales)).round_().clamp_(0, 15)
    return Groups(codes.to(torch.uint8), scales, minima, inputs)


def _scales(ranges: Tensor, steps: int) -> Tensor:
    """Returns the float16 scale with which ``steps`` steps cover each of ``ranges``. A scale is rounded up if the last
    level would otherwise miss the end of the range by over half a step.
    """
    scales = (ranges.clamp_min(0) / steps).clamp_max(_LARGEST).half()
    short = (scales.float() * (steps + 0.5) < ranges) & (scales < _LARGEST)
    return torch.where(short, (scales.view(torch.int16) + 1).view(torch.float16), scales)


def _divisor(scales: Tensor) -> Tensor:
    return scales.float().clamp_min(_TINY)[..., None]


def _blocked(x: Tensor) -> Tensor:
    """Returns x [out, ...] as [blocks, 32, ...], padded with zeros."""
    if missing := -len(x) % WIDTH:
        x = torch.cat([x, x.new_zeros(missing, *x.shape[1:])])
    return x.unflatten(0, (-1, WIDTH))
