"""Sketches: keys at two bits, by which a query finds the pages worth reading without reading them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from localctx.kernels import quant
from localctx.kernels.cpu import MATH, PAGE, fold, widen_all
from localctx.kernels.simd import crumbs

BITS = 2
STEP = PAGE * BITS // 8  # bytes of a channel
LEVELS = np.float32((1 << BITS) - 1)
TASK = 16  # pages
PROMISING = 3  # times as many pages as are chosen are looked into


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


Score = Callable[[Tensor, Sketch, Tensor | None], Tensor]


def choose(
    q: Tensor, sketch: Sketch, count: int, sinks: int, extra: Tensor | None = None, score: Score | None = None
) -> Tensor:
    """The ``count`` pages with the greatest q . key, about, ascending: [H, count] int64 from q [H, Q, D], joined over
    the Q queries by maximum. The first ``sinks`` pages and the last always.

    Pages whose keys' bounds promise little (Quest, arXiv:2406.10774) are not looked into. ``extra`` [H, Q, n * 64] is
    added to the scores of single keys; then all are. ``score`` stands in for ``best_scores``, and looks into all.
    """
    if score or q.device.type != "cpu":
        each = (score or best_scores)(q, sketch, extra).amax(1)
        each[:, :sinks] = each[:, -1] = float("inf")
        return each.topk(count, -1).indices.sort(-1).values
    pages = sketch.codes.shape[1]
    q = q.float().contiguous()
    scale, zero = (x.contiguous().view(torch.uint16).numpy() for x in (sketch.scale, sketch.zero))
    most = pages if extra is not None else min(pages, PROMISING * count)
    places = np.empty((len(q), most), np.int64)
    if most == pages:
        places[:] = np.arange(pages)
    else:
        places[:] = _greatest(_bounds(q.numpy(), scale, zero), most, sinks)
    more = np.empty((*q.shape[:2], 0), np.float32) if extra is None else extra.contiguous().numpy()
    best = np.empty(places.shape, np.float32)
    _best(q.numpy(), sketch.codes.contiguous().numpy(), scale, zero, more, places, best)
    best[(places < sinks) | (places == pages - 1)] = np.inf
    found = np.argpartition(best, most - count, -1)[:, most - count :]
    return torch.from_numpy(np.sort(np.take_along_axis(places, found, -1), -1))


def best_scores(q: Tensor, sketch: Sketch, extra: Tensor | None = None) -> Tensor:
    """The greatest q . key of each page, about: [H, Q, n] float32 from q [H, Q, D]. Any device; spelled out."""
    keys = quant.dequantize(quant.unpack(sketch.codes, BITS), sketch.scale, sketch.zero, 3)  # [H, n, D, 64]
    scores = torch.einsum("hqd,hndt->hqnt", q.float(), keys)
    return (scores if extra is None else scores + extra.unflatten(2, (-1, PAGE))).amax(-1)


def _greatest(bounds: np.ndarray, count: int, sinks: int) -> np.ndarray:
    bounds[:, :sinks] = bounds[:, -1] = np.inf
    return np.argpartition(bounds, bounds.shape[1] - count, -1)[:, bounds.shape[1] - count :]


@njit(parallel=True, fastmath=MATH, cache=True)
def _bounds(q, scale, zero):  # type: ignore[no-untyped-def]
    """No key of a page has a greater product with any query than this: [H, n]."""
    heads, pages, dim = scale.shape
    out, tasks = np.empty((heads, pages), np.float32), (pages + TASK - 1) // TASK
    for task in prange(heads * tasks):
        head, first = task // tasks, task % tasks * TASK
        low, range_ = np.empty(dim, np.float32), np.empty(dim, np.float32)
        for page in range(first, min(pages, first + TASK)):
            widen_all(scale[head, page].ctypes.data, range_)
            widen_all(zero[head, page].ctypes.data, low)
            top = np.float32(-np.inf)
            for j in range(q.shape[1]):
                total = np.float32(0)
                for d in range(dim):
                    x = q[head, j, d]
                    total += x * low[d] + max(np.float32(0), x * range_[d]) * LEVELS
                top = max(top, total)
            out[head, page] = top
    return out


@njit(parallel=True, fastmath=MATH, cache=True)
def _best(q, codes, scale, zero, extra, places, out):  # type: ignore[no-untyped-def]
    """The greatest product of a key with a query, of the pages at ``places`` [H, m]: ``out`` [H, m]."""
    heads, most = places.shape
    queries, dim = q.shape[1:]
    tasks = (most + TASK - 1) // TASK
    for task in prange(heads * tasks):
        head, first = task // tasks, task % tasks * TASK
        wide = np.empty((2, dim), np.float32)
        scaled, scores = np.empty((queries, dim), np.float32), np.empty((queries, PAGE), np.float32)
        for i in range(first, min(most, first + TASK)):
            page = places[head, i]
            for j in range(queries):
                for t in range(PAGE):
                    scores[j, t] = np.float32(0)
            fold(q[head], scale[head, page].ctypes.data, zero[head, page].ctypes.data, scaled, wide, scores)
            ahead = codes[head, places[head, min(i + 1, most - 1)]].ctypes.data - codes[head, page].ctypes.data
            here, to = codes[head, page].ctypes.data, scores.ctypes.data
            crumbs(here, STEP, ahead, scaled.ctypes.data, dim, queries, dim, to, PAGE, STEP)
            top = np.float32(-np.inf)
            for j in range(queries):
                for t in range(min(PAGE, extra.shape[2])):
                    scores[j, t] += extra[head, j, page * PAGE + t]
                for t in range(PAGE):
                    top = max(top, scores[j, t])
            out[head, i] = top
