"""Makes the sketches (keys at two bits) of page records in memory, on the CPU. Torch reference: ``sketch``."""

import numpy as np
import torch
from numba import njit, prange

from localctx.kernels.cpu.decode import LayerLayout, load_k
from localctx.kernels.cpu.key_bias import NO_BIAS, KeyBias, add_bias
from localctx.kernels.llvm.sketch_scores import STEP
from localctx.kernels.llvm.two_bits import pack_codes, set_ranges
from localctx.kernels.llvm.vector_math import INNER
from localctx.kernels.quant import PAGE
from localctx.kernels.sketch import KeyRanges, Sketch


def sketch_pages(
    addresses: np.ndarray, formats: np.ndarray, layout: LayerLayout, bias: KeyBias = NO_BIAS, rotated: bool = False
) -> tuple[Sketch, KeyRanges | None]:
    """Returns the sketch of n pages of one layer, and the ranges of their keys with the ``bias`` that the stored keys
    lack (None with NO_BIAS). The records are at ``addresses`` [n], and their ``formats`` [n] are rows of the layout's
    table. If the stored keys are ``rotated`` (Hadamard), the bias is rotated too.
    """
    shape, biased = (layout.heads, len(addresses), layout.k_dim), bias.starts.shape[1] > 0
    codes, halves = np.empty((*shape, STEP), np.uint8), np.empty((4 if biased else 2, *shape), np.uint16)
    _sketch(addresses, formats, layout, bias, rotated, codes, halves)
    parts = [torch.from_numpy(part.view(np.float16)) for part in halves]
    return Sketch(torch.from_numpy(codes), *parts[:2]), KeyRanges(*parts[2:]) if biased else None


@njit(parallel=True, cache=True)
def _sketch(addresses, formats, lay, bias, rotated, codes, halves):  # type: ignore[no-untyped-def]
    """Compute ``sketch_pages``. ``halves`` [2 or 4, H, n, D] are the scales and zeros of the sketch, and then those of
    the keys with their bias, if wanted: the bits of float16.
    """
    for task in prange(len(addresses) * lay.heads):
        page, head = task // lay.heads, task % lay.heads
        keys = np.empty((lay.k_dim, PAGE), np.float32)
        load_k(addresses[page], lay, formats[page], head, keys)
        set_ranges(keys, halves[0, head, page], halves[1, head, page])
        pack_codes(keys, halves[0, head, page], halves[1, head, page], codes[head, page])
        if len(halves) > 2:
            added = np.zeros((lay.k_dim, PAGE), np.float32)
            add_bias(bias, head, page, added)
            _add(added, rotated, keys)
            set_ranges(keys, halves[2, head, page], halves[3, head, page])


@njit(**INNER)
def _add(added, rotated, keys):  # type: ignore[no-untyped-def]
    """Add ``added`` [D, 64] to ``keys`` [D, 64]. If ``rotated``, it is first rotated in place, as by ``quant.rotate``:
    by a fast Walsh-Hadamard transform over the greatest power of two in D.
    """
    step, dim = 1, len(keys)
    while rotated and dim % (2 * step) == 0:
        for d in range(dim):
            for t in range(PAGE if d // step % 2 == 0 else 0):
                a, b = added[d, t], added[d + step, t]
                added[d, t], added[d + step, t] = a + b, a - b
        step *= 2
    shrink = np.float32(1 / np.sqrt(step))
    for d in range(dim):
        for t in range(PAGE):
            keys[d, t] += added[d, t] * shrink
