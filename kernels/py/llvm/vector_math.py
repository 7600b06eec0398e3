"""Vector code for float32 that a compiler does not generate by itself: reductions in a fixed order, exp, and float16.

Most functions take addresses, process whole vectors, and leave the numbers after these vectors to the caller. A
parameter ``b`` is LLVM's IR builder.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from localctx.kernels.llvm.processor import WIDEST

MATH = {"reassoc", "contract", "arcp", "nsz", "afn"}  # fast math that keeps infinities correct
INNER: dict[str, Any] = {"fastmath": MATH, "_nrt": False}
"""Options for functions in inner loops, which must allocate nothing.

Numba then counts no references to their arrays: each count is an atomic addition, which costs as much as a small loop.
"""
INLINED = INNER | {"inline": "always"}
"""Options for inner functions with a single caller: numba would also compile each on its own, with all its callees.

Also for functions called with arrays for every page: passing an array takes as long as a small loop.
"""
LINE = 64  # bytes of a cache line
LANES = 8  # float32 in a vector; a processor with narrower vectors uses several
F32, I32, I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
VECTOR, WORDS = ir.VectorType(F32, LANES), ir.VectorType(I32, LANES)
FLOAT, BFLOAT, HALF, SIGNED, BYTE, NIBBLES, CRUMBS, E4M3 = range(8)
"""The kinds of stored numbers: three kinds of floats, int8 (of weights), uint8, codes of 4 or 2 bits, packed as by
``quant.pack``, and floats of 8 bits.
"""
_E4M3_SCALE = np.float32(2.0**120)  # float32's exponent bias is 127, e4m3's is 7
SIZES = {FLOAT: 4, BFLOAT: 2, HALF: 2}  # bytes of a number if not 1
PARTS = {NIBBLES: 2, CRUMBS: 4}  # numbers in a byte if not 1
RECORD_KINDS = {32: FLOAT, 16: BFLOAT, 8: BYTE, 4: NIBBLES, 2: CRUMBS, 256 + 8: E4M3}
"""The number format of a page record, by the number kind in a ``LayerLayout``'s table.

The low byte of a kind is the bits of a number. Below 16 bits the numbers are codes, which a row's scale and zero map to
values.
"""

_STORED = {FLOAT: F32, BFLOAT: ir.IntType(16), HALF: ir.HalfType()}


@intrinsic
def as_pointer(typingctx, address):  # type: ignore[no-untyped-def]
    """Converts an address to a pointer, for ``carray``."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), codegen


@intrinsic
def address_of(typingctx, array):  # type: ignore[no-untyped-def]
    """Returns the address of an array's data. Unlike ``ctypes.data``, it does not change a reference count, which is
    slow.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        made = context.make_array(signature.args[0])(context, builder, args[0])
        return builder.ptrtoint(made.data, I64)

    return types.int64(array), codegen


@intrinsic
def float_of_bits(typingctx, bits):  # type: ignore[no-untyped-def]
    """Returns the float32 with these 32 bits."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), codegen


@intrinsic
def bits_of_float(typingctx, x):  # type: ignore[no-untyped-def]
    """Returns the 32 bits of a float32."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.bitcast(args[0], ir.IntType(32))

    return types.int32(types.float32), codegen


@intrinsic
def float_of_half(typingctx, bits):  # type: ignore[no-untyped-def]
    """Returns the float32 value of a float16 given by its 16 bits."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), codegen


@njit
def aligned_floats(rows, columns):  # type: ignore[no-untyped-def]
    """Returns an uninitialized array [rows, columns] float32 that begins at a cache line, because a load across two
    lines takes twice the time.
    """
    room = np.empty(rows * columns + LINE // 4, np.float32)
    first = -address_of(room) % LINE // 4
    return room[first : first + rows * columns].reshape(rows, columns)


@njit(**INNER)
def copy_into(target, source):  # type: ignore[no-untyped-def]
    """Copy ``source`` [n] to ``target`` [n]. ``target[:] = source`` would do the same, but compiling its error for
    unequal lengths takes seconds at every use.
    """
    for i in range(len(source)):
        target[i] = source[i]


@njit(**INNER)
def value_of_code(kind, code):  # type: ignore[no-untyped-def]
    """Returns the float32 value of one code of at most 8 bits in a record, before scale and zero are applied. ``kind``
    is a key of RECORD_KINDS.
    """
    if kind == 256 + 8:  # as in ``widened``
        bits = (np.int64(code & 0x80) << 24) | (np.int64(code & 0x7F) << 20)
        return float_of_bits(np.int32(bits)) * _E4M3_SCALE
    return np.float32(code)


def _loader(kind: types.Type) -> Any:
    @intrinsic
    def load(typingctx, address):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            return builder.load(builder.inttoptr(args[0], context.get_value_type(kind).as_pointer()), align=1)

        return kind(types.int64), codegen

    return load


byte_at, word_at, float_at = (_loader(kind) for kind in (types.uint8, types.uint16, types.float32))
"""Load the number at an address: uint8, uint16, float32."""


@intrinsic
def fetch(typingctx, address, count):  # type: ignore[no-untyped-def]
    """Prefetch ``count`` bytes from ``address`` on. The memory there need not be allocated."""

    def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
        address, count = args
        with cgutils.for_range(b, b.udiv(b.add(count, I64(63)), I64(64)), intp=I64) as loop:
            fetch_at(b, b.add(address, b.mul(loop.index, I64(64))))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def greatest(typingctx, numbers, count):  # type: ignore[no-untyped-def]
    """Returns the greatest of ``count`` float32 (whole vectors) at an address."""

    def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
        numbers, count = args
        top = cgutils.alloca_once_value(b, VECTOR([float("-inf")] * LANES))
        for at, vector in each_wide(b, numbers, count):
            found = b.load(b.inttoptr(at, vector.as_pointer()), align=4)
            for part in eights(b, found):
                b.store(greater(b, part, b.load(top)), top)
        return joined(b, b.load(top), partial(greater, b))

    return types.float32(types.int64, types.int64), codegen


@intrinsic
def exp_below(typingctx, scores, top, count):  # type: ignore[no-untyped-def]
    """Replace each of the ``count`` float32 at the address ``scores`` (whole vectors) by exp(score - top), and return
    their sum.

    No score may exceed ``top``. exp is accurate to 2 ulp (Cephes' expf). Sums use vectors of eight on any processor, so
    the result is the same on all.
    """

    def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
        scores, top, count = args
        total = _zeros(b)
        for at, vector in each_wide(b, scores, count):
            place = b.inttoptr(at, vector.as_pointer())
            found = _exp(b, b.fsub(b.load(place, align=4), everywhere(b, top, vector)))
            b.store(found, place, align=4)
            for part in eights(b, found):
                b.store(b.fadd(b.load(total), part), total)
        return joined(b, b.load(total), b.fadd)

    return types.float32(types.int64, types.float32, types.int64), codegen


@intrinsic
def scale_bytes(typingctx, codes, scale, zero, out, count):  # type: ignore[no-untyped-def]
    """Compute code * ``scale`` + ``zero`` for the ``count`` uint8 at the address ``codes`` (whole vectors), and write
    the results as float32 to the address ``out``.
    """

    def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
        codes, scale, zero, out, count = args
        for at, vector in each_wide(b, out, count):
            where = b.add(codes, b.lshr(b.sub(at, out), I64(2)))
            number = widened(b, BYTE, where, lanes=vector.count)
            number = call_intrinsic(b, "fma", number, everywhere(b, scale, vector), everywhere(b, zero, vector))
            b.store(number, b.inttoptr(at, vector.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.float32, types.float32, types.int64, types.int64), codegen


def _widening(kind: int) -> Any:
    @intrinsic
    def widen_vectors(typingctx, numbers, out, count):  # type: ignore[no-untyped-def]
        def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
            numbers, out, count = args
            with _each(b, count) as i:
                b.store(widened(b, kind, _stored_at(b, kind, numbers, i)), vector_at(b, out, i), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), codegen

    return widen_vectors


widen_bfloats, _widen_halves = _widening(BFLOAT), _widening(HALF)
"""Convert ``count`` 16-bit numbers (whole vectors) at one address to float32 at another."""


@njit(**INLINED)
def widen(halves, out):  # type: ignore[no-untyped-def]
    """Convert float16 numbers from the address ``halves`` on to float32, as many as ``out`` holds."""
    n = len(out)
    _widen_halves(halves, address_of(out), n)
    for i in range(n - n % LANES, n):
        out[i] = float_of_half(word_at(halves + 2 * i))


@intrinsic
def _dots_of_vectors(typingctx, x, y, halves, others, count):  # type: ignore[no-untyped-def]
    """Compute ``dots_of_halves`` for ``count`` numbers, a multiple of 16."""
    lanes = 2 * LANES

    def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
        sums = [cgutils.alloca_once_value(b, ir.VectorType(F32, lanes)([0.0] * lanes)) for _ in range(2)]
        with cgutils.for_range(b, b.udiv(args[4], I64(lanes)), intp=I64) as loop:
            first = b.mul(loop.index, I64(lanes))
            for floats, halves, total in zip(args[:2], args[2:4], sums, strict=True):
                numbers = b.load(b.inttoptr(b.add(floats, b.mul(first, I64(4))), total.type), align=4)
                stored = widened(b, HALF, b.add(halves, b.mul(first, I64(2))), lanes=lanes)
                b.store(call_intrinsic(b, "fma", numbers, stored, b.load(total)), total)
        return joined(b, b.fadd(*map(b.load, sums)), b.fadd)

    return types.float32(*[types.int64] * 5), codegen


@njit(**INLINED)
def dots_of_halves(x, y, halves, others):  # type: ignore[no-untyped-def]
    """Returns x . halves + y . others. x [n] and y [n] are float32; ``halves`` and ``others`` are addresses of n
    float16 each.
    """
    n = len(x)
    whole = n - n % (2 * LANES)
    total = _dots_of_vectors(address_of(x), address_of(y), halves, others, whole)
    for i in range(whole, n):
        total += x[i] * float_of_half(word_at(halves + 2 * i)) + y[i] * float_of_half(word_at(others + 2 * i))
    return total


@intrinsic
def _gate_vectors(typingctx, gates, ups, out, count):  # type: ignore[no-untyped-def]
    """Compute ``gate`` for ``count`` numbers, which fill whole vectors, at addresses. It divides exactly, because fast
    estimates differ between processors.
    """

    def codegen(context, b, signature, args):  # type: ignore[no-untyped-def]
        gates, ups, out, count = args
        for at, vector in each_wide(b, out, count):
            places = [b.inttoptr(b.add(base, b.sub(at, out)), vector.as_pointer()) for base in (gates, ups)]
            x, up = (b.load(place, align=4) for place in places)
            one = vector([1.0] * vector.count)
            e = _exp(b, b.fneg(call_intrinsic(b, "fabs", x)))
            share = b.fdiv(b.select(b.fcmp_ordered(">=", x, vector([0.0] * vector.count)), one, e), b.fadd(one, e))
            b.store(b.fmul(b.fmul(x, share), up), b.inttoptr(at, vector.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


@njit(**INNER)
def gate(gates, ups, out):  # type: ignore[no-untyped-def]
    """Set ``out`` to silu(gates) * ups (SwiGLU, arXiv:2002.05202), all [n] float32."""
    n = len(out)
    whole = n - n % LANES
    _gate_vectors(address_of(gates), address_of(ups), address_of(out), whole)
    for i in range(whole, n):
        e = np.float32(math.exp(-abs(gates[i])))
        share = (np.float32(1) if gates[i] >= 0 else e) / (np.float32(1) + e)
        out[i] = gates[i] * share * ups[i]


def everywhere(b: Any, value: Any, vector: ir.VectorType) -> Any:
    """Generate a vector of the type ``vector`` with ``value`` in all lanes."""
    one = b.insert_element(vector(ir.Undefined), value, I32(0))
    return b.shuffle_vector(one, one, ir.VectorType(I32, vector.count)([0] * vector.count))


def widened(b: Any, kind: int, where: Any, part: int = 0, lanes: int = LANES) -> Any:
    """Generate code that loads ``lanes`` numbers from the address ``where`` and converts them to float32. ``kind`` is
    their number format.

    If a byte packs several numbers, the ``part``-th number of each byte is loaded.
    """
    vector, integers = ir.VectorType(F32, lanes), ir.VectorType(I32, lanes)
    stored = _STORED.get(kind, ir.IntType(8))

    def same(number: int) -> Any:
        return integers([number] * lanes)

    found = b.load(b.inttoptr(where, ir.VectorType(stored, lanes).as_pointer()), align=1)
    if kind == FLOAT:
        return found
    if kind == HALF:
        return b.fpext(found, vector)
    words = b.zext(found, integers)
    if kind == E4M3:  # move its bits into a float32, whose exponent bias differs
        sign = b.shl(b.and_(words, same(0x80)), same(24))
        rest = b.shl(b.and_(words, same(0x7F)), same(20))
        return b.fmul(b.bitcast(b.or_(sign, rest), vector), vector([2.0**120] * lanes))
    if kind == BFLOAT:
        return b.bitcast(b.shl(words, same(16)), vector)
    if kind in PARTS:
        bits = 8 // PARTS[kind]
        words = b.and_(b.lshr(words, same(part * bits)), same((1 << bits) - 1))
    return b.sitofp(words, vector)  # signed conversion is one instruction, and small codes have no sign bit


def fetch_at(b: Any, address: Any) -> None:
    """Generate code that prefetches the cache line at ``address``."""
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
    found = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0")
    b.call(found, [b.inttoptr(address, byte), I32(0), I32(2), I32(1)])  # read, into the second-level cache, data


@contextmanager
def _each(b: Any, count: Any) -> Iterator[Any]:
    """Generate a loop over the whole vectors of ``count`` numbers. Yields the index of the current vector."""
    with cgutils.for_range(b, b.udiv(count, I64(LANES)), intp=I64) as loop:
        yield loop.index


def each_wide(b: Any, base: Any, count: Any) -> Iterator[tuple[Any, Any]]:
    """Generate two loops over the ``count`` float32 at the address ``base``; ``count`` fills whole vectors of eight.

    The first loop uses the widest vectors, the second loop the remaining vectors of eight. Yields, once per loop, the
    address of the current vector and the vector type. The caller's code in between becomes the body of the loop.
    """
    done = I64(0)
    for lanes in sorted({WIDEST, LANES}, reverse=True):
        vectors = b.udiv(b.sub(count, done), I64(lanes))
        with cgutils.for_range(b, vectors, intp=I64) as loop:
            first = b.add(done, b.mul(loop.index, I64(lanes)))
            yield b.add(base, b.mul(first, I64(4))), ir.VectorType(F32, lanes)
        done = b.add(done, b.mul(vectors, I64(lanes)))


def eights(b: Any, vector: Any) -> list[Any]:
    """Generate code that splits a wide ``vector`` into vectors of eight numbers. Returns these vectors."""
    if vector.type.count == LANES:
        return [vector]
    return [_every(b, vector, range(first, first + LANES)) for first in range(0, vector.type.count, LANES)]


def vector_at(b: Any, base: Any, index: Any) -> Any:
    """Generate a pointer to the ``index``-th vector of float32 from the address ``base`` on."""
    return b.inttoptr(b.add(base, b.mul(index, I64(4 * LANES))), VECTOR.as_pointer())


def _stored_at(b: Any, kind: int, base: Any, index: Any) -> Any:
    """Generate the address of vector number ``index`` in an array from ``base`` on, whose numbers have the format
    ``kind``.
    """
    return b.add(base, b.mul(index, I64(LANES * SIZES.get(kind, 1))))


def _zeros(b: Any) -> Any:
    return cgutils.alloca_once_value(b, VECTOR([0.0] * LANES))


def greater(b: Any, x: Any, y: Any) -> Any:
    """Generate the maximum of two numbers, or of two vectors lane by lane."""
    return b.select(b.fcmp_ordered(">", x, y), x, y)  # one instruction, unlike maxnum


def nearest(b: Any, x: Any) -> Any:
    """Generate code that rounds a vector of float32 to the nearest int32, halves to even. The numbers must be between
    -2 ** 22 and 2 ** 22.

    After adding 1.5 * 2 ** 23, the low bits of a number are the integer. (Other conversions work number by number.)
    """
    words = ir.VectorType(I32, x.type.count)
    moved = b.fadd(x, x.type([1.5 * 2.0**23] * words.count))
    return b.sub(b.bitcast(moved, words), words([0x4B400000] * words.count))


def step_of_codes(b: Any, most: Any) -> tuple[Any, Any]:
    """Generate the scale for quantizing numbers of magnitude up to ``most`` to codes -127 to 127. Returns the scale
    (most / 127) and its inverse.

    Both are 0 if ``most`` is nearly 0, to avoid a division by zero.
    """
    none = b.fcmp_unordered("<", most, F32(1e-30))
    return tuple(b.select(none, F32(0.0), b.fdiv(*x)) for x in ((most, F32(127.0)), (F32(127.0), most)))


def joined(b: Any, vector: Any, join: Callable[[Any, Any], Any]) -> Any:
    """Generate code that reduces a vector to one number with ``join``, a function that generates the join of two
    vectors. Neighbouring lanes are joined first, then neighbouring results, and so on.
    """
    while (count := vector.type.count) > 1:
        vector = join(*(_every(b, vector, range(first, count, 2)) for first in (0, 1)))
    return b.extract_element(vector, I32(0))


def _every(b: Any, vector: Any, lanes: range) -> Any:
    return b.shuffle_vector(vector, vector, ir.VectorType(I32, len(lanes))(list(lanes)))


def call_intrinsic(b: Any, name: str, *args: Any) -> Any:
    """Generate a call of an LLVM intrinsic such as "fma". The arguments are vectors of float32 of the same length."""
    vector = args[0].type
    kind = ir.FunctionType(vector, [vector] * len(args))
    return b.call(cgutils.get_or_insert_function(b.module, kind, f"llvm.{name}.v{vector.count}f32"), args)


def _exp(b: Any, x: Any) -> Any:
    words = ir.VectorType(I32, x.type.count)

    def same(number: float) -> Any:
        return x.type([number] * x.type.count)

    call = partial(call_intrinsic, b)
    x = greater(b, x, same(-87.0))
    n = call("floor", call("fma", x, same(1.44269504), same(0.5)))
    x = call("fma", n, same(-0.693359375), x)
    x = call("fma", n, same(2.12194440e-4), x)
    p = same(1.9875691500e-4)
    for factor in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = call("fma", p, x, same(factor))
    p = call("fma", p, b.fmul(x, x), b.fadd(x, same(1.0)))
    power = b.shl(b.add(b.fptosi(n, words), words([127] * words.count)), words([23] * words.count))
    return b.fmul(p, b.bitcast(power, x.type))
