"""Page records in a GPU's memory (Triton): their layout, and functions shared by kernels that read or write them.

Records are given by address. An address is a multiple of 16, and so is the address of every part of a record. Torch
reference: ``quant``.
"""

from collections.abc import Callable
from functools import wraps
from typing import NamedTuple, ParamSpec, TypeVar

import torch
import triton
import triton.language as tl
from torch import Tensor

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

PAGE = tl.constexpr(64)
_STEP, MOST = tl.constexpr(2.0**-24), tl.constexpr(65_000.0)  # as in ``quant``
_INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))  # the interpreter runs no assembly
_ROUND = tl.constexpr(12_582_912.0)  # 1.5 * 2**23: adding it rounds a number to an integer, halves to even


class TritonLayerLayout(NamedTuple):
    """Describes the page records of one layer: the number of KV ``heads``, the widths of keys and values, and the
    ``bits`` of K and V in each record format.

    There is one format, or there are two: the first for ordinary pages, the second for sink pages. ``offsets``
    [formats, 6] int64, on the device, are byte offsets in a record: of K's codes, scales and zeros, then of V's codes,
    scales and zeros. If ``by_words`` is False, the kernel ``word_attention`` is not used.
    """

    heads: int
    k_dim: int
    v_dim: int
    bits: tuple[tuple[int, int], ...]
    offsets: Tensor
    by_words: bool = True


def launching(launch: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Decorate ``launch``, a function that launches a kernel, to run on the device of its first tensor. Triton would
    use the current device.
    """

    @wraps(launch)
    def launched(*given: _Given.args, **how: _Given.kwargs) -> _Result:
        with torch.cuda.device_of(given[0]):
            return launch(*given, **how)

    return launched


def block_of(n: int) -> int:
    """Returns the smallest power of two that is at least n, and at least 16, the minimum of a matrix product."""
    return max(16, triton.next_power_of_2(n))


@triton.jit
def half_of(x):  # type: ignore[no-untyped-def]
    """Returns x as float16, clamped to 65,000. float16 has more digits than bf16 but ends at 65,504."""
    return tl.minimum(tl.maximum(x.to(tl.float32), -MOST), MOST).to(tl.float16)


@triton.jit
def decode(codes, scale, zero, ROWS: tl.constexpr, COLS: tl.constexpr, BITS: tl.constexpr, ROW_BLOCK: tl.constexpr, COL_BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: E501 # fmt: skip
    """Load one head's codes [ROWS, COLS] from the address ``codes``. Returns [ROW_BLOCK, COL_BLOCK] codes as exact
    float16, and the scale and zero of each row in float32.

    Rows beyond ROWS have scale 0 and zero 0.
    """
    r, c = tl.arange(0, ROW_BLOCK), tl.arange(0, COL_BLOCK)[None]
    inside = (r[:, None] < ROWS) & (c < COLS)
    WIDTH: tl.constexpr = COLS * BITS // 8
    packed = tl.load(codes + r[:, None] * WIDTH + c % WIDTH, mask=inside, other=0)  # repeated bytes come from L1
    code = packed if BITS == 8 else (packed >> (c // WIDTH * BITS).to(tl.uint8)) & ((1 << BITS) - 1)
    x = (code.to(tl.uint16) | 0x6400).to(tl.float16, bitcast=True) - 1024.0  # 1024 + code, faster than a conversion
    a = tl.load(scale + r, mask=r < ROWS, other=0).to(tl.float32)
    b = tl.load(zero + r, mask=r < ROWS, other=0).to(tl.float32)
    return x, a, b


@triton.jit
def load(address, offsets, head, ROWS: tl.constexpr, COLS: tl.constexpr, BITS: tl.constexpr, ROW_BLOCK: tl.constexpr, COL_BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: E501 # fmt: skip
    """Load the codes, scales and zeros of one head from the record at ``address``, as ``decode`` returns them.
    ``offsets`` points to three byte offsets in the record: of codes, scales and zeros.
    """
    codes = tl.multiple_of((address + tl.load(offsets)).to(tl.pointer_type(tl.uint8)), 16)
    scale = tl.multiple_of((address + tl.load(offsets + 1)).to(tl.pointer_type(tl.float16)), 16)
    zero = tl.multiple_of((address + tl.load(offsets + 2)).to(tl.pointer_type(tl.float16)), 16)
    at = head * ROWS
    codes += at * (COLS * BITS // 8)
    return decode(codes, scale + at, zero + at, ROWS, COLS, BITS, ROW_BLOCK, COL_BLOCK)


@triton.jit
def column_order(COLS: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns the indices [BLOCK] of the columns in the order in which ``load_half`` returns them. A row has COLS
    columns; an index of COLS or more stands for no column. The order differs because codes are read in 32-bit words,
    each byte of which has the codes of one or several columns (``quant.pack``).
    """
    n = tl.arange(0, BLOCK)
    WIDTH: tl.constexpr = COLS * BITS // 8
    if BITS == 16 or WIDTH % 4 != 0:
        columns = n
    else:
        PARTS: tl.constexpr = 8 // BITS
        word, part, byte = n // (4 * PARTS), n // 4 % PARTS, (n & 1) << 1 | n >> 1 & 1
        columns = tl.where(word < WIDTH // 4, part * WIDTH + word * 4 + byte, COLS)
    return columns


@triton.jit
def load_half(codes, scale, zero, head, rows, ROWS: tl.constexpr, COLS: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: E501 # fmt: skip
    """Load the decoded numbers of some ``rows`` of one head of a record: [rows, BLOCK] float16, whose 11 bits exceed
    the precision of any codec. Columns are in ``column_order``; rows beyond ROWS are zero. ``codes``, ``scale`` and
    ``zero`` are addresses.
    """
    WIDTH: tl.constexpr = COLS * BITS // 8
    at, inside = head * ROWS + rows, rows < ROWS
    if WIDTH % 4 == 0:
        words = tl.arange(0, BLOCK * BITS // 32)[None]
        place = tl.multiple_of(codes.to(tl.pointer_type(tl.uint32)), 16) + at[:, None] * (WIDTH // 4) + words
        word = tl.load(place, mask=inside[:, None] & (words < WIDTH // 4), other=0)
        x = _halves_of_bf16(word) if BITS == 16 else _halves_of_bytes(_parts_of(word, BITS))
    else:
        c = tl.arange(0, BLOCK)[None]
        place = codes.to(tl.pointer_type(tl.uint8)) + at[:, None] * WIDTH + c % WIDTH
        byte = tl.load(place, mask=inside[:, None] & (c < COLS), other=0)
        x = (byte >> (c // WIDTH * BITS).to(tl.uint8) & (1 << BITS) - 1).to(tl.float16)
    if BITS != 16:
        a = tl.load(tl.multiple_of(scale.to(tl.pointer_type(tl.float16)), 16) + at, mask=inside, other=0)
        b = tl.load(tl.multiple_of(zero.to(tl.pointer_type(tl.float16)), 16) + at, mask=inside, other=0)
        x = x * a[:, None] + b[:, None]
    return x


@triton.jit
def _parts_of(word, BITS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Unpack codes below 8 bits to one byte each: from words [rows, n] to words [rows, n * 8 // BITS]."""
    if BITS <= 4:
        word = _both(word & 0x0F0F0F0F, word >> 4 & 0x0F0F0F0F)
    if BITS == 2:
        word = _both(word & 0x03030303, word >> 2 & 0x03030303)
    return word


@triton.jit
def _both(one, other):  # type: ignore[no-untyped-def]
    """Interleave the columns of two tensors [rows, n] into one [rows, 2 * n]."""
    return tl.reshape(tl.join(one, other), (one.shape[0], one.shape[1] * 2))


@triton.jit
def _halves_of_bf16(word):  # type: ignore[no-untyped-def]
    """Convert bf16 to float16, from words [rows, n] of two bf16 each to [rows, n * 2]. Numbers beyond float16's range
    are clamped.
    """
    if _INTERPRETED:
        low = half_of((word << 16).to(tl.float32, bitcast=True))
        high = half_of((word >> 16 << 16).to(tl.float32, bitcast=True))
    else:
        low, high = tl.inline_asm_elementwise(
            """{
            .reg .b32 low, high;
            shl.b32 low, $2, 16;
            and.b32 high, $2, 0xffff0000;
            cvt.rn.satfinite.f16x2.f32 low, high, low;
            mov.b32 {$0, $1}, low;
            }""",
            "=h,=h,r",
            [word],
            dtype=(tl.float16, tl.float16),
            is_pure=True,
            pack=1,
        )
    return _both(low, high)


@triton.jit
def _halves_of_bytes(word):  # type: ignore[no-untyped-def]
    """Convert bytes to float16, from words [rows, n] to [rows, n * 4]. The bytes of a word come in the order 0, 2, 1,
    3.

    The float16 with the bits 0x6400 plus a byte is 1,024 plus that byte. Using this takes two instructions for two
    bytes, while conversion instructions take 16 times as long (as in Marlin, arXiv:2408.11743).
    """
    if _INTERPRETED:
        b0, b1, b2, b3 = _half(word), _half(word >> 8), _half(word >> 16), _half(word >> 24)
    else:
        b0, b1, b2, b3 = tl.inline_asm_elementwise(
            """{
            .reg .b32 even, odd, base;
            mov.b32 base, 0x64006400;
            prmt.b32 even, $4, 0x64646464, 0x4240;
            prmt.b32 odd, $4, 0x64646464, 0x4341;
            sub.f16x2 even, even, base;
            sub.f16x2 odd, odd, base;
            mov.b32 {$0, $2}, even;
            mov.b32 {$1, $3}, odd;
            }""",
            "=h,=h,=h,=h,r",
            [word],
            dtype=(tl.float16, tl.float16, tl.float16, tl.float16),
            is_pure=True,
            pack=1,
        )
    return tl.reshape(tl.join(tl.join(b0, b1), tl.join(b2, b3)), (word.shape[0], word.shape[1] * 4))


@triton.jit
def _half(word):  # type: ignore[no-untyped-def]
    return (word & 0xFF).to(tl.float16)


@triton.jit
def range_of(low, high, LEVELS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns the scale and zero (float16) that map codes 0 to LEVELS to the range from ``low`` to ``high`` of a group,
    as ``quant.quantize`` computes them.
    """
    zero = (low - tl.abs(low) * 0.00048828125 - _STEP).to(tl.float16)
    scale = tl.div_rn(high - zero.to(tl.float32), LEVELS + 0.0) * 1.0009765625 + _STEP
    return scale.to(tl.float16), zero


@triton.jit
def code_of(x, scale, zero, LEVELS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns for each number of x the nearest code, 0 to LEVELS, with this ``scale`` and ``zero``; uint8."""
    x = tl.minimum(tl.maximum(x, -MOST), MOST)
    steps = tl.div_rn(x - zero.to(tl.float32), scale.to(tl.float32) + tl.zeros_like(x))
    steps = tl.minimum(tl.maximum(steps, 0.0), LEVELS + 0.0)
    return ((steps + _ROUND) - _ROUND).to(tl.int32).to(tl.uint8)


@triton.jit
def numbers_of(address, offsets, head, ROWS: tl.constexpr, COLS: tl.constexpr, BITS: tl.constexpr, ROW_BLOCK: tl.constexpr, COL_BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: E501 # fmt: skip
    """Decode the keys or values of one head in the record at ``address``. Returns float32 [ROW_BLOCK, COL_BLOCK], of
    which the first [ROWS, COLS] are valid. ``offsets`` points to three byte offsets in the record: of codes, scales and
    zeros.
    """
    if BITS == 16:
        r, c = tl.arange(0, ROW_BLOCK)[:, None], tl.arange(0, COL_BLOCK)[None]
        wide = tl.multiple_of((address + tl.load(offsets)).to(tl.pointer_type(tl.bfloat16)), 16)
        x = tl.load(wide + (head * ROWS + r) * COLS + c, mask=(r < ROWS) & (c < COLS), other=0).to(tl.float32)
    else:
        codes, scale, zero = load(address, offsets, head, ROWS, COLS, BITS, ROW_BLOCK, COL_BLOCK)
        x = codes.to(tl.float32) * scale[:, None] + zero[:, None]
    return x
