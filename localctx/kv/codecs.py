"""Codecs: one sealed page of one layer to self-contained bytes and back.

K is kept [kv_heads, k_dim, 64] with a scale per channel over the page's tokens, V is [kv_heads, 64, v_dim] with a
scale per token (KIVI, arXiv:2402.02750, with the page as the group).
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from localctx.kernels import quant
from localctx.shape import FORMATS, PAGE, LayerShape, RecordLayout, record_layout

_DTYPES = {32: torch.float32, 16: torch.bfloat16}


@dataclass(frozen=True)
class Codec:
    """``encode`` and ``decode`` for one layer shape in one format."""

    name: str
    shape: LayerShape
    layout: RecordLayout

    def encode(self, k: Tensor, v: Tensor) -> Tensor:
        """Records [pages, total] uint8 from k [kv_heads, pages * 64, k_dim] and v [kv_heads, pages * 64, v_dim]."""
        s, f = self.shape, FORMATS[self.name]
        pages = k.shape[1] // PAGE
        k = k.view(s.kv_heads, pages, PAGE, s.k_dim).permute(1, 0, 3, 2)
        v = v.view(s.kv_heads, pages, PAGE, s.v_dim).transpose(0, 1)
        records = torch.zeros(pages, self.layout.total, dtype=torch.uint8, device=k.device)
        parts: tuple[Tensor, ...]
        if f.scaled:
            parts = (*quant.quantize(k, 3, f.k_bits), *quant.quantize(v, 3, f.v_bits))
        else:
            parts = (k.to(_DTYPES[f.k_bits]), v.to(_DTYPES[f.v_bits]))
        for start, part in zip(self._starts(), parts, strict=True):
            flat = part.reshape(pages, -1).view(torch.uint8)
            records[:, start : start + flat.shape[1]] = flat
        return records

    def decode(self, records: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """k [kv_heads, pages * 64, k_dim] and v [kv_heads, pages * 64, v_dim] from records [pages, total]."""
        s, f = self.shape, FORMATS[self.name]
        k_shape, v_shape = (s.kv_heads, s.k_dim, PAGE), (s.kv_heads, PAGE, s.v_dim)
        if f.scaled:
            kinds = ((torch.uint8, k_shape), *[(torch.float16, k_shape[:2])] * 2)
            kinds += ((torch.uint8, v_shape), *[(torch.float16, v_shape[:2])] * 2)
            kc, ks, kz, vc, vs, vz = (
                _part(records, start, *kind) for start, kind in zip(self._starts(), kinds, strict=True)
            )
            k, v = quant.dequantize(kc, ks, kz, 3), quant.dequantize(vc, vs, vz, 3)
        else:
            k = _part(records, self.layout.k_codes, _DTYPES[f.k_bits], k_shape)
            v = _part(records, self.layout.v_codes, _DTYPES[f.v_bits], v_shape)
        k = k.permute(1, 0, 3, 2).reshape(s.kv_heads, -1, s.k_dim)
        return k.to(dtype), v.transpose(0, 1).reshape(s.kv_heads, -1, s.v_dim).to(dtype)

    def _starts(self) -> tuple[int, ...]:
        y = self.layout
        if not FORMATS[self.name].scaled:
            return y.k_codes, y.v_codes
        return y.k_codes, y.k_scale, y.k_zero, y.v_codes, y.v_scale, y.v_zero


def make_codec(name: str, shape: LayerShape) -> Codec:
    """The codec ``name`` (f32, bf16, int8) for one layer."""
    return Codec(name, shape, record_layout(shape, name))


def _part(records: Tensor, start: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    nbytes = int(np.prod(shape)) * dtype.itemsize
    part = records[:, start : start + nbytes].contiguous().view(dtype)
    return part.view(len(records), *shape)
