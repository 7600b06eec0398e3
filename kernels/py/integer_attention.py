"""Products of a few rows of numbers by the bytes of a page, in integers: queries by keys, weights by values.

The scales of a page are multiplied into the row, which then becomes integers of 15 bits, relative to its greatest
number; codes are integers already. That rounds by 3e-5 of the greatest number at most. The idea is that of
SageAttention (arXiv:2410.02367), with twice its bits. Sums of integers are exact: all processors get the same bits, and
a row's result does not depend on the rows beside it.

Codes lie in rows of neighbours that are summed apart, but instructions sum neighbours: rows are interleaved first. AVX2
multiplies 16 bits, two rows at a time. VNNI and NEON multiply bytes, four rows at a time, and the row's integers as
128 * high + low.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from localctx.kernels.integer_dot import I8, I16
from localctx.kernels.processor import FEATURES, WIDEST
from localctx.kernels.vector_math import (
    F32,
    HALF,
    I32,
    I64,
    INNER,
    LANES,
    VECTOR,
    WORDS,
    address_of,
    everywhere,
    fetch_at,
    nearest,
    widened,
)

GREATEST = 127 * 128 + 63  # of a row's integers: 128 * high + low, where high is up to 127 and low is -64 to 63
MOST_INPUTS = 512  # whose products by codes up to 255 an int32 can sum
MIDDLE = 128  # of the codes
COLUMNS = 32  # a block has a multiple of them
_LEAST = 1e-30  # a row of smaller numbers is taken for zeros, so that nothing is divided by zero


class IntegerWay(NamedTuple):
    """How integers are multiplied: ``pmaddwd`` (AVX2), ``vpdpbusd`` (AVX-512 VNNI), ``sdot`` or ``usdot`` (NEON), or by
    ``plain`` code; in vectors of so many int32 ``lanes``.
    """

    name: str
    lanes: int

    @property
    def columns(self) -> int:
        """The columns of a tile: the bytes of a vector."""
        return 4 * self.lanes

    @property
    def faster(self) -> bool:
        """Whether it is faster than products of float32."""
        return self.name != "plain"

    @property
    def by_bytes(self) -> bool:
        """Whether four rows of bytes are interleaved, not two of 16 bits."""
        return self.name not in ("pmaddwd", "plain")


def way_of(features: str, widest: int) -> IntegerWay:
    """Returns the way for a processor with LLVM's ``features`` (``+avx2,-sse4a``) and vectors of ``widest`` float32."""
    there = set(features.split(","))
    if {"+avx512vnni", "+avx512vl"} <= there:  # AVX-VNNI alone has too few registers for the sums
        return IntegerWay("vpdpbusd", widest)
    if "+avx2" in there:
        return IntegerWay("pmaddwd", 8)
    if "+i8mm" in there:
        return IntegerWay("usdot", 4)
    return IntegerWay("sdot", 4) if "+dotprod" in there else IntegerWay("plain", 8)


WAY = way_of(FEATURES, WIDEST)
ALLOWED = False  # a layer is no faster by it, neither on AVX2 nor with VNNI (its divergence is 0.00001)
USED = ALLOWED and WAY.faster
"""Whether decoding multiplies bytes by integers."""


class Block(NamedTuple):
    """The arguments of a product, as values of LLVM. ``x`` [rows, inputs] float32, whose rows are ``x_step`` numbers
    apart; ``scales`` and ``zeros`` [inputs] float16 and ``codes`` [inputs, columns] uint8, of which those of the next
    page are ``ahead`` bytes on; ``room`` for [rows, inputs] numbers; ``out`` [rows, columns] float32.
    """

    x: Any
    x_step: Any
    inputs: Any
    scales: Any
    zeros: Any
    codes: Any
    ahead: Any
    room: Any
    out: Any
    out_step: Any
    columns: Any


class IntegerRow(NamedTuple):
    """A row as integers that lie ``at`` an address: its numbers are ``unit`` times these, ``base`` is its product by
    what the middle code means, ``total`` the integers' sum. All are values of LLVM.
    """

    at: Any
    unit: Any
    base: Any
    total: Any


Sums = dict[tuple[int, int, int], Any]
"""Where sums are, by row, vector, and high bytes or low ones."""


def emit_product(b: Any, way: IntegerWay, rows: int, block: Block) -> None:
    """Generates out += x by (codes * scales + zeros), for so many rows."""
    made = _emit_rows(b, way, rows, block)
    first = I64(0)
    for some in (way, IntegerWay(way.name, 8)) if way.lanes > 8 else (way,):
        width = I64(some.columns)
        count = b.udiv(b.sub(block.columns, first), width)
        with cgutils.for_range(b, count, intp=I64) as loop:
            for half in range(2):
                _emit_tile(b, some, made, block, b.add(first, b.mul(loop.index, width)), half)
        first = b.add(first, b.mul(count, width))


# A row as integers


def _emit_rows(b: Any, way: IntegerWay, rows: int, block: Block) -> list[IntegerRow]:
    """Generates the integers of all rows, each where its scaled numbers were before."""
    places = [_apart(b, block.room, block.inputs, row) for row in range(rows)]
    tops, bases = _emit_scaled(b, rows, block, places)
    inverses = [b.select(b.fcmp_ordered(">", t, F32(_LEAST)), b.fdiv(F32(GREATEST), t), F32(0)) for t in tops]
    totals = [cgutils.alloca_once(b, WORDS) for _ in places]
    for total in totals:
        b.store(_same(WORDS, 0), total)
    with _each_vector(b, block) as i:
        for place, inverse, total in zip(places, inverses, totals, strict=True):
            number = b.load(_vector_at(b, place, b.mul(i, I64(4 * LANES)), VECTOR), align=4)
            integers = nearest(b, b.fmul(number, everywhere(b, inverse, VECTOR)))
            b.store(b.add(b.load(total), integers), total)
            stored = _high_and_low(b, integers) if way.by_bytes else b.trunc(integers, ir.VectorType(I16, LANES))
            b.store(stored, _vector_at(b, place, b.mul(i, I64(2 * LANES)), stored.type), align=2)
    sums = [_joined(b, b.load(total), b.add) for total in totals]
    units = [b.fmul(top, F32(1 / GREATEST)) for top in tops]
    return [IntegerRow(*row) for row in zip(places, units, bases, sums, strict=True)]


def _emit_scaled(b: Any, rows: int, block: Block, places: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Generates the rows times the scales, at ``places``; returns their greatest numbers, without sign, and the rows'
    products by what the middle code means. Integers multiply only what codes differ from it: they round less.
    """
    tops, bases = ([cgutils.alloca_once(b, VECTOR) for _ in range(rows)] for _ in range(2))
    for variable in (*tops, *bases):
        b.store(_same(VECTOR, 0.0), variable)
    with _each_vector(b, block) as i:
        scale, zero = (widened(b, HALF, b.add(at, b.mul(i, I64(2 * LANES)))) for at in (block.scales, block.zeros))
        middle = _call(b, f"llvm.fma.v{LANES}f32", VECTOR, scale, _same(VECTOR, float(MIDDLE)), zero)
        for row, (place, top, base) in enumerate(zip(places, tops, bases, strict=True)):
            at = b.mul(i, I64(4 * LANES))
            x = b.load(_vector_at(b, _apart(b, block.x, block.x_step, row), at, VECTOR), align=4)
            scaled = b.fmul(x, scale)
            b.store(scaled, _vector_at(b, place, at, VECTOR), align=4)
            b.store(_greater(b, _call(b, f"llvm.fabs.v{LANES}f32", VECTOR, scaled), b.load(top)), top)
            b.store(_call(b, f"llvm.fma.v{LANES}f32", VECTOR, x, middle, b.load(base)), base)
    return [_joined(b, b.load(v), partial(_greater, b)) for v in tops], [_joined(b, b.load(v), b.fadd) for v in bases]


def _high_and_low(b: Any, integers: Any) -> Any:
    """Generates the bytes of integers = 128 * high + low: four high ones, then their low ones, and so on."""
    high = b.ashr(b.add(integers, _same(WORDS, 64)), _same(WORDS, 7))
    low = b.sub(integers, b.shl(high, _same(WORDS, 7)))
    order = [part * LANES + four * 4 + i for four in range(LANES // 4) for part in range(2) for i in range(4)]
    high, low = (b.trunc(x, ir.VectorType(I8, LANES)) for x in (high, low))
    return _shuffle(b, high, low, order)


# A tile: the rows by as many columns as a vector has bytes, of which a pass takes half: each lower or upper 64 bits


def _emit_tile(b: Any, way: IntegerWay, rows: Sequence[IntegerRow], block: Block, column: Any, half: int) -> None:
    words = ir.VectorType(I32, way.lanes)
    cells = [(row, v, level) for row in range(len(rows)) for v in range(2) for level in range(1 + way.by_bytes)]
    sums = {cell: cgutils.alloca_once(b, words) for cell in cells}
    for variable in sums.values():
        b.store(_same(words, 0), variable)
    add = _add_bytes if way.by_bytes else _add_shorts
    with cgutils.for_range(b, b.udiv(block.inputs, I64(4)), intp=I64) as loop:
        codes = [_codes_at(b, way, block, column, b.add(b.mul(loop.index, I64(4)), I64(i)), half) for i in range(4)]
        xs = [b.add(row.at, b.mul(loop.index, I64(8))) for row in rows]
        add(b, way, half, codes, xs, sums)
    for r, row in enumerate(rows):
        found = [b.load(sums[r, v, 0]) for v in range(2)]
        if way.by_bytes:
            found = [b.add(b.shl(x, _same(words, 7)), b.load(sums[r, v, 1])) for v, x in enumerate(found)]
        if way.name != "sdot":
            more = everywhere(b, b.mul(row.total, I32(MIDDLE)), words)
            found = [b.sub(x, more) for x in found]
        at = b.add(_apart(b, block.out, block.out_step, r), b.mul(b.add(column, I64(8 * half)), I64(4)))
        _add_numbers(b, way, found, row, at)


def _codes_at(b: Any, way: IntegerWay, block: Block, column: Any, i: Any, half: int) -> Any:
    """Generates code that loads the codes of one input, and the first time prefetches those of the next page."""
    at = b.add(b.add(block.codes, b.mul(i, block.columns)), column)
    if half == 0:
        fetch_at(b, b.add(at, block.ahead))
    return b.load(b.inttoptr(at, _bytes(way).as_pointer()), align=1)


def _add_shorts(
    b: Any, way: IntegerWay, half: int, codes: Sequence[Any], xs: Sequence[Any], sums: dict[Any, Any]
) -> None:
    """Generates the products by four inputs, two at a time: ``sums`` += those."""
    words, none = ir.VectorType(I32, way.lanes), _same(_bytes(way), 0)
    for pair in range(2):
        both = _interleave(b, way, codes[2 * pair], codes[2 * pair + 1], half)
        wide = [b.bitcast(_interleave(b, way, both, none, v), ir.VectorType(I16, 2 * way.lanes)) for v in range(2)]
        for r, at in enumerate(xs):
            x = b.bitcast(_word_everywhere(b, way, b.add(at, I64(4 * pair))), wide[0].type)
            for v, some in enumerate(wide):
                b.store(b.add(b.load(sums[r, v, 0]), _multiplied(b, way, some, x, words)), sums[r, v, 0])


def _multiplied(b: Any, way: IntegerWay, codes: Any, x: Any, words: Any) -> Any:
    """Generates the sums of neighbouring products of 16 bits."""
    if way.name == "pmaddwd":
        return _call(b, "llvm.x86.avx2.pmadd.wd", words, codes, x)
    halves = [[b.sext(_shuffle(b, v, v, range(i, 2 * way.lanes, 2)), words) for i in range(2)] for v in (codes, x)]
    return b.add(*(b.mul(*pair) for pair in zip(*halves, strict=True)))


def _add_bytes(
    b: Any, way: IntegerWay, half: int, codes: Sequence[Any], xs: Sequence[Any], sums: dict[Any, Any]
) -> None:
    """As ``_add_shorts``, by four inputs at once, and the high and low bytes of the row apart."""
    if way.name == "sdot":
        codes = [b.xor(x, _same(_bytes(way), -MIDDLE)) for x in codes]  # less the middle
    shorts = ir.VectorType(I16, 2 * way.lanes)
    pairs = [b.bitcast(_interleave(b, way, codes[i], codes[i + 1], half), shorts) for i in (0, 2)]
    fours = [b.bitcast(_interleave(b, way, pairs[0], pairs[1], v), _bytes(way)) for v in range(2)]
    for r, at in enumerate(xs):
        for level in range(2):
            x = b.bitcast(_word_everywhere(b, way, b.add(at, I64(4 * level))), _bytes(way))
            for v, some in enumerate(fours):
                b.store(_dot(b, way, b.load(sums[r, v, level]), some, x), sums[r, v, level])


def _dot(b: Any, way: IntegerWay, sums: Any, codes: Any, x: Any) -> Any:
    """Generates sums += the products of four bytes a lane."""
    if way.name == "vpdpbusd":
        codes, x = b.bitcast(codes, sums.type), b.bitcast(x, sums.type)
    bits = 32 * way.lanes
    name = {
        "vpdpbusd": f"llvm.x86.avx512.vpdpbusd.{bits}",
        "sdot": "llvm.aarch64.neon.sdot.v4i32.v16i8",
        "usdot": "llvm.aarch64.neon.usdot.v4i32.v16i8",
    }[way.name]
    return _call(b, name, sums.type, sums, codes, x)


def _interleave(b: Any, way: IntegerWay, one: Any, other: Any, half: int) -> Any:
    """Generates the numbers of two vectors by turns: of the lower or upper half of each 128 bits, which is one
    instruction.
    """
    count = one.type.count
    each = count * 4 // way.lanes  # in 128 bits
    lanes = [start + half * each // 2 + i for start in range(0, count, each) for i in range(each // 2)]
    return _shuffle(b, one, other, [x for lane in lanes for x in (lane, count + lane)])


def _add_numbers(b: Any, way: IntegerWay, found: Sequence[Any], row: IntegerRow, out: Any) -> None:
    """Generates out += the numbers that a row's sums mean. Of each 16 columns, four were in the first vector and the
    next four in the second.
    """
    unit, base = (everywhere(b, x, VECTOR) for x in (row.unit, row.base))
    for part in range(way.lanes // 4):
        some = _shuffle(b, found[0], found[1], [v * way.lanes + part * 4 + i for v in range(2) for i in range(4)])
        at = _vector_at(b, out, I64(4 * 16 * part), VECTOR)
        number = _call(b, f"llvm.fma.v{LANES}f32", VECTOR, b.sitofp(some, VECTOR), unit, base)
        b.store(b.fadd(b.load(at, align=4), number), at, align=4)


def _joined(b: Any, vector: Any, join: Callable[[Any, Any], Any]) -> Any:
    """Generates one number of a vector's, halves by halves."""
    while (count := vector.type.count) > 1:
        halves = (_shuffle(b, vector, vector, range(first, first + count // 2)) for first in (0, count // 2))
        vector = join(*halves)
    return b.extract_element(vector, I32(0))


def _greater(b: Any, x: Any, y: Any) -> Any:
    return b.select(b.fcmp_ordered(">", x, y), x, y)


def _apart(b: Any, base: Any, step: Any, row: int) -> Any:
    """The address of the ``row``-th of rows that are ``step`` numbers of 4 bytes apart."""
    return b.add(base, b.mul(step, I64(4 * row)))


def _each_vector(b: Any, block: Block) -> Any:
    return _indices(b, b.udiv(block.inputs, I64(LANES)))


@contextmanager
def _indices(b: Any, count: Any) -> Iterator[Any]:
    with cgutils.for_range(b, count, intp=I64) as loop:
        yield loop.index


def _word_everywhere(b: Any, way: IntegerWay, at: Any) -> Any:
    return everywhere(b, b.load(b.inttoptr(at, I32.as_pointer()), align=2), ir.VectorType(I32, way.lanes))


def _vector_at(b: Any, base: Any, offset: Any, kind: Any) -> Any:
    return b.inttoptr(b.add(base, offset), kind.as_pointer())


def _shuffle(b: Any, one: Any, other: Any, order: Sequence[int]) -> Any:
    return b.shuffle_vector(one, other, ir.VectorType(I32, len(order))(list(order)))


def _call(b: Any, name: str, result: Any, *args: Any) -> Any:
    kind = ir.FunctionType(result, [arg.type for arg in args])
    return b.call(cgutils.get_or_insert_function(b.module, kind, name), args)


def _same(vector: ir.VectorType, number: float) -> Any:
    return vector([number] * vector.count)


def _bytes(way: IntegerWay) -> ir.VectorType:
    return ir.VectorType(I8, 4 * way.lanes)


# Compiled


def _compiled(way: IntegerWay, rows: int) -> Any:
    @intrinsic
    def multiply(typingctx, x, x_step, inputs, scales, zeros, codes, ahead, room, out, out_step, columns):  # type: ignore[no-untyped-def]
        def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
            emit_product(b, way, rows, Block(*args))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 11), codegen

    return multiply


_four, _three, _two, _one = (_compiled(WAY, rows) for rows in (4, 3, 2, 1))


@njit(**INNER)
def multiply_bytes(x, scales, zeros, codes, columns, ahead, room, out):  # type: ignore[no-untyped-def]
    """out [n, columns] += x [n, inputs] by a block of bytes [inputs, columns] whose rows have a scale and a zero, all
    three by address. ``room`` [n, inputs] float32 is scratch memory.
    """
    n, inputs = x.shape
    row, step = 0, out.shape[1]
    while row < n:
        source, target, rough = address_of(x[row:]), address_of(out[row:]), address_of(room[row:])
        if n - row >= 4:
            _four(source, inputs, inputs, scales, zeros, codes, ahead, rough, target, step, columns)
            row += 4
        elif n - row == 3:
            _three(source, inputs, inputs, scales, zeros, codes, ahead, rough, target, step, columns)
            row += 3
        elif n - row == 2:
            _two(source, inputs, inputs, scales, zeros, codes, ahead, rough, target, step, columns)
            row += 2
        else:
            _one(source, inputs, inputs, scales, zeros, codes, ahead, rough, target, step, columns)
            row += 1
