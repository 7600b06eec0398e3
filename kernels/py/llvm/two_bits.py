"""Quantizes the keys of a page to two bits, with the same results as ``quant`` in torch, to the last bit.

So no operation may be reordered or fused: unlike other kernels, these functions use no fast math.
"""

from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from localctx.kernels import quant
from localctx.kernels.llvm.processor import WIDEST
from localctx.kernels.llvm.sketch_scores import LEVELS, STEP
from localctx.kernels.llvm.vector_math import F32, I32, I64, address_of, bits_of_float, float_of_half
from localctx.kernels.quant import PAGE
from localctx.kernels.sketch import BITS

EXACT: dict[str, Any] = {"error_model": "numpy", "_nrt": False}
"""Options for functions without fast math, which allocate nothing. A division by zero is no error, so loops with
divisions use vectors.
"""
_MOST, _LEAST_STEP = np.float32(quant.MOST), np.float32(quant.LEAST_STEP)
_BELOW, _ABOVE = np.float32(2.0**-11), np.float32(1 + 2.0**-10)  # margins for rounding to float16
_NONE, _LEVELS = np.float32(0), np.float32(LEVELS)
_TO_INTEGER = np.float32(1.5 * 2.0**23)  # see ``vector_math.nearest``


@intrinsic
def _half_of_float(typingctx, x):  # type: ignore[no-untyped-def]
    """Returns the 16 bits of the float16 nearest to a float32."""

    def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
        return b.bitcast(b.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), codegen


@intrinsic
def _ends(typingctx, numbers):  # type: ignore[no-untyped-def]
    """Returns the least and the greatest of the 64 float32 at an address."""
    vector = ir.VectorType(F32, WIDEST)

    def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
        places = [b.add(args[0], I64(4 * first)) for first in range(0, PAGE, WIDEST)]
        found = [b.load(b.inttoptr(place, vector.as_pointer()), align=4) for place in places]
        return context.make_tuple(b, signature.return_type, [_end(b, found, sign) for sign in "<>"])

    return types.UniTuple(types.float32, 2)(types.int64), codegen


def _end(b: Any, vectors: list[Any], sign: str) -> Any:
    """Generate the least (``sign`` <) or the greatest (>) number in all of the ``vectors``."""
    while len(vectors) > 1:
        vectors = [_nearer(b, sign, x, y) for x, y in zip(vectors[::2], vectors[1::2], strict=True)]
    (last,) = vectors
    while (half := last.type.count // 2) > 0:  # halves take fewer instructions than neighbours
        halves = [ir.VectorType(I32, half)(list(range(first, first + half))) for first in (0, half)]
        last = _nearer(b, sign, *map(partial(b.shuffle_vector, last, last), halves))
    return b.extract_element(last, I32(0))


def _nearer(b: Any, sign: str, x: Any, y: Any) -> Any:
    return b.select(b.fcmp_ordered(sign, x, y), x, y)


@njit(**EXACT)
def set_ranges(keys, scale, zero):  # type: ignore[no-untyped-def]
    """Set ``scale`` and ``zero`` [D] (the bits of float16) to the ranges of ``keys`` [D, 64], as
    ``quant.scale_and_zero`` rounds them.
    """
    for d in range(len(keys)):
        low, high = _ends(address_of(keys[d]))
        low, high = min(max(low, -_MOST), _MOST), min(max(high, -_MOST), _MOST)
        zero[d] = _half_of_float(low - abs(low) * _BELOW - _LEAST_STEP)
        scale[d] = _half_of_float((high - float_of_half(zero[d])) / _LEVELS * _ABOVE + _LEAST_STEP)


@njit(**EXACT)
def pack_codes(keys, scale, zero, out):  # type: ignore[no-untyped-def]
    """Set ``out`` [D, 16] to the packed codes of ``keys`` [D, 64], which ``quant.quantize`` and ``quant.pack`` make.
    ``scale`` and ``zero`` are the results of ``set_ranges``.
    """
    for d in range(len(keys)):
        key, codes, step, low = keys[d], out[d], float_of_half(scale[d]), float_of_half(zero[d])
        for j in range(STEP):
            byte = np.int32(0)
            for part in range(8 // BITS):
                x = min(max(key[part * STEP + j], -_MOST), _MOST)
                level = min(max((x - low) / step, _NONE), _LEVELS) + _TO_INTEGER
                byte |= (bits_of_float(level) & np.int32(LEVELS)) << np.int32(part * BITS)
            codes[j] = np.uint8(byte)
