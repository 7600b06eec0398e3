"""Vector code that a compiler does not find by itself: products whose sums stay in registers, exp, float16.

``product`` is what linear layers and attention are made of on a processor. An element of its result is one chain of
multiply-adds along the inputs, in order: it does not depend on what else is computed.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 8  # of a vector; a processor with narrower ones uses several
ROWS, VECTORS = 3, 4  # of a large tile: 12 of 16 vector registers are its sums
FLOAT, BFLOAT, HALF, SIGNED, BYTE, NIBBLES, CRUMBS = range(7)
"""How numbers are stored: three kinds of floats, int8, uint8, and codes of 4 or 2 bits, packed as by ``quant.pack``."""
_SIZES = {FLOAT: 4, BFLOAT: 2, HALF: 2}  # bytes, where it is not one
_PARTS = {NIBBLES: 2, CRUMBS: 4}  # numbers in a byte, where it is not one

_F32, _I32, _I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR, _WORDS = ir.VectorType(_F32, LANES), ir.VectorType(_I32, LANES)
_STORED = {FLOAT: _F32, BFLOAT: ir.IntType(16), HALF: ir.HalfType()}


@intrinsic
def as_pointer(typingctx, address):  # type: ignore[no-untyped-def]
    """An address as a pointer, of which ``carray`` makes an array."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), codegen


@intrinsic
def float_of_bits(typingctx, bits):  # type: ignore[no-untyped-def]
    """The float32 that 32 bits mean."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), codegen


@intrinsic
def widen(typingctx, halves, out, count):  # type: ignore[no-untyped-def]
    """``count`` float16 at an address to float32 at another, whole vectors of them."""

    def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
        halves, out, count = args
        with cgutils.for_range(b, b.udiv(count, _I64(LANES)), intp=_I64) as loop:
            wide = _widened(b, HALF, b.add(halves, b.mul(loop.index, _I64(2 * LANES))))
            b.store(wide, _vector(b, out, loop.index), align=4)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen


@intrinsic
def exp_below(typingctx, scores, top, count):  # type: ignore[no-untyped-def]
    """``count`` float32 at an address, whole vectors, to exp(score - top), where no score is above ``top``; their sum.

    To 2 ulp, by Cephes' expf.
    """

    def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
        scores, top, count = args
        top, total = _everywhere(b, top, _VECTOR), cgutils.alloca_once_value(b, _VECTOR([0.0] * LANES))
        with cgutils.for_range(b, b.udiv(count, _I64(LANES)), intp=_I64) as loop:
            at = _vector(b, scores, loop.index)
            found = _exp(b, b.fsub(b.load(at, align=4), top))
            b.store(found, at, align=4)
            b.store(b.fadd(b.load(total), found), total)
        lanes = [b.extract_element(b.load(total), _I32(i)) for i in range(LANES)]
        while len(lanes) > 1:
            lanes = [b.fadd(*pair) for pair in zip(lanes[::2], lanes[1::2], strict=True)]
        return lanes[0]

    return types.float32(types.int64, types.float32, types.int64), codegen


def _exp(b: Any, x: Any) -> Any:
    def same(number: float) -> Any:
        return _VECTOR([number] * LANES)

    def of(name: str, *args: Any) -> Any:
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * len(args))
        return b.call(cgutils.get_or_insert_function(b.module, kind, f"llvm.{name}.v{LANES}f32"), args)

    x = of("maxnum", x, same(-87.0))
    n = of("floor", of("fma", x, same(1.44269504), same(0.5)))
    x = of("fma", n, same(-0.693359375), x)
    x = of("fma", n, same(2.12194440e-4), x)
    p = same(1.9875691500e-4)
    for factor in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = of("fma", p, x, same(factor))
    p = of("fma", p, b.fmul(x, x), b.fadd(x, same(1.0)))
    power = b.shl(b.add(b.fptosi(n, _WORDS), _WORDS([127] * LANES)), _WORDS([23] * LANES))
    return b.fmul(p, b.bitcast(power, _VECTOR))


def _vector(b: Any, base: Any, index: Any) -> Any:
    """The ``index``-th vector of float32 from the address ``base`` on."""
    return b.inttoptr(b.add(base, b.mul(index, _I64(4 * LANES))), _VECTOR.as_pointer())


def _fetch(b: Any, address: Any) -> None:
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
    fetch = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0")
    b.call(fetch, [b.inttoptr(address, byte), _I32(0), _I32(2), _I32(1)])  # to read, into the second cache, data


def _everywhere(b: Any, value: Any, vector: ir.VectorType) -> Any:
    one = b.insert_element(vector(ir.Undefined), value, _I32(0))
    return b.shuffle_vector(one, one, _WORDS([0] * LANES))


def _widened(b: Any, kind: int, where: Any, part: int = 0) -> Any:
    """Eight numbers stored at the byte ``where``, as float32; where bytes hold several, the ``part``-th of each."""
    stored = _STORED.get(kind, ir.IntType(8))
    found = b.load(b.inttoptr(where, ir.VectorType(stored, LANES).as_pointer()), align=1)
    if kind == FLOAT:
        return found
    if kind == HALF:
        return b.fpext(found, _VECTOR)
    if kind == SIGNED:
        return b.sitofp(b.sext(found, _WORDS), _VECTOR)
    words = b.zext(found, _WORDS)
    if kind == BFLOAT:
        return b.bitcast(b.shl(words, _WORDS([16] * LANES)), _VECTOR)
    if kind in _PARTS:
        bits = 8 // _PARTS[kind]
        words = b.and_(b.lshr(words, _WORDS([part * bits] * LANES)), _WORDS([(1 << bits) - 1] * LANES))
    return b.sitofp(words, _VECTOR)  # a code is small: the sign is no matter, and the conversion is one instruction


def _tile(kind: int, rows: int, vectors: int) -> Any:
    """A product of ``rows`` rows x by ``8 * vectors`` columns: see ``_tiled`` for its arguments."""
    parts, size = _PARTS.get(kind, 1), _SIZES.get(kind, 1)

    @intrinsic
    def tile(typingctx, codes, step, ahead, x, x_step, inputs, out, out_step):  # type: ignore[no-untyped-def]
        def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
            codes, step, ahead, x, x_step, inputs, out, out_step = args
            fused = cgutils.get_or_insert_function(b.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), "llvm.fma.v8f32")
            cells = [(r, v) for r in range(rows) for v in range(vectors)]
            sums = {cell: cgutils.alloca_once(b, _VECTOR) for cell in cells}
            xs = [b.add(x, b.mul(x_step, _I64(4 * r))) for r in range(rows)]
            runs = [b.mul(step, _I64(4 * part)) for part in range(parts)]  # where the numbers of a part are, in out
            outs = {
                (r, v): b.inttoptr(
                    b.add(
                        b.add(out, b.mul(out_step, _I64(4 * r))), b.add(runs[v % parts], _I64(4 * LANES * (v // parts)))
                    ),
                    _VECTOR.as_pointer(),
                )
                for r, v in cells
            }
            for cell in cells:
                b.store(b.load(outs[cell], align=4), sums[cell])
            with cgutils.for_range(b, inputs, intp=_I64) as loop:
                at = b.mul(loop.index, _I64(4))
                values = [_everywhere(b, b.load(b.inttoptr(b.add(row, at), _F32.as_pointer())), _VECTOR) for row in xs]
                first = b.add(codes, b.mul(loop.index, step))
                _fetch(b, b.add(first, ahead))
                for v in range(vectors):
                    weights = _widened(b, kind, b.add(first, _I64(LANES * size * (v // parts))), v % parts)
                    for r in range(rows):
                        b.store(b.call(fused, [values[r], weights, b.load(sums[r, v])]), sums[r, v])
            for cell in cells:
                b.store(b.load(sums[cell]), outs[cell], align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8), codegen

    return tile


def _tiled(kind: int) -> Any:
    """out += x by codes, in large tiles; all by address. Codes of the next input are ``step`` bytes on, rows ``x_step``
    and ``out_step`` numbers. What lies ``ahead`` bytes on is fetched: a processor does not foresee where the next page
    is. Returns how many of the ``columns`` (numbers, or bytes that hold several) it has done.
    """
    parts, size = _PARTS.get(kind, 1), _SIZES.get(kind, 1)
    large, wide, most = _tile(kind, ROWS, VECTORS), _tile(kind, 1, VECTORS), LANES * VECTORS // parts

    def tiled(codes, step, ahead, x, x_step, rows, inputs, out, out_step, columns):  # type: ignore[no-untyped-def]
        column = 0
        while column + most <= columns:
            at, there, row = codes + column * size, out + column * 4, 0
            while row < rows:
                here, to = x + row * x_step * 4, there + row * out_step * 4
                if row + ROWS <= rows:
                    large(at, step, ahead, here, x_step, inputs, to, out_step)
                    row += ROWS
                else:
                    wide(at, step, ahead, here, x_step, inputs, to, out_step)
                    row += 1
            column += most
        return column

    return njit(tiled)


def _finished(kind: int) -> Any:
    """As ``_tiled``, and then in small tiles what is left, to the last whole vector."""
    tiled, small, size = _tiled(kind), _tile(kind, 1, _PARTS.get(kind, 1)), _SIZES.get(kind, 1)

    def finished(codes, step, ahead, x, x_step, rows, inputs, out, out_step, columns):  # type: ignore[no-untyped-def]
        column = tiled(codes, step, ahead, x, x_step, rows, inputs, out, out_step, columns)
        while column + LANES <= columns:
            for row in range(rows):
                here, to = x + row * x_step * 4, out + (row * out_step + column) * 4
                small(codes + column * size, step, ahead, here, x_step, inputs, to, out_step)
            column += LANES

    return njit(finished)


_floats, _bfloats, _halves, _signed = (_tiled(kind) for kind in (FLOAT, BFLOAT, HALF, SIGNED))
_float, _bfloat, _byte = (_finished(kind) for kind in (FLOAT, BFLOAT, BYTE))
_nibbles, crumbs = (_finished(kind) for kind in (NIBBLES, CRUMBS))


@njit
def block_product(kind, codes, step, x, x_step, rows, inputs, out, out_step, columns):  # type: ignore[no-untyped-def]
    """out += x by a block of weights, whose columns fill large tiles; all by address, see ``_tiled``."""
    if kind == FLOAT:
        _floats(codes, step, 0, x, x_step, rows, inputs, out, out_step, columns)
    elif kind == BFLOAT:
        _bfloats(codes, step, 0, x, x_step, rows, inputs, out, out_step, columns)
    elif kind == HALF:
        _halves(codes, step, 0, x, x_step, rows, inputs, out, out_step, columns)
    else:
        _signed(codes, step, 0, x, x_step, rows, inputs, out, out_step, columns)


@njit
def product(bits, codes, columns, ahead, x, out):  # type: ignore[no-untyped-def]
    """out [rows, columns] += x [rows, inputs] by a record's block [inputs, columns] of ``bits`` at the address
    ``codes``: 32 and 16 (bfloat16) are numbers, fewer are codes, packed as by ``quant.pack``. ``ahead`` as in
    ``_tiled``.
    """
    rows, inputs = x.shape
    step = columns * bits // 8
    here, x_step, there, out_step = x.ctypes.data, x.shape[1], out.ctypes.data, out.shape[1]
    if bits == 32:
        _float(codes, step, ahead, here, x_step, rows, inputs, there, out_step, columns)
    elif bits == 16:
        _bfloat(codes, step, ahead, here, x_step, rows, inputs, there, out_step, columns)
    elif bits == 8:
        _byte(codes, step, ahead, here, x_step, rows, inputs, there, out_step, columns)
    elif bits == 4:
        _nibbles(codes, step, ahead, here, x_step, rows, inputs, there, out_step, step)
    else:
        crumbs(codes, step, ahead, here, x_step, rows, inputs, there, out_step, step)
    run = step if bits < 8 else columns
    if run % LANES > 0:
        _rest(bits, codes, run, columns, x, out)


@njit
def _rest(bits, codes, run, columns, x, out):  # type: ignore[no-untyped-def]
    """The columns at the end of each of the block's runs, fewer than a vector."""
    inputs = x.shape[1]
    narrow = carray(as_pointer(codes), (inputs * columns * bits // 8,), np.uint8)
    for k in range(inputs):
        for column in range(columns):
            if column % run < run - run % LANES:
                continue
            if bits == 32:
                value = carray(as_pointer(codes), (inputs * columns,), np.float32)[k * columns + column]
            elif bits == 16:
                half = carray(as_pointer(codes), (inputs * columns,), np.uint16)[k * columns + column]
                value = float_of_bits(np.int32(half) << np.int32(16))
            else:
                shift, mask = np.uint8(column // run * bits), np.uint8((1 << bits) - 1)
                value = np.float32((narrow[k * run + column % run] >> shift) & mask)
            for row in range(len(x)):
                out[row, column] += x[row, k] * value
