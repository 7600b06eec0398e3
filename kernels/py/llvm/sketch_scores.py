"""Scores of queries with keys at two bits (sketches). Queries are rounded to int8, and bytes are multiplied by bytes.

The sums are exact integers with any instruction. Rounding the queries loses far less than storing the keys at two bits.
"""

from functools import partial

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from localctx.kernels.llvm.integer_dot import DOT, I8, SMALL, bytes_at, dot, four_everywhere
from localctx.kernels.llvm.vector_math import (
    F32,
    HALF,
    I32,
    I64,
    INLINED,
    LANES,
    VECTOR,
    call_intrinsic,
    everywhere,
    float_of_half,
    greater,
    joined,
    nearest,
    step_of_codes,
    vector_at,
    widened,
)
from localctx.kernels.quant import PAGE
from localctx.kernels.sketch import BITS

LEVELS = (1 << BITS) - 1
STEP = PAGE * BITS // 8
"""Bytes of a channel of a page: byte i has the codes of the tokens i, i + 16, i + 32 and i + 48."""
_GROUP = 4  # channels whose codes share a lane


@intrinsic
def _spread_groups(typingctx, codes, groups, out):  # type: ignore[no-untyped-def]
    """Unpack two-bit codes to bytes, for ``groups`` groups of four channels. ``codes`` and ``out`` are addresses. The
    four codes of a token, one for each channel of the group, become neighbours; the tokens are in order.
    """
    both = ir.VectorType(I8, _GROUP * STEP)
    shorts = ir.VectorType(ir.IntType(16), _GROUP * STEP // 2)
    turned = ir.VectorType(I32, _GROUP * STEP)([c * STEP + i for i in range(STEP) for c in range(_GROUP)])

    def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
        codes, groups, out = args
        with cgutils.for_range(b, groups, intp=I64) as loop:
            at = b.add(codes, b.mul(loop.index, I64(_GROUP * STEP)))
            found = b.load(b.inttoptr(at, both.as_pointer()), align=1)
            found = b.bitcast(b.shuffle_vector(found, found, turned), shorts)
            target = b.add(out, b.mul(loop.index, I64(_GROUP * PAGE)))
            for part in range(8 // BITS):
                moved = b.bitcast(b.lshr(found, shorts([BITS * part] * shorts.count)), both)
                place = b.inttoptr(b.add(target, I64(part * both.count)), both.as_pointer())
                b.store(b.and_(moved, both([LEVELS] * both.count)), place, align=1)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen


@intrinsic
def _round_query(typingctx, q, scale, zero, count, scaled, codes):  # type: ignore[no-untyped-def]
    """Multiply a query q by each channel's ``scale``, and round the products to int8 ``codes``. q has ``count``
    float32, which fill whole vectors. Returns the value of one code step, and the dot product of q and ``zero``.
    ``scaled`` is scratch memory; all arguments but ``count`` are addresses.
    """

    def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
        q, scale, zero, count, scaled, codes = args
        vectors, small = b.udiv(count, I64(LANES)), ir.VectorType(I8, LANES)
        top, base = (cgutils.alloca_once_value(b, VECTOR([0.0] * LANES)) for _ in range(2))
        with cgutils.for_range(b, vectors, intp=I64) as loop:
            x = b.load(vector_at(b, q, loop.index), align=4)
            scales, zeros = (widened(b, HALF, b.add(at, b.mul(loop.index, I64(2 * LANES)))) for at in (scale, zero))
            x_scaled = b.fmul(x, scales)
            b.store(x_scaled, vector_at(b, scaled, loop.index), align=4)
            b.store(greater(b, call_intrinsic(b, "fabs", x_scaled), b.load(top)), top)
            b.store(call_intrinsic(b, "fma", x, zeros, b.load(base)), base)
        step, inverse = step_of_codes(b, joined(b, b.load(top), partial(greater, b)))
        by = everywhere(b, inverse, VECTOR)
        with cgutils.for_range(b, vectors, intp=I64) as loop:
            words = nearest(b, b.fmul(b.load(vector_at(b, scaled, loop.index), align=4), by))
            place = b.inttoptr(b.add(codes, b.mul(loop.index, I64(LANES))), small.as_pointer())
            b.store(b.trunc(words, small), place, align=1)
        return context.make_tuple(b, signature.return_type, [step, joined(b, b.load(base), b.fadd)])

    return types.UniTuple(types.float32, 2)(*[types.int64] * 6), codegen


@intrinsic
def _sum_groups(typingctx, spread, x, groups, step, base, scores):  # type: ignore[no-untyped-def]
    """Set ``scores`` [64] to base + step * (x . codes) for each token. x has the int8 codes of a query, and ``spread``
    the codes that ``_spread_groups`` wrote. ``spread``, ``x`` and ``scores`` are addresses.
    """
    words = ir.VectorType(I32, DOT.lanes)

    def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
        spread, x, groups, step, base, scores = args
        sums = [cgutils.alloca_once_value(b, words([0] * words.count)) for _ in range(PAGE // DOT.lanes)]
        with cgutils.for_range(b, groups, intp=I64) as loop:
            four = four_everywhere(b, DOT, b.add(x, b.mul(loop.index, I64(_GROUP))))
            at = b.add(spread, b.mul(loop.index, I64(_GROUP * PAGE)))
            for i, total in enumerate(sums):
                codes = bytes_at(b, DOT, b.add(at, I64(_GROUP * DOT.lanes * i)))
                b.store(dot(b, DOT, SMALL, [(codes, four)], b.load(total)), total)
        floats = ir.VectorType(F32, DOT.lanes)
        step, base = (everywhere(b, number, floats) for number in (step, base))
        for i, total in enumerate(sums):
            score = b.fadd(b.fmul(b.sitofp(b.load(total), floats), step), base)
            b.store(score, b.inttoptr(b.add(scores, I64(4 * DOT.lanes * i)), floats.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3, types.float32, types.float32, types.int64), codegen


@njit(**INLINED)
def spread_codes(codes, dim, out):  # type: ignore[no-untyped-def]
    """Unpack the two-bit codes [dim, 16] of a page's sketch to bytes in the order that ``score_keys`` reads, ``out``
    [dim, 64]. ``codes`` and ``out`` are addresses.
    """
    _spread_groups(codes, dim // _GROUP, out)


@njit(**INLINED)
def score_keys(q, dim, spread, scale, zero, room, scores):  # type: ignore[no-untyped-def]
    """Set ``scores`` [64] to the approximate products of a query q [dim] float32 with the 64 keys of a page; ``dim``
    fills whole vectors. ``spread`` are the codes of the keys, as ``spread_codes`` writes them. Each channel has a
    float16 ``scale`` and ``zero``. ``room`` is scratch memory of 5 * dim bytes. All arguments but ``dim`` are
    addresses.
    """
    step, base = _round_query(q, scale, zero, dim, room, room + 4 * dim)
    _sum_groups(spread, room + 4 * dim, dim // _GROUP, step, base, scores)


@njit(**INLINED)
def add_channel(q, codes, scale, zero, scores):  # type: ignore[no-untyped-def]
    """Add the products of one channel to ``scores`` [64]: the query's number q in that channel, times the channel of
    each of the 64 keys of a page. ``codes`` [16] are the packed codes of the keys in this channel. A code c stands for
    ``zero`` + c * ``scale``, which are given as the bits of float16.
    """
    for t in range(PAGE):
        code = (codes[t % STEP] >> (t // STEP * BITS)) & LEVELS
        scores[t] += q * (np.float32(code) * float_of_half(scale) + float_of_half(zero))
