"""Codecs: encode one sealed page of one layer as self-contained bytes (a record), and decode it.

K is stored as [kv_heads, k_dim, 64], with a scale per channel over the page's tokens. V is stored as [kv_heads, 64,
v_dim], with a scale per token. (This is KIVI, arXiv:2402.02750, with the page as the group.)
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from localctx.kernels import quant
from localctx.shape import FORMATS, PAGE, Format, LayerShape, RecordLayout, record_layout

_DTYPES = {32: torch.float32, 16: torch.bfloat16}


@dataclass(frozen=True)
class Codec:
    """Encodes and decodes the pages of one layer in one format. If ``rotated``, K and V are multiplied by a Hadamard
    matrix before they are quantized.
    """

    format: Format
    shape: LayerShape
    layout: RecordLayout
    rotated: bool

    def encode(self, k: Tensor, v: Tensor) -> Tensor:
        """Returns k [kv_heads, pages * 64, k_dim] and v [kv_heads, pages * 64, v_dim] encoded as records, [pages, bytes
        of a record] uint8.
        """
        s, f, y = self.shape, self.format, self.layout
        if self.rotated:
            k, v = quant.rotate(k.float()), quant.rotate(v.float())
        pages = k.shape[1] // PAGE
        k = k.reshape(s.kv_heads, pages, PAGE, s.k_dim).permute(1, 0, 3, 2)
        v = v.reshape(s.kv_heads, pages, PAGE, s.v_dim).transpose(0, 1)
        records = torch.zeros(pages, y.total, dtype=torch.uint8, device=k.device)
        _put(records, _encode(k, f.k_kind), (y.k_codes, y.k_scale, y.k_zero))
        _put(records, _encode(v, f.v_kind), (y.v_codes, y.v_scale, y.v_zero))
        return records

    def decode(self, records: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Returns k [kv_heads, pages * 64, k_dim] and v [kv_heads, pages * 64, v_dim] in ``dtype``, decoded from
        ``records`` [pages, bytes of a record]. If the codec rotates, they are rotated back.
        """
        s, f, y = self.shape, self.format, self.layout
        k = _decode(records, f.k_kind, (y.k_codes, y.k_scale, y.k_zero), (s.kv_heads, s.k_dim, PAGE))
        v = _decode(records, f.v_kind, (y.v_codes, y.v_scale, y.v_zero), (s.kv_heads, PAGE, s.v_dim))
        k = k.permute(1, 0, 3, 2).reshape(s.kv_heads, -1, s.k_dim)
        v = v.transpose(0, 1).reshape(s.kv_heads, -1, s.v_dim)
        if self.rotated:
            k, v = quant.rotate(k.float()), quant.rotate(v.float())
        return k.to(dtype), v.to(dtype)

    def stored_keys(self, records: Tensor) -> Tensor:
        """Returns the dequantized keys of ``records`` [pages, bytes of a record]: [pages, kv_heads, k_dim, 64] float32.
        If the codec rotates, they are not rotated back.
        """
        s, y = self.shape, self.layout
        starts, shape = (y.k_codes, y.k_scale, y.k_zero), (s.kv_heads, s.k_dim, PAGE)
        return _decode(records, self.format.k_kind, starts, shape).float()


def make_codec(name: str, shape: LayerShape, rotated: bool | None = None) -> Codec:
    """Returns the codec ``name`` of FORMATS for one layer with this ``shape``. ``rotated`` says whether K and V are
    stored rotated (None: as the format says).
    """
    f = FORMATS[name]
    return Codec(f, shape, record_layout(shape, name), f.hadamard if rotated is None else rotated)


def _encode(x: Tensor, kind: int) -> tuple[Tensor, ...]:
    if kind in _DTYPES:
        return (x.to(_DTYPES[kind]),)
    codes, scale, zero = quant.quantize(x, 3, kind)
    return quant.pack(codes, kind), scale, zero


def _decode(records: Tensor, kind: int, starts: tuple[int, ...], shape: tuple[int, int, int]) -> Tensor:
    if kind in _DTYPES:
        return _part(records, starts[0], _DTYPES[kind], shape)
    codes = _part(records, starts[0], torch.uint8, (*shape[:2], shape[2] * (kind & 255) // 8))
    scale, zero = (_part(records, at, torch.float16, shape[:2]) for at in starts[1:])
    return quant.dequantize(quant.unpack(codes, kind), scale, zero, 3)


def _put(records: Tensor, parts: tuple[Tensor, ...], starts: tuple[int, ...]) -> None:
    for start, part in zip(starts, parts, strict=False):
        flat = part.reshape(len(records), -1).view(torch.uint8)
        records[:, start : start + flat.shape[1]] = flat


def _part(records: Tensor, start: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    part = records[:, start : start + math.prod(shape) * dtype.itemsize].contiguous().view(dtype)
    return part.view(len(records), *shape)
