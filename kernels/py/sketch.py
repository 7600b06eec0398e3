"""Sketches: copies of the keys at two bits. A query ranks pages by their sketches, without reading the pages."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from localctx.kernels import quant
from localctx.kernels.quant import PAGE

BITS = 2
LEAST = np.float32(1e-37)  # smallest divisor of a weight, so that quotients stay finite


class Sketch(NamedTuple):
    """The keys of n pages of one layer at two bits: codes [H, n, D, 16] uint8 (four codes a byte), and a scale and zero
    [H, n, D] float16 for each channel of a page.

    All tensors are contiguous.
    """

    codes: Tensor
    scale: Tensor
    zero: Tensor

    @property
    def nbytes(self) -> int:
        """The size of the sketch in bytes."""
        return sum(part.nbytes for part in self)

    def with_more(self, more: "Sketch") -> "Sketch":
        """Returns a sketch of the pages of this sketch, followed by the pages of the sketch ``more``."""
        return Sketch(*(torch.cat(pair, 1) for pair in zip(self, more, strict=True)))


class KeyRanges(NamedTuple):
    """The ranges of the keys of n pages, by channel: the lowest value is ``zero``, and a third of the range is
    ``scale``, as in a Sketch. Both are [H, n, D] float16. They bound the scores of a page's keys.
    """

    scale: Tensor
    zero: Tensor

    @property
    def nbytes(self) -> int:
        """The size of the ranges in bytes."""
        return self.scale.nbytes + self.zero.nbytes

    def with_more(self, more: "KeyRanges") -> "KeyRanges":
        """Returns the ranges of these pages, followed by those of the pages of ``more``."""
        return KeyRanges(*(torch.cat(pair, 1) for pair in zip(self, more, strict=True)))


def make_sketch(keys: Tensor) -> Sketch:
    """Returns the sketch (keys at two bits) of n pages whose keys are [n, H, D, 64]."""
    codes, scale, zero = quant.quantize(keys.transpose(0, 1).contiguous(), 3, BITS)
    return Sketch(quant.pack(codes, BITS), scale.contiguous(), zero.contiguous())


Score = Callable[[Tensor, Sketch, Tensor | None], Tensor]


def best_scores(q: Tensor, sketch: Sketch, extra: Tensor | None = None) -> Tensor:
    """Returns the greatest approximate score of a query with the 64 keys of a page, for each query and page: [H, Q, n]
    float32 from q [H, Q, D]. ``extra`` [H, Q, n * 64] is added to the scores of single keys. This is the reference for
    faster kernels, and runs on any device.
    """
    keys = quant.dequantize(quant.unpack(sketch.codes, BITS), sketch.scale, sketch.zero, 3)  # [H, n, D, 64]
    scores = torch.einsum("hqd,hndt->hqnt", q.float(), keys)
    return (scores if extra is None else scores + extra.unflatten(2, (-1, PAGE))).amax(-1)
