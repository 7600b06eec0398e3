"""Dot products of bytes, with the best instruction that the processor has. Each int32 lane of a vector sums four
products.

All instructions give the same integers. To use them in an intrinsic of your own, whose lanes are int32::

    op = DOT                                    # this processor's, with ``op.lanes`` int32 in a vector
    x = four_everywhere(b, op, address)         # the same four int8 in every lane
    codes = bytes_at(b, op, address)            # four bytes for each lane
    sums = dot(b, op, SMALL, [(codes, x), ...]) # int32 of each lane

``SMALL`` is for codes 0 to 15, with at most 16 pairs. ``SIGNED`` is for codes -128 to 127. If ``op.offset`` is not 0,
the instruction multiplies unsigned codes, so ``dot`` sums (code + offset) * x. To cancel the offset, pass -offset times
the sum of x as ``start``. Codes 0 to 255 are signed codes plus 128 (flip the highest bit). The numbers x are int8 from
-127 to 127, not -128.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils

from localctx.kernels.llvm.processor import FEATURES, WIDEST
from localctx.kernels.llvm.vector_math import I32, everywhere

I8, I16 = ir.IntType(8), ir.IntType(16)
SMALL, SIGNED = "small", "signed"
_CHAINS = 4  # sums used in turns to hide the latency of a slow instruction
_SLOW = "vnni", "sdot"


class DotInstruction(NamedTuple):
    """The instruction that multiplies bytes and sums products in int32 lanes. ``lanes`` is the number of int32 in its
    vectors.

    ``name`` is ``vnni`` (AVX-512 VNNI or AVX-VNNI), ``avx2``, ``sdot`` (NEON) or ``plain`` (no special instruction).
    """

    name: str
    lanes: int

    @property
    def offset(self) -> int:
        """The number that the instruction adds to each signed code; see the module's docstring."""
        return 128 if self.name == "vnni" else 0


def dot_instruction(features: str, lanes: int) -> DotInstruction:
    """Returns the instruction for a processor with LLVM's ``features`` (``+avx2,-sse4a``), whose widest vectors have
    ``lanes`` float32.
    """
    there = set(features.split(","))
    if {"+avx512vnni", "+avx512vl"} <= there:
        return DotInstruction("vnni", lanes)
    if "+avxvnni" in there:
        return DotInstruction("vnni", 8)
    if "+avx2" in there:
        return DotInstruction("avx2", 8)
    return DotInstruction("sdot" if "+dotprod" in there else "plain", 8)


DOT = dot_instruction(FEATURES, WIDEST)


def bytes_at(b: Any, op: DotInstruction, address: Any) -> Any:
    """Generate code that loads a vector of bytes from the ``address`` on, four bytes for each of ``op.lanes`` lanes.
    ``b`` is LLVM's IR builder. Returns the vector of bytes.
    """
    return b.load(b.inttoptr(address, _bytes(op.lanes).as_pointer()), align=1)


def four_everywhere(b: Any, op: DotInstruction, address: Any) -> Any:
    """Generate code, with LLVM's IR builder ``b``, that loads the four bytes at ``address`` into every lane. Returns a
    vector of bytes, like ``bytes_at``.
    """
    four = b.load(b.inttoptr(address, I32.as_pointer()), align=1)
    return b.bitcast(everywhere(b, four, _words(op.lanes)), _bytes(op.lanes))


def dot(b: Any, op: DotInstruction, codes_are: str, pairs: Sequence[tuple[Any, Any]], start: Any = None) -> Any:
    """Generate code that sums products of bytes with the instruction ``op``. Each int32 lane of the result is ``start``
    (None: 0) plus the products of all ``pairs``. A pair is two vectors of bytes (codes, x); each lane sums four
    products of a pair. ``codes_are`` says the range of the codes, SMALL (0 to 15) or SIGNED (-128 to 127). ``b`` is
    LLVM's IR builder.
    """
    assert codes_are != SMALL or len(pairs) <= 16, "sums of 16 bits would overflow"
    if op.name == "avx2" and codes_are == SMALL:
        return _add(b, start, _in_sixteen_bits(b, pairs))
    make = {"vnni": _by_vnni, "avx2": _by_signs, "sdot": _by_sdot, "plain": _plainly}[op.name]
    none = _words(op.lanes)([0] * op.lanes)
    sums = [none if start is None else start] + [none] * (_CHAINS - 1 if op.name in _SLOW else 0)
    for i, (codes, x) in enumerate(pairs):
        sums[i % len(sums)] = make(b, op.lanes, sums[i % len(sums)], codes, x, codes_are)
    while len(sums) > 1:
        sums = [b.add(*pair) for pair in zip(sums[::2], sums[1::2], strict=True)]
    return sums[0]


def _in_sixteen_bits(b: Any, pairs: Sequence[tuple[Any, Any]]) -> Any:
    """Generate the sums of products in 16-bit lanes, for small codes. A sum of two products is at most 2 * 15 * 127, so
    16 bits hold eight of these sums.
    """
    halves = []
    for some in (pairs[:8], pairs[8:]):
        parts = [call(b, "llvm.x86.avx2.pmadd.ub.sw", _shorts(16), codes, x) for codes, x in some]
        if parts:
            total = parts[0]
            for part in parts[1:]:
                total = b.add(total, part)
            halves.append(call(b, "llvm.x86.avx2.pmadd.wd", _words(8), total, _shorts(16)([1] * 16)))
    return halves[0] if len(halves) == 1 else b.add(*halves)


def _by_signs(b: Any, lanes: int, sums: Any, codes: Any, x: Any, codes_are: str) -> Any:
    """Add products of signed codes and x to ``sums``. The instruction multiplies unsigned by signed bytes, so the signs
    of the codes are moved to x. A sum of two products, at most 2 * 128 * 127, fits 16 bits.
    """
    positive = b.select(b.icmp_signed("<", codes, _same(lanes, 0)), b.sub(_same(lanes, 0), codes), codes)
    signed = call(b, "llvm.x86.avx2.psign.b", _bytes(8), x, codes)
    pairs = call(b, "llvm.x86.avx2.pmadd.ub.sw", _shorts(16), positive, signed)
    return b.add(sums, call(b, "llvm.x86.avx2.pmadd.wd", _words(8), pairs, _shorts(16)([1] * 16)))


def _by_vnni(b: Any, lanes: int, sums: Any, codes: Any, x: Any, codes_are: str) -> Any:
    if codes_are == SIGNED:
        codes = b.xor(codes, _same(lanes, -128))
    words = _words(lanes)
    name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
    return call(b, name, words, sums, b.bitcast(codes, words), b.bitcast(x, words))


def _by_sdot(b: Any, lanes: int, sums: Any, codes: Any, x: Any, codes_are: str) -> Any:
    parts = []
    for first in range(0, lanes, 4):
        some = [_part(b, v, first * n, 4 * n) for v, n in ((sums, 1), (codes, 4), (x, 4))]
        parts.append(call(b, "llvm.aarch64.neon.sdot.v4i32.v16i8", _words(4), *some))
    return b.shuffle_vector(*parts, _words(lanes)(list(range(lanes))))


def _plainly(b: Any, lanes: int, sums: Any, codes: Any, x: Any, codes_are: str) -> Any:
    for term in range(4):
        every = _words(lanes)(list(range(term, 4 * lanes, 4)))
        wide = [b.sext(b.shuffle_vector(v, v, every), _words(lanes)) for v in (codes, x)]
        sums = b.add(sums, b.mul(*wide))
    return sums


def _part(b: Any, vector: Any, first: int, count: int) -> Any:
    return b.shuffle_vector(vector, vector, _words(count)(list(range(first, first + count))))


def _add(b: Any, start: Any, sums: Any) -> Any:
    return sums if start is None else b.add(start, sums)


def call(b: Any, name: str, result: Any, *args: Any) -> Any:
    """Generate a call of the LLVM function ``name`` with the arguments ``args``. Returns the result, whose LLVM type is
    ``result``. ``b`` is LLVM's IR builder.
    """
    kind = ir.FunctionType(result, [arg.type for arg in args])
    return b.call(cgutils.get_or_insert_function(b.module, kind, name), args)


def _same(lanes: int, number: int) -> Any:
    return _bytes(lanes)([number] * (4 * lanes))


def _bytes(lanes: int) -> ir.VectorType:
    return ir.VectorType(I8, 4 * lanes)


def _shorts(count: int) -> ir.VectorType:
    return ir.VectorType(I16, count)


def _words(count: int) -> ir.VectorType:
    return ir.VectorType(I32, count)
