"""Products with weights at 8 or 4 bits: the rows are rounded to int8, and bytes are multiplied by bytes.

A row is rounded in groups of 32 inputs, each with its own scale (as in llama.cpp). The sums of a group are exact
integers with any instruction, and an output is one chain of multiply-adds along the groups. So the result of a row
depends neither on other rows nor on the processor.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from localctx.kernels.llvm.integer_dot import DOT, SMALL, bytes_at, call, dot, four_everywhere
from localctx.kernels.llvm.integer_dot import SIGNED as SIGNED_CODES
from localctx.kernels.llvm.vector_math import (
    F32,
    I32,
    I64,
    INNER,
    LANES,
    LINE,
    NIBBLES,
    SIGNED,
    VECTOR,
    WORDS,
    address_of,
    call_intrinsic,
    copy_into,
    everywhere,
    fetch_at,
    greater,
    joined,
    nearest,
    step_of_codes,
)
from localctx.kernels.llvm.weight_groups import GROUP, RECORD, WIDTH

ROW_GROUP = GROUP + 16
"""Bytes of a group of a rounded row: int8 codes, the scale, scale * sum of codes (float32), the sum (int32)."""
_SCALE, _SCALED_SUM, _SUM = GROUP, GROUP + 4, GROUP + 8
FEW_ROWS = 2  # up to this many rows, one thread finishes before others have started
_AHEAD = 16384  # bytes of weights to prefetch


@intrinsic
def _round_group(typingctx, x, out):  # type: ignore[no-untyped-def]
    """Round the 32 float32 at the address ``x`` to int8, and write them with their scale to ``out``. The scale is NaN
    if a number is not finite.
    """

    def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
        x, out = args
        parts = [_load(b, b.add(x, I64(4 * LANES * i)), VECTOR) for i in range(GROUP // LANES)]
        magnitudes = [call_intrinsic(b, "fabs", part) for part in parts]
        top, wrong = magnitudes[0], b.fsub(parts[0], parts[0])  # infinity - infinity is NaN
        for part, magnitude in zip(parts[1:], magnitudes[1:], strict=True):
            top, wrong = greater(b, magnitude, top), b.fadd(wrong, b.fsub(part, part))
        most, wrong = joined(b, top, lambda x, y: greater(b, x, y)), joined(b, wrong, b.fadd)
        step, inverse = step_of_codes(b, most)
        scale = b.fadd(step, wrong)
        total, splat = WORDS([0] * LANES), everywhere(b, inverse, VECTOR)
        for i, part in enumerate(parts):
            codes = nearest(b, b.fmul(part, splat))
            total = b.add(total, codes)
            narrow = b.trunc(codes, ir.VectorType(ir.IntType(8), LANES))
            _store(b, narrow, b.add(out, I64(LANES * i)))
        whole = joined(b, total, b.add)
        _store(b, scale, b.add(out, I64(_SCALE)))
        _store(b, b.fmul(scale, b.sitofp(whole, F32)), b.add(out, I64(_SCALED_SUM)))
        _store(b, whole, b.add(out, I64(_SUM)))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


def _product_of(kind: int) -> Any:
    """Returns an intrinsic for weights of the number format ``kind``. It multiplies rounded rows by one group of a
    block of the weight, and adds the products to out [rows, 32].

    The arguments of the intrinsic are addresses and counts. Rows of ``out`` are ``step`` numbers apart.
    """

    @intrinsic
    def add_group(typingctx, record, x, rows, out, step):  # type: ignore[no-untyped-def]
        def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
            record, x, rows, out, step = args
            for line in range(0, RECORD[kind], LINE):
                fetch_at(b, b.add(record, I64(_AHEAD + line)))
            for first in range(0, WIDTH, DOT.lanes):
                _add_vector(b, kind, record, x, rows, out, step, first)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), codegen

    return add_group


def _add_vector(b: Any, kind: int, record: Any, x: Any, rows: Any, out: Any, step: Any, first: int) -> None:
    """Generate the code of ``add_group`` for one vector of outputs, which begins at output ``first``."""
    floats = ir.VectorType(F32, DOT.lanes)
    codes = _codes(b, kind, record, first)
    minima = _halves(b, record, RECORD[kind] - 2 * WIDTH + 2 * first)  # at 8 bits these are the scales
    scales = minima if kind == SIGNED else _halves(b, record, RECORD[kind] - 4 * WIDTH + 2 * first)
    with cgutils.for_range(b, rows, intp=I64) as loop:
        row = b.add(x, b.mul(loop.index, I64(ROW_GROUP)))
        at = b.add(out, b.mul(b.add(b.mul(loop.index, step), I64(first)), I64(4)))
        pairs = [(code, four_everywhere(b, DOT, b.add(row, I64(4 * i)))) for i, code in enumerate(codes)]
        sums = dot(b, DOT, SMALL if kind == NIBBLES else SIGNED_CODES, pairs, _start(b, kind, row))
        scale = everywhere(b, _load(b, b.add(row, I64(_SCALE)), F32), floats)
        name = f"llvm.fma.v{DOT.lanes}f32"
        total = call(b, name, floats, b.sitofp(sums, floats), b.fmul(scales, scale), _load(b, at, floats))
        if kind == NIBBLES:
            scaled = everywhere(b, _load(b, b.add(row, I64(_SCALED_SUM)), F32), floats)
            total = call(b, name, floats, minima, scaled, total)
        _store(b, total, at)


def _codes(b: Any, kind: int, record: Any, first: int) -> list[Any]:
    """Generate code that loads the codes for one vector of outputs. Returns a list of vectors: each has the codes of
    four inputs of the group.
    """
    count = GROUP // 4 if kind == SIGNED else GROUP // 8
    found = [bytes_at(b, DOT, b.add(record, I64(4 * (i * WIDTH + first)))) for i in range(count)]
    if kind == SIGNED:
        return found
    many = found[0].type
    low, four = many([15] * many.count), many([4] * many.count)
    return [part for packed in found for part in (b.and_(packed, low), b.lshr(packed, four))]


def _start(b: Any, kind: int, row: Any) -> Any:
    """Generate the number at which a row's sums start, which cancels the instruction's offset of signed codes. Returns
    None if there is no offset.
    """
    if kind == NIBBLES or not DOT.offset:
        return None
    total = b.mul(_load(b, b.add(row, I64(_SUM)), I32), I32(-DOT.offset))
    return everywhere(b, total, ir.VectorType(I32, DOT.lanes))


def _halves(b: Any, record: Any, at: int) -> Any:
    """Generate code that loads a vector of float16 as float32."""
    halves = _load(b, b.add(record, I64(at)), ir.VectorType(ir.HalfType(), DOT.lanes))
    return b.fpext(halves, ir.VectorType(F32, DOT.lanes))


def _load(b: Any, address: Any, kind: Any) -> Any:
    return b.load(b.inttoptr(address, kind.as_pointer()), align=1)


def _store(b: Any, value: Any, address: Any) -> None:
    b.store(value, b.inttoptr(address, value.type.as_pointer()), align=1)


_add_nibbles, _add_signed = _product_of(NIBBLES), _product_of(SIGNED)


@njit(parallel=True)
def rounded(x):  # type: ignore[no-untyped-def]
    """Returns the rows x [n, in] rounded to int8 in groups of 32 inputs. A group is stored as ROW_GROUP bytes, codes
    and scale: [groups, n, ROW_GROUP] uint8.
    """
    rows, inputs = x.shape
    out = np.empty(((inputs + GROUP - 1) // GROUP, rows, ROW_GROUP), np.uint8)
    if rows <= FEW_ROWS:
        for row in range(rows):
            _round_row(x[row], out, row)
    else:
        for row in prange(rows):
            _round_row(x[row], out, row)
    return out


@njit
def _round_row(x, out, row):  # type: ignore[no-untyped-def]
    source, inputs = address_of(x), len(x)
    for group in range(inputs // GROUP):
        _round_group(source + group * 4 * GROUP, address_of(out[group, row]))
    if inputs % GROUP:
        last = np.zeros(GROUP, np.float32)
        copy_into(last, x[inputs - inputs % GROUP :])
        _round_group(address_of(last), address_of(out[inputs // GROUP, row]))


@njit(**INNER)
def add_block(x, first, rows, kind, codes, out):  # type: ignore[no-untyped-def]
    """Multiply ``rows`` rows by one block (32 outputs) of a weight at 8 or 4 bits, and add the product to out [rows,
    32]. x [groups, n, ROW_GROUP] are rows that ``rounded`` has rounded; the rows from ``first`` on are multiplied.
    ``codes`` [groups, bytes] are the block's records, and ``kind`` is their number format.
    """
    target, step = address_of(out), out.strides[0] // 4
    record, row, group_bytes = address_of(codes), address_of(x) + first * ROW_GROUP, x.strides[0]
    for _ in range(len(codes)):
        if kind == NIBBLES:
            _add_nibbles(record, row, rows, target, step)
        else:
            _add_signed(record, row, rows, target, step)
        record += codes.shape[1]
        row += group_bytes
