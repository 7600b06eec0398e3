"""Matrix products that a compiler does not vectorize by itself: sums stay in registers, codes are decoded in them.

Linear layers and attention use them on a processor. An element of its result is one chain of
multiply-adds along the inputs, in order: it does not depend on what else is computed.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from localctx.kernels.vector_math import (
    BFLOAT,
    CRUMBS,
    F32,
    FLOAT,
    HALF,
    I64,
    INNER,
    LANES,
    PARTS,
    RECORD_KINDS,
    SIGNED,
    SIZES,
    VECTOR,
    address_of,
    byte_at,
    everywhere,
    fetch_at,
    float_at,
    float_of_bits,
    value_of_code,
    widened,
    word_at,
)

ROWS, VECTORS = 3, 4  # of a large tile: 12 of 16 vector registers are its sums
AHEAD = 16384  # bytes of weights that are prefetched: some processors' own prefetchers stop at the end of every page


def _tile(kind: int, rows: int, vectors: int) -> Any:
    """A product of ``rows`` rows x by ``8 * vectors`` columns: see ``_tiled`` for its arguments."""
    parts, size = PARTS.get(kind, 1), SIZES.get(kind, 1)

    @intrinsic
    def tile(typingctx, codes, step, ahead, x, x_step, inputs, out, out_step):  # type: ignore[no-untyped-def]
        def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
            codes, step, ahead, x, x_step, inputs, out, out_step = args
            fused = cgutils.get_or_insert_function(b.module, ir.FunctionType(VECTOR, [VECTOR] * 3), "llvm.fma.v8f32")
            cells = [(r, v) for r in range(rows) for v in range(vectors)]
            sums = {cell: cgutils.alloca_once(b, VECTOR) for cell in cells}
            xs = [b.add(x, b.mul(x_step, I64(4 * r))) for r in range(rows)]
            runs = [b.mul(step, I64(4 * part)) for part in range(parts)]  # where the numbers of a part are, in out
            outs = {
                (r, v): b.inttoptr(
                    b.add(
                        b.add(out, b.mul(out_step, I64(4 * r))), b.add(runs[v % parts], I64(4 * LANES * (v // parts)))
                    ),
                    VECTOR.as_pointer(),
                )
                for r, v in cells
            }
            for cell in cells:
                b.store(b.load(outs[cell], align=4), sums[cell])
            with cgutils.for_range(b, inputs, intp=I64) as loop:
                at = b.mul(loop.index, I64(4))
                values = [everywhere(b, b.load(b.inttoptr(b.add(row, at), F32.as_pointer())), VECTOR) for row in xs]
                first = b.add(codes, b.mul(loop.index, step))
                fetch_at(b, b.add(first, ahead))
                for v in range(vectors):
                    weights = widened(b, kind, b.add(first, I64(LANES * size * (v // parts))), v % parts)
                    for r in range(rows):
                        b.store(b.call(fused, [values[r], weights, b.load(sums[r, v])]), sums[r, v])
            for cell in cells:
                b.store(b.load(sums[cell]), outs[cell], align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8), codegen

    return tile


def _tiled(kind: int) -> Any:
    """out += x by codes, in large tiles; all arguments are addresses. Codes of the next input are ``step`` bytes on,
    rows ``x_step`` and ``out_step`` numbers. What is ``ahead`` bytes on is prefetched: processors cannot predict where
    the next page is. Returns how many of the ``columns`` (numbers, or bytes that hold several) are done.
    """
    parts, size = PARTS.get(kind, 1), SIZES.get(kind, 1)
    large, wide, width = _tile(kind, ROWS, VECTORS), _tile(kind, 1, VECTORS), LANES * VECTORS // parts

    def tiled(codes, step, ahead, x, x_step, rows, inputs, out, out_step, columns):  # type: ignore[no-untyped-def]
        column = 0
        while column + width <= columns:
            at, target, row = codes + column * size, out + column * 4, 0
            while row < rows:
                source, to = x + row * x_step * 4, target + row * out_step * 4
                if row + ROWS <= rows:
                    large(at, step, ahead, source, x_step, inputs, to, out_step)
                    row += ROWS
                else:
                    wide(at, step, ahead, source, x_step, inputs, to, out_step)
                    row += 1
            column += width
        return column

    return njit(**INNER)(tiled)


def _finished(kind: int) -> Any:
    """As ``_tiled``, and then the remaining columns in small tiles, to the last whole vector."""
    tiled, small, size = _tiled(kind), _tile(kind, 1, PARTS.get(kind, 1)), SIZES.get(kind, 1)

    def finished(codes, step, ahead, x, x_step, rows, inputs, out, out_step, columns):  # type: ignore[no-untyped-def]
        column = tiled(codes, step, ahead, x, x_step, rows, inputs, out, out_step, columns)
        while column + LANES <= columns:
            for row in range(rows):
                source, to = x + row * x_step * 4, out + (row * out_step + column) * 4
                small(codes + column * size, step, ahead, source, x_step, inputs, to, out_step)
            column += LANES

    return njit(**INNER)(finished)


_floats, _bfloats, _halves, _signed = (_tiled(kind) for kind in (FLOAT, BFLOAT, HALF, SIGNED))
crumbs = _finished(CRUMBS)


def _of_kind(kinds: tuple[int, ...]) -> Any:
    """A function that takes a number kind, one of ``kinds``, and then the arguments of ``_finished``."""
    first, finished = kinds[0], _finished(RECORD_KINDS[kinds[0]])
    others = _of_kind(kinds[1:]) if len(kinds) > 1 else None

    def run(kind, codes, step, ahead, x, x_step, rows, inputs, out, out_step, columns):  # type: ignore[no-untyped-def]
        if kind == first:
            finished(codes, step, ahead, x, x_step, rows, inputs, out, out_step, columns)
        else:
            others(kind, codes, step, ahead, x, x_step, rows, inputs, out, out_step, columns)

    def run_last(kind, codes, step, ahead, x, x_step, rows, inputs, out, out_step, columns):  # type: ignore[no-untyped-def]
        finished(codes, step, ahead, x, x_step, rows, inputs, out, out_step, columns)

    return njit(**INNER)(run if others else run_last)


_finished_of_kind = _of_kind(tuple(RECORD_KINDS))


@njit(**INNER)
def block_product(kind, codes, step, x, x_step, rows, inputs, out, out_step, columns):  # type: ignore[no-untyped-def]
    """out += x by a block of weights, whose columns fill large tiles; all by address, see ``_tiled``."""
    if kind == FLOAT:
        _floats(codes, step, AHEAD, x, x_step, rows, inputs, out, out_step, columns)
    elif kind == BFLOAT:
        _bfloats(codes, step, AHEAD, x, x_step, rows, inputs, out, out_step, columns)
    elif kind == HALF:
        _halves(codes, step, AHEAD, x, x_step, rows, inputs, out, out_step, columns)
    else:
        _signed(codes, step, AHEAD, x, x_step, rows, inputs, out, out_step, columns)


@njit(**INNER)
def product(kind, codes, columns, ahead, x, out):  # type: ignore[no-untyped-def]
    """out [rows, columns] += x [rows, inputs] by a record's block [inputs, columns] at the address ``codes``, of the
    number kind ``kind`` (``RECORD_KINDS``); codes of fewer than 8 bits are packed as by ``quant.pack``. ``ahead`` as in
    ``_tiled``.
    """
    rows, inputs = x.shape
    bits = kind & 255
    step = columns * bits // 8
    run = step if bits < 8 else columns
    source, target = address_of(x), address_of(out)
    _finished_of_kind(kind, codes, step, ahead, source, x.shape[1], rows, inputs, target, out.shape[1], run)
    if run % LANES > 0:
        _rest(kind, codes, run, columns, x, out)


@njit(**INNER)
def _rest(kind, codes, run, columns, x, out):  # type: ignore[no-untyped-def]
    """The columns at the end of each of the block's runs, fewer than a vector."""
    bits = kind & 255
    inputs, width = x.shape[1], columns * bits // 8
    for k in range(inputs):
        for column in range(columns):
            if column % run < run - run % LANES:
                continue
            at = codes + k * width
            if bits == 32:
                value = float_at(at + column * 4)
            elif bits == 16:
                value = float_of_bits(np.int32(word_at(at + column * 2)) << np.int32(16))
            else:
                shift, mask = np.uint8(column // run * bits), np.uint8((1 << bits) - 1)
                value = value_of_code(kind, (byte_at(at + column % run) >> shift) & mask)
            for row in range(len(x)):
                out[row, column] += x[row, k] * value
