"""Matrix products that a compiler does not vectorize by itself. Sums stay in registers, and codes are decoded in
registers.

Linear layers and attention use these products on the CPU. Each element of a result is one chain of multiply-adds along
the inputs, in order, so it does not depend on the other elements.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from localctx.kernels.llvm.processor import WIDEST
from localctx.kernels.llvm.vector_math import (
    BFLOAT,
    F32,
    FLOAT,
    HALF,
    I64,
    INLINED,
    INNER,
    LANES,
    PARTS,
    RECORD_KINDS,
    SIZES,
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


class Tile(NamedTuple):
    """The shape of the part of a matrix product whose sums stay in registers: ``rows`` rows of x, and ``vectors``
    vectors of ``lanes`` columns.
    """

    rows: int
    vectors: int
    lanes: int

    def columns(self, kind: int) -> int:
        """Returns how many columns of a tile's codes of this number format (``kind``) one step reads. If a byte packs
        several codes, returns the number of bytes instead.
        """
        return self.lanes * self.vectors // PARTS.get(kind, 1)


SMALL = [Tile(3, 4, 8), Tile(1, 4, 8)]
"""Tiles of 32 columns, tallest first. The sums take up to 12 of 16 vector registers."""
LARGE = [Tile(6, 4, 16), Tile(3, 4, 16), Tile(1, 4, 16)] if WIDEST == 16 else []
"""Tiles of 64 columns, for processors with 32 registers of 16 lanes."""
WEIGHTS = [*(Tile(rows, 2, 16) for rows in (12, 8, 6, 4, 3, 2)), SMALL[1]] if WIDEST == 16 else SMALL
"""Tiles for blocks of weights, which have 32 columns.

A few rows, of drafts or parallel sequences, fit one or two tiles, because each tile reads the weights and converts them
to float32.
"""
HEIGHT, _WIDTH = WEIGHTS[0].rows, WEIGHTS[0].columns(FLOAT)
"""Rows and columns of the largest tile for weights."""


def _product_of(kind: int, shape: Tile, transposed: bool = False) -> Any:
    """Returns an intrinsic that computes one tile of this ``shape``: it adds x times codes of the number format
    ``kind`` to out.

    Its arguments have the meaning of those of ``_in_tiles``. If ``transposed``, x is [inputs, rows] and contiguous, and
    out is set instead of added to.
    """
    parts, size = PARTS.get(kind, 1), SIZES.get(kind, 1)
    rows, vectors, lanes = shape
    vector = ir.VectorType(F32, lanes)

    @intrinsic
    def tile(typingctx, codes, step, ahead, x, x_step, inputs, out, out_step):  # type: ignore[no-untyped-def]
        def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
            codes, step, ahead, x, x_step, inputs, out, out_step = args
            kinds = ir.FunctionType(vector, [vector] * 3)
            fused = cgutils.get_or_insert_function(b.module, kinds, f"llvm.fma.v{lanes}f32")
            cells = [(r, v) for r in range(rows) for v in range(vectors)]
            sums = {cell: cgutils.alloca_once(b, vector) for cell in cells}
            xs = [b.add(x, I64(4 * r) if transposed else b.mul(x_step, I64(4 * r))) for r in range(rows)]
            runs = [b.mul(step, I64(4 * part)) for part in range(parts)]  # offsets of the parts in out
            outs = {
                (r, v): b.inttoptr(
                    b.add(
                        b.add(out, b.mul(out_step, I64(4 * r))), b.add(runs[v % parts], I64(4 * lanes * (v // parts)))
                    ),
                    vector.as_pointer(),
                )
                for r, v in cells
            }
            for cell in cells:
                b.store(vector([0.0] * lanes) if transposed else b.load(outs[cell], align=4), sums[cell])
            with cgutils.for_range(b, inputs, intp=I64) as loop:
                at = b.mul(loop.index, I64(4 * rows if transposed else 4))
                first = b.add(codes, b.mul(loop.index, step))
                fetch_at(b, b.add(first, ahead))

                def value(r):  # type: ignore[no-untyped-def]
                    return everywhere(b, b.load(b.inttoptr(b.add(xs[r], at), F32.as_pointer())), vector)

                def weight(v):  # type: ignore[no-untyped-def]
                    return widened(b, kind, b.add(first, I64(lanes * size * (v // parts))), v % parts, lanes)

                def add(r, v, x, y):  # type: ignore[no-untyped-def]
                    b.store(b.call(fused, [x, y, b.load(sums[r, v])]), sums[r, v])

                # The smaller side is loaded first: in the other order, which the compiler keeps, registers run out.
                if rows > vectors:
                    weights = [weight(v) for v in range(vectors)]
                    for r in range(rows):
                        x = value(r)
                        for v, y in enumerate(weights):
                            add(r, v, x, y)
                else:
                    values = [value(r) for r in range(rows)]
                    for v in range(vectors):
                        y = weight(v)
                        for r, x in enumerate(values):
                            add(r, v, x, y)
            for cell in cells:
                b.store(b.load(sums[cell]), outs[cell], align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8), codegen

    return tile


def _down(kind: int, shapes: Sequence[Tile]) -> Any:
    """Returns a function that computes the columns of one tile for the rows from ``row`` on. It uses each of ``shapes``
    for as many rows as possible; the last shape has one row.
    """
    tile, height = _product_of(kind, shapes[0]), shapes[0].rows
    smaller = _down(kind, shapes[1:]) if len(shapes) > 1 else None

    def down(codes, step, ahead, x, x_step, row, rows, inputs, out, out_step):  # type: ignore[no-untyped-def]
        while row + height <= rows:
            tile(codes, step, ahead, x + row * x_step * 4, x_step, inputs, out + row * out_step * 4, out_step)
            row += height
        smaller(codes, step, ahead, x, x_step, row, rows, inputs, out, out_step)

    def last(codes, step, ahead, x, x_step, row, rows, inputs, out, out_step):  # type: ignore[no-untyped-def]
        while row < rows:
            tile(codes, step, ahead, x + row * x_step * 4, x_step, inputs, out + row * out_step * 4, out_step)
            row += 1

    return njit(**INLINED)(down if smaller else last)


def _in_tiles(kind: int, shapes: Sequence[Tile]) -> Any:
    """Returns a function that adds x times codes to out, tile by tile from ``column`` on. That function returns the
    column after the last whole tile.

    ``codes``, ``x`` and ``out`` are addresses. The codes of the next input are ``step`` bytes further. The next rows of
    x and out are ``x_step`` and ``out_step`` numbers further. Data ``ahead`` bytes further is prefetched, because
    processors cannot predict the address of the next page. ``columns`` counts numbers, or bytes of packed codes.
    """
    down, width, size = _down(kind, shapes), shapes[0].columns(kind), SIZES.get(kind, 1)

    def tiled(codes, step, ahead, x, x_step, rows, inputs, out, out_step, column, columns):  # type: ignore[no-untyped-def]
        while column + width <= columns:
            down(codes + column * size, step, ahead, x, x_step, 0, rows, inputs, out + column * 4, out_step)
            column += width
        return column

    return njit(**INLINED)(tiled)


def _finished(kind: int) -> Any:
    """Returns a function like that of ``_in_tiles``, but for all columns up to the last whole vector. It uses large
    tiles first, then smaller ones.
    """
    tiles = [LARGE, SMALL, [Tile(1, PARTS.get(kind, 1), LANES)]]
    large, small, least = (_in_tiles(kind, shapes or SMALL) for shapes in tiles)

    def finished(codes, step, ahead, x, x_step, rows, inputs, out, out_step, columns):  # type: ignore[no-untyped-def]
        column = large(codes, step, ahead, x, x_step, rows, inputs, out, out_step, 0, columns)
        column = small(codes, step, ahead, x, x_step, rows, inputs, out, out_step, column, columns)
        least(codes, step, ahead, x, x_step, rows, inputs, out, out_step, column, columns)

    return njit(**INNER)(finished)


_floats, _bfloats, _halves = (_in_tiles(kind, WEIGHTS) for kind in (FLOAT, BFLOAT, HALF))


_floats_to_end, _bfloats_to_end, _bytes, _nibbles, _crumbs, _e4m3 = map(_finished, RECORD_KINDS.values())


@njit(**INNER)
def _finished_of_kind(kind, codes, step, ahead, x, x_step, rows, inputs, out, out_step, columns):  # type: ignore[no-untyped-def]
    """Run the function that ``_finished`` returned for the number format ``kind``, a key of RECORD_KINDS."""
    if kind == 32:
        _floats_to_end(codes, step, ahead, x, x_step, rows, inputs, out, out_step, columns)
    elif kind == 16:
        _bfloats_to_end(codes, step, ahead, x, x_step, rows, inputs, out, out_step, columns)
    elif kind == 8:
        _bytes(codes, step, ahead, x, x_step, rows, inputs, out, out_step, columns)
    elif kind == 4:
        _nibbles(codes, step, ahead, x, x_step, rows, inputs, out, out_step, columns)
    elif kind == 2:
        _crumbs(codes, step, ahead, x, x_step, rows, inputs, out, out_step, columns)
    else:
        _e4m3(codes, step, ahead, x, x_step, rows, inputs, out, out_step, columns)


_tile = _product_of(FLOAT, WEIGHTS[0], transposed=True)


@njit(**INNER)
def tiles_product(weights, x, tiles, inputs, out, out_step):  # type: ignore[no-untyped-def]
    """Multiply ``tiles`` tiles of rows by float32 weights [inputs, 32], and set out [tiles * HEIGHT, 32] to the result.
    x [tiles, inputs, HEIGHT] has the rows of each tile transposed, so that x is read in order. ``weights``, ``x`` and
    ``out`` are addresses; rows of out are ``out_step`` numbers apart.
    """
    for i in range(tiles):
        rows, target = x + i * inputs * HEIGHT * 4, out + i * HEIGHT * out_step * 4
        _tile(weights, 4 * _WIDTH, 0, rows, 0, inputs, target, out_step)


@njit(**INNER)
def block_product(kind, codes, step, ahead, x, x_step, rows, inputs, out, out_step, columns):  # type: ignore[no-untyped-def]
    """Add x [rows, inputs] times a block [inputs, columns] of float weights to out [rows, columns]. ``kind`` is the
    number format of the weights: float32, bf16 or float16. The columns fill whole tiles.

    ``codes``, ``x`` and ``out`` are addresses. The weights of the next input are ``step`` bytes further. The next row
    of x is ``x_step`` numbers further, and the next row of out ``out_step`` numbers. Data ``ahead`` bytes further are
    prefetched (0: none).
    """
    if kind == FLOAT:
        _floats(codes, step, ahead, x, x_step, rows, inputs, out, out_step, 0, columns)
    elif kind == BFLOAT:
        _bfloats(codes, step, ahead, x, x_step, rows, inputs, out, out_step, 0, columns)
    else:
        _halves(codes, step, ahead, x, x_step, rows, inputs, out, out_step, 0, columns)


@njit(**INNER)
def product(kind, codes, columns, ahead, x, out):  # type: ignore[no-untyped-def]
    """Add x [rows, inputs] times a block [inputs, columns] of a page record to out [rows, columns]. The block is at the
    address ``codes``, and ``kind`` is its number format, a key of RECORD_KINDS. Codes below 8 bits are packed as by
    ``quant.pack``. Data ``ahead`` bytes further are prefetched, because processors cannot predict the address of the
    next page.
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
    """Compute ``product`` for the columns at the end of each run of the block that do not fill a vector."""
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
