"""Ranking with vectors: finds the k-th greatest of some numbers, and the indices of the greatest."""

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from localctx.kernels.llvm.vector_math import (
    I32,
    I64,
    INNER,
    LANES,
    WORDS,
    address_of,
    bits_of_float,
    each_wide,
    eights,
    everywhere,
    float_of_bits,
    joined,
)

_INFINITE = 0x7F800000  # the bits of float32's infinity


@intrinsic
def _count_at_least(typingctx, numbers, count, least):  # type: ignore[no-untyped-def]
    """Returns how many of the ``count`` float32 at the address ``numbers`` are at least ``least``. ``count`` fills
    whole vectors.
    """

    def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
        numbers, count, least = args
        total = cgutils.alloca_once_value(b, WORDS([0] * LANES))
        for at, vector in each_wide(b, numbers, count):
            found = b.load(b.inttoptr(at, vector.as_pointer()), align=4)
            reached = b.fcmp_ordered(">=", found, everywhere(b, least, vector))
            for part in eights(b, b.zext(reached, ir.VectorType(I32, vector.count))):
                b.store(b.add(b.load(total), part), total)
        return b.sext(joined(b, b.load(total), b.add), I64)

    return types.int64(types.int64, types.int64, types.float32), codegen


@njit(**INNER)
def kth_greatest(numbers, count, k):  # type: ignore[no-untyped-def]
    """Returns the ``k``-th greatest of the ``count`` float32 at the address ``numbers``. The numbers are not negative,
    and ``count`` fills whole vectors. The bits of such numbers sort like the numbers, so the range of bits is halved
    until one value is left.
    """
    low, high = 0, _INFINITE + 1
    while high - low > 1:
        middle = (low + high) // 2
        if _count_at_least(numbers, count, float_of_bits(np.int32(middle))) >= k:
            low = middle
        else:
            high = middle
    return float_of_bits(np.int32(low))


@njit(**INNER)
def take_greatest(values, places):  # type: ignore[no-untyped-def]
    """Fill ``places`` with the indices of the greatest ``values``, in ascending order; ties go to the first. The values
    are not negative and fill whole vectors. There are at least as many values as ``places``.
    """
    at, size, count, taken = address_of(values), len(values), len(places), 0
    least = kth_greatest(at, size, count)
    equal = count - _count_at_least(at, size, float_of_bits(bits_of_float(least) + np.int32(1)))
    for i in range(size):
        if values[i] > least or (values[i] == least and equal > 0):
            equal -= values[i] == least
            places[taken] = i
            taken += 1
