"""Page records in a GPU's memory (Triton): what is in one, sealing, sketches, rotation. Torch references: ``quant``,
``sketch``. Records are given by address, a multiple of 16 as every part of a record is.
"""

from collections.abc import Callable
from functools import wraps
from typing import NamedTuple, ParamSpec, TypeVar

import torch
import triton
import triton.language as tl
from torch import Tensor

from localctx.kernels.sketch import BITS, Sketch

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

PAGE = tl.constexpr(64)
_TOKENS = PAGE.value
_ROTATED_PAGES = 32  # rotated at a time
_STEP, _MAX = tl.constexpr(2.0**-24), tl.constexpr(65_000.0)  # as in ``quant``
_INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))  # the interpreter runs no assembly
_ROUND = tl.constexpr(12_582_912.0)  # 1.5 * 2**23: what is added to it loses its fraction, halves to even


class TritonLayerLayout(NamedTuple):
    """One layer's heads and widths, and each record format's K and V bits: one format, or the ordinary one and that of
    sink pages. ``offsets`` [formats, 6] int64, on the device: the bytes from a page's address to K's codes, scales,
    zeros and V's codes, scales, zeros.
    """

    heads: int
    k_dim: int
    v_dim: int
    bits: tuple[tuple[int, int], ...]
    offsets: Tensor


def launching(launch: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """``launch`` on the device of its first tensor: Triton takes the current one."""

    @wraps(launch)
    def launched(*given: _Given.args, **how: _Given.kwargs) -> _Result:
        with torch.cuda.device_of(given[0]):
            return launch(*given, **how)

    return launched


def block_of(n: int) -> int:
    """The power of two that holds n, and no less than a matrix product wants."""
    return max(16, triton.next_power_of_2(n))


# --- One head of a record: codes as float16, and a scale and a zero a row that are multiplied in elsewhere


@triton.jit
def half_of(x):  # type: ignore[no-untyped-def]
    """x as float16, which has more digits than bf16 and ends at 65,504."""
    return tl.minimum(tl.maximum(x.to(tl.float32), -_MAX), _MAX).to(tl.float16)


@triton.jit
def decode(codes, scale, zero, ROWS: tl.constexpr, COLS: tl.constexpr, BITS: tl.constexpr, ROW_BLOCK: tl.constexpr, COL_BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: E501 # fmt: skip
    """The codes [ROWS, COLS] at ``codes``, which float16 holds exactly, and their rows' scales and zeros, float32.

    What lies beyond has scale 0 and zero 0.
    """
    r, c = tl.arange(0, ROW_BLOCK), tl.arange(0, COL_BLOCK)[None]
    inside = (r[:, None] < ROWS) & (c < COLS)
    WIDTH: tl.constexpr = COLS * BITS // 8
    packed = tl.load(codes + r[:, None] * WIDTH + c % WIDTH, mask=inside, other=0)  # a byte of several from L1
    code = packed if BITS == 8 else (packed >> (c // WIDTH * BITS).to(tl.uint8)) & ((1 << BITS) - 1)
    x = (code.to(tl.uint16) | 0x6400).to(tl.float16, bitcast=True) - 1024.0  # faster than a conversion: 1024 + code
    a = tl.load(scale + r, mask=r < ROWS, other=0).to(tl.float32)
    b = tl.load(zero + r, mask=r < ROWS, other=0).to(tl.float32)
    return x, a, b


@triton.jit
def load(address, offsets, head, ROWS: tl.constexpr, COLS: tl.constexpr, BITS: tl.constexpr, ROW_BLOCK: tl.constexpr, COL_BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: E501 # fmt: skip
    """``decode`` a head of the record at ``address``, whose codes, scales and zeros begin at three ``offsets``."""
    codes = tl.multiple_of((address + tl.load(offsets)).to(tl.pointer_type(tl.uint8)), 16)
    scale = tl.multiple_of((address + tl.load(offsets + 1)).to(tl.pointer_type(tl.float16)), 16)
    zero = tl.multiple_of((address + tl.load(offsets + 2)).to(tl.pointer_type(tl.float16)), 16)
    at = head * ROWS
    codes += at * (COLS * BITS // 8)
    return decode(codes, scale + at, zero + at, ROWS, COLS, BITS, ROW_BLOCK, COL_BLOCK)


@triton.jit
def column_order(COLS: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The columns of rows of COLS numbers in the order in which ``load_half`` returns them, [BLOCK]; some may lie
    beyond COLS. Codes are read in words, each byte of which has those of one column or several (``quant.pack``).
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
    """The numbers [rows, BLOCK] of a head of a record as float16, whose 11 digits are more than any codec keeps: their
    columns in ``column_order``. Rows beyond ROWS are zero. The record's codes, scales and zeros are given by address.
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
    """The codes in words [rows, n], each in a byte of its own: [rows, n * 8 // BITS]."""
    if BITS <= 4:
        word = _both(word & 0x0F0F0F0F, word >> 4 & 0x0F0F0F0F)
    if BITS == 2:
        word = _both(word & 0x03030303, word >> 2 & 0x03030303)
    return word


@triton.jit
def _both(one, other):  # type: ignore[no-untyped-def]
    """Two [rows, n] in turns: [rows, 2 * n]."""
    return tl.reshape(tl.join(one, other), (one.shape[0], one.shape[1] * 2))


@triton.jit
def _halves_of_bf16(word):  # type: ignore[no-untyped-def]
    """Two bf16 in each of words [rows, n], in float16: [rows, n * 2]. What is too large for it becomes its largest."""
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
    """The bytes 0, 2, 1, 3 of words [rows, n] as float16 [rows, n * 4].

    0x6400 with a byte below is 1,024 + the byte in float16: two instructions for two bytes, where conversions take 16
    times as long. (As in Marlin, arXiv:2408.11743.)
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
    """The scale and zero, float16, of groups from ``low`` to ``high``: see ``quant.quantize``."""
    zero = (low - tl.abs(low) * 0.00048828125 - _STEP).to(tl.float16)
    scale = tl.div_rn(high - zero.to(tl.float32), LEVELS + 0.0) * 1.0009765625 + _STEP
    return scale.to(tl.float16), zero


@triton.jit
def code_of(x, scale, zero, LEVELS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The nearest of LEVELS + 1 codes."""
    x = tl.minimum(tl.maximum(x, -_MAX), _MAX)
    steps = tl.div_rn(x - zero.to(tl.float32), scale.to(tl.float32) + tl.zeros_like(x))
    steps = tl.minimum(tl.maximum(steps, 0.0), LEVELS + 0.0)
    return ((steps + _ROUND) - _ROUND).to(tl.int32).to(tl.uint8)


# --- Sealing


@launching
def seal(k: Tensor, v: Tensor, addresses: Tensor, layout: TritonLayerLayout, kind: int, rotated: bool = False) -> None:
    """Write k [H, n * 64, D] and v [H, n * 64, Dv] as records of format ``kind`` into the pages at ``addresses`` [n],
    Hadamard-rotated where ``rotated``: what ``quant.quantize`` and ``quant.pack`` make of them (KIVI's groups).
    """
    if rotated:
        k, v = rotate(k), rotate(v)
    for x, bits, first, keys in ((k, layout.bits[kind][0], 0, True), (v, layout.bits[kind][1], 3, False)):
        dim = x.shape[2]
        offsets = layout.offsets[kind, first:]
        _seal[(len(addresses), layout.heads)](
            x, addresses, offsets, *x.stride(), DIM=dim, BLOCK=block_of(dim), BITS=bits, KEYS=keys
        )


@triton.jit
def _seal(x, addresses, offsets, head_stride, token_stride, dim_stride, DIM: tl.constexpr, BLOCK: tl.constexpr, BITS: tl.constexpr, KEYS: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: E501 # fmt: skip
    page, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    x += head * head_stride + page * PAGE * token_stride
    if KEYS:
        _put(x, tl.load(addresses + page), offsets, head, dim_stride, token_stride, DIM, PAGE, BITS, BLOCK, PAGE)
    else:
        _put(x, tl.load(addresses + page), offsets, head, token_stride, dim_stride, PAGE, DIM, BITS, PAGE, BLOCK)


@triton.jit
def _put(x, address, offsets, head, row_stride, col_stride, ROWS: tl.constexpr, COLS: tl.constexpr, BITS: tl.constexpr, ROW_BLOCK: tl.constexpr, COL_BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: E501 # fmt: skip
    """Encode [ROWS, COLS] numbers, a group a row, into a head of the record at ``address``."""
    r, c = tl.arange(0, ROW_BLOCK)[:, None], tl.arange(0, COL_BLOCK)[None]
    inside = (r < ROWS) & (c < COLS)
    numbers = tl.load(x + r * row_stride + c * col_stride, mask=inside, other=0).to(tl.float32)
    codes = tl.multiple_of((address + tl.load(offsets)).to(tl.pointer_type(tl.uint8)), 16)
    if BITS == 16:
        place = codes.to(tl.pointer_type(tl.bfloat16)) + (head * ROWS + r) * COLS + c
        tl.store(place, numbers.to(tl.bfloat16), mask=inside)
    else:
        LEVELS: tl.constexpr = (1 << BITS) - 1
        WIDTH: tl.constexpr = COLS * BITS // 8
        numbers = tl.minimum(tl.maximum(numbers, -_MAX), _MAX)
        low = tl.min(tl.where(inside, numbers, _MAX), 1)[:, None]
        high = tl.max(tl.where(inside, numbers, -_MAX), 1)[:, None]
        scale, zero = range_of(low, high, LEVELS)
        meta = head * ROWS + r
        tl.store((address + tl.load(offsets + 1)).to(tl.pointer_type(tl.float16)) + meta, scale, mask=r < ROWS)
        tl.store((address + tl.load(offsets + 2)).to(tl.pointer_type(tl.float16)) + meta, zero, mask=r < ROWS)
        packed = tl.zeros((ROW_BLOCK, COL_BLOCK), tl.uint8)
        mine = (r < ROWS) & (c < WIDTH)
        for part in tl.static_range(8 // BITS):  # its numbers again, which the cache still has
            some = tl.load(x + r * row_stride + (part * WIDTH + c) * col_stride, mask=mine, other=0).to(tl.float32)
            packed |= code_of(some, scale, zero, LEVELS) << (part * BITS)
        tl.store(codes + (head * ROWS + r) * WIDTH + c, packed, mask=mine)


# --- Unsealing


@launching
def unseal(
    addresses: Tensor, formats: Tensor, layout: TritonLayerLayout, dtype: torch.dtype, rotated: bool = False
) -> tuple[Tensor, Tensor]:
    """Keys [H, n * 64, D] and values [H, n * 64, Dv] in ``dtype`` that the records at ``addresses`` [n], of ``formats``
    [n], hold, rotated back where ``rotated``.
    """
    k, v = _keys_and_values(len(addresses), layout, dtype, addresses.device)
    if not rotated:
        _unseal_into(k, v, addresses, formats, layout)
        return k, v
    for first in range(0, len(addresses), _ROTATED_PAGES):  # what is rotated is float32: a little at a time
        some, tokens = (slice(first * n, (first + _ROTATED_PAGES) * n) for n in (1, _TOKENS))
        keys, values = _keys_and_values(len(addresses[some]), layout, torch.float32, addresses.device)
        _unseal_into(keys, values, addresses[some], formats[some], layout)
        for whole, x in ((k, keys), (v, values)):
            whole[:, tokens] = rotate(x, dtype=dtype)
    return k, v


def _keys_and_values(
    pages: int, layout: TritonLayerLayout, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    dims = layout.k_dim, layout.v_dim
    k, v = (torch.empty(layout.heads, pages * _TOKENS, dim, dtype=dtype, device=device) for dim in dims)
    return k, v


def _unseal_into(k: Tensor, v: Tensor, addresses: Tensor, formats: Tensor, layout: TritonLayerLayout) -> None:
    few, wide = layout.bits[0], layout.bits[-1]
    _unseal[(len(addresses), layout.heads)](
        addresses, formats, layout.offsets, k, v,
        K_DIM=layout.k_dim, V_DIM=layout.v_dim, K_BLOCK=block_of(layout.k_dim), V_BLOCK=block_of(layout.v_dim),
        K_BITS=few[0], V_BITS=few[1], SINK_K_BITS=wide[0], SINK_V_BITS=wide[1],
    )  # fmt: skip


@triton.jit
def _unseal(  # type: ignore[no-untyped-def]
    addresses, formats, offsets, k, v,
    K_DIM: tl.constexpr, V_DIM: tl.constexpr, K_BLOCK: tl.constexpr, V_BLOCK: tl.constexpr,
    K_BITS: tl.constexpr, V_BITS: tl.constexpr, SINK_K_BITS: tl.constexpr, SINK_V_BITS: tl.constexpr,
):  # fmt: skip
    page, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    address, kind = tl.load(addresses + page), tl.load(formats + page)
    offsets += kind * 6
    if (K_BITS == SINK_K_BITS and V_BITS == SINK_V_BITS) or kind == 0:
        keys = _numbers(address, offsets, head, K_DIM, PAGE, K_BITS, K_BLOCK, PAGE)
        values = _numbers(address, offsets + 3, head, PAGE, V_DIM, V_BITS, PAGE, V_BLOCK)
    else:
        keys = _numbers(address, offsets, head, K_DIM, PAGE, SINK_K_BITS, K_BLOCK, PAGE)
        values = _numbers(address, offsets + 3, head, PAGE, V_DIM, SINK_V_BITS, PAGE, V_BLOCK)
    row = ((head * tl.num_programs(0) + page) * PAGE + tl.arange(0, PAGE))[:, None]
    d, e = tl.arange(0, K_BLOCK)[None], tl.arange(0, V_BLOCK)[None]
    tl.store(k + row * K_DIM + d, tl.trans(keys.to(k.dtype.element_ty)), mask=d < K_DIM)
    tl.store(v + row * V_DIM + e, values.to(v.dtype.element_ty), mask=e < V_DIM)


@triton.jit
def _numbers(address, offsets, head, ROWS: tl.constexpr, COLS: tl.constexpr, BITS: tl.constexpr, ROW_BLOCK: tl.constexpr, COL_BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: E501 # fmt: skip
    """The numbers [ROWS, COLS] of a head of the record at ``address``, float32."""
    if BITS == 16:
        r, c = tl.arange(0, ROW_BLOCK)[:, None], tl.arange(0, COL_BLOCK)[None]
        wide = tl.multiple_of((address + tl.load(offsets)).to(tl.pointer_type(tl.bfloat16)), 16)
        x = tl.load(wide + (head * ROWS + r) * COLS + c, mask=(r < ROWS) & (c < COLS), other=0).to(tl.float32)
    else:
        codes, scale, zero = load(address, offsets, head, ROWS, COLS, BITS, ROW_BLOCK, COL_BLOCK)
        x = codes.to(tl.float32) * scale[:, None] + zero[:, None]
    return x


# --- Sketches


@launching
def make_sketch(addresses: Tensor, formats: Tensor, layout: TritonLayerLayout) -> Sketch:
    """``sketch.make_sketch`` of the keys that the records of pages [n] hold."""
    n, h, d, device = len(addresses), layout.heads, layout.k_dim, addresses.device
    codes = torch.empty(h, n, d, _TOKENS * BITS // 8, dtype=torch.uint8, device=device)
    scale, zero = torch.empty(2, h, n, d, dtype=torch.float16, device=device).unbind()
    few, many = layout.bits[0][0], layout.bits[-1][0]
    _sketch[(n, h)](
        addresses, formats, layout.offsets, codes, scale, zero, DIM=d, BLOCK=block_of(d), K_BITS=few, SINK_K_BITS=many
    )
    return Sketch(codes, scale, zero)


@triton.jit
def _sketch(addresses, formats, offsets, codes, scale, zero, DIM: tl.constexpr, BLOCK: tl.constexpr, K_BITS: tl.constexpr, SINK_K_BITS: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: E501 # fmt: skip
    page, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    address, kind = tl.load(addresses + page), tl.load(formats + page)
    offsets += kind * 6
    if K_BITS == SINK_K_BITS or kind == 0:
        keys = _numbers(address, offsets, head, DIM, PAGE, K_BITS, BLOCK, PAGE)
    else:
        keys = _numbers(address, offsets, head, DIM, PAGE, SINK_K_BITS, BLOCK, PAGE)
    keys = tl.minimum(tl.maximum(keys, -_MAX), _MAX)
    a, b = range_of(tl.min(keys, 1)[:, None], tl.max(keys, 1)[:, None], 3)
    code = code_of(keys, a, b, 3)  # [BLOCK, 64]
    byte = tl.sum(tl.reshape(code, (BLOCK, 4, 16)).to(tl.int32) << (tl.arange(0, 4)[None, :, None] * 2), 1)
    d, j = tl.arange(0, BLOCK)[:, None], tl.arange(0, 16)[None]
    at = (head * tl.num_programs(0) + page) * DIM + d
    tl.store(codes + at * 16 + j, byte.to(tl.uint8), mask=d < DIM)
    tl.store(scale + at, a, mask=d < DIM)
    tl.store(zero + at, b, mask=d < DIM)


@launching
def best_scores(q: Tensor, sketch: Sketch, extra: Tensor | None = None) -> Tensor:
    """``sketch.best_scores``: the approximately greatest q . key of each page, [H, Q, n] float32 from q [H, Q, D]. The
    sketch may be the first pages of a larger one.
    """
    (h, queries, d), n = q.shape, sketch.codes.shape[1]
    assert all(part[0].is_contiguous() for part in sketch)
    out = torch.empty(h, queries, n, device=q.device)
    block = min(64, block_of(queries))
    _best[(n, h, triton.cdiv(queries, block))](
        q.contiguous(), *sketch, None if extra is None else extra.contiguous(), out, queries, sketch.scale.stride(0),
        DIM=d, BLOCK=block_of(d), QUERIES=block,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["queries", "head_stride"])
def _best(q, codes, scale, zero, extra, out, queries, head_stride, DIM: tl.constexpr, BLOCK: tl.constexpr, QUERIES: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: E501 # fmt: skip
    page, head, pages = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(0)
    at = head.to(tl.int64) * head_stride + page * DIM
    i, d, t = tl.program_id(2) * QUERIES + tl.arange(0, QUERIES)[:, None], tl.arange(0, BLOCK)[None], tl.arange(0, PAGE)
    mine = head * queries + i
    query = tl.load(q + mine * DIM + d, mask=(i < queries) & (d < DIM), other=0).to(tl.float32)
    scores = sketch_scores(query, codes + at * 16, scale + at, zero + at, DIM, BLOCK)
    if extra is not None:
        scores += tl.load(extra + (mine * pages + page) * PAGE + t[None], mask=i < queries, other=0)
    tl.store(out + mine * pages + page, tl.max(scores, 1)[:, None], mask=i < queries)


@triton.jit
def sketch_scores(query, codes, scale, zero, DIM: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The products of queries [Q, BLOCK], float32, with the 64 keys of a page that its sketch tells approximately."""
    keys, a, b = decode(codes, scale, zero, DIM, PAGE, 2, BLOCK, PAGE)
    return tl.dot(half_of(query * a[None]), keys) + tl.sum(query * b[None], 1)[:, None]


# --- Rotation


@launching
def rotate(x: Tensor, more: Tensor | None = None, dtype: torch.dtype = torch.float32) -> Tensor:
    """``quant.rotate`` of x [..., n], plus ``more`` where given, in ``dtype``."""
    n = x.shape[-1]
    rows = x.reshape(-1, n)
    out = torch.empty(rows.shape, dtype=dtype, device=x.device)
    size = n & -n
    _rotate[(triton.cdiv(len(rows), 16), n // size)](
        rows,
        None if more is None else more.reshape(-1, n),
        out,
        len(rows),
        *rows.stride(),
        WIDTH=n,
        SIZE=size,
        BLOCK=block_of(size),
    )
    return out.view(x.shape)


@triton.jit(do_not_specialize=["rows"])
def _rotate(x, more, out, rows, row_stride, col_stride, WIDTH: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # fmt: skip
    """Rows times a block of the Hadamard matrix: the sign at (i, j) is the parity of i & j (Sylvester)."""
    r, i, j = tl.program_id(0) * 16 + tl.arange(0, 16), tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    bits = i[:, None] & j[None]
    bits ^= bits >> 4
    bits ^= bits >> 2
    bits ^= bits >> 1
    sign = tl.where((i[:, None] < SIZE) & (j[None] < SIZE), 1.0 - 2.0 * (bits & 1).to(tl.float32), 0.0).to(tl.float16)
    first = tl.program_id(1) * SIZE
    inside = (r[:, None] < rows) & (j[None] < SIZE)
    numbers = tl.load(
        x + r[:, None] * row_stride + (first + i[None]) * col_stride,
        mask=(r[:, None] < rows) & (i[None] < SIZE),
        other=0,
    )
    high = half_of(numbers)
    low = (numbers.to(tl.float32) - high.to(tl.float32)).to(tl.float16)
    result = tl.dot(high, sign, tl.dot(low, sign)) * (1.0 / SIZE**0.5)
    at = r[:, None].to(tl.int64) * WIDTH + first + j[None]
    if more is not None:
        result += tl.load(more + at, mask=inside, other=0)
    tl.store(out + at, result.to(out.dtype.element_ty), mask=inside)
