"""Sketches: keys at two bits, by which a query finds the pages worth reading without reading them."""

from typing import NamedTuple

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from localctx.kernels import quant
from localctx.kernels.cpu import MATH, PAGE, float_of_half

BITS = 2
WIDTH = PAGE * BITS // 8  # bytes of a channel


class Sketch(NamedTuple):
    """Keys of n pages: codes [H, n, D, 16] uint8, scale and zero [H, n, D] float16, a pair for each channel."""

    codes: Tensor
    scale: Tensor
    zero: Tensor

    @property
    def nbytes(self) -> int:
        """What it takes."""
        return sum(part.nbytes for part in self)

    def with_more(self, more: "Sketch") -> "Sketch":
        """These pages and ``more`` after them."""
        return Sketch(*(torch.cat(pair, 1) for pair in zip(self, more, strict=True)))


def make_sketch(keys: Tensor) -> Sketch:
    """The sketch of keys [n, H, D, 64]."""
    codes, scale, zero = quant.quantize(keys.transpose(0, 1), 3, BITS)
    return Sketch(quant.pack(codes, BITS), scale, zero)


def best_scores(q: Tensor, sketch: Sketch, extra: Tensor | None = None) -> Tensor:
    """The greatest q . key of each page, about: [H, Q, n] float32 from q [H, Q, D].

    ``extra`` [H, Q, n * 64] is added to the scores of single keys before.
    """
    if q.device.type != "cpu":
        return best_scores_reference(q, sketch, extra)
    q = q.float().contiguous()
    out = torch.empty(*q.shape[:2], sketch.codes.shape[1])
    scale, zero = (x.view(torch.uint16).contiguous().numpy() for x in (sketch.scale, sketch.zero))
    more = torch.empty(*q.shape[:2], 0) if extra is None else extra.contiguous()
    _best(q.numpy(), sketch.codes.contiguous().numpy(), scale, zero, more.numpy(), out.numpy())
    return out


def best_scores_reference(q: Tensor, sketch: Sketch, extra: Tensor | None = None) -> Tensor:
    """``best_scores`` spelled out."""
    keys = quant.dequantize(quant.unpack(sketch.codes, BITS), sketch.scale, sketch.zero, 3)  # [H, n, D, 64]
    scores = torch.einsum("hqd,hndt->hqnt", q.float(), keys)
    return (scores if extra is None else scores + extra.unflatten(2, (-1, PAGE))).amax(-1)


@njit(parallel=True, fastmath=MATH, cache=True)
def _best(q, codes, scale, zero, extra, out):  # type: ignore[no-untyped-def]
    heads, pages, dim, _ = codes.shape
    for task in prange(heads * pages):
        head, page = task // pages, task % pages
        k = np.empty((dim, PAGE), np.float32)
        for d in range(dim):
            a, b = float_of_half(scale[head, page, d]), float_of_half(zero[head, page, d])
            for part in range(8 // BITS):
                shift = np.uint8(part * BITS)
                for i in range(WIDTH):
                    k[d, part * WIDTH + i] = np.float32((codes[head, page, d, i] >> shift) & np.uint8(3)) * a + b
        s = np.empty(PAGE, np.float32)
        for j in range(q.shape[1]):
            s[:] = np.float32(0)
            for d in range(dim):
                x = q[head, j, d]
                for t in range(PAGE):
                    s[t] += x * k[d, t]
            for t in range(min(PAGE, extra.shape[2])):
                s[t] += extra[head, j, page * PAGE + t]
            top = s[0]
            for t in range(PAGE):
                top = max(top, s[t])
            out[head, j, page] = top
