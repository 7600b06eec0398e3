"""Seals pages into records in a GPU's memory, and reads them back as keys and values (Triton).

Torch reference: ``quant``.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from localctx.kernels.triton.records import (
    MOST,
    PAGE,
    TritonLayerLayout,
    block_of,
    code_of,
    launching,
    numbers_of,
    range_of,
)
from localctx.kernels.triton.rotation import rotate

_TOKENS = PAGE.value
_ROTATED_PAGES = 32  # pages rotated at a time


@launching
def seal(k: Tensor, v: Tensor, addresses: Tensor, layout: TritonLayerLayout, kind: int, rotated: bool = False) -> None:
    """Encode k [H, n * 64, D] and v [H, n * 64, Dv] as records, and write them to the pages at ``addresses`` [n].
    ``kind`` is the record format in the layout.

    ``rotated``: k and v are Hadamard-rotated first. The records are those of ``quant.quantize`` and ``quant.pack``
    (KIVI's groups).
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
    """Quantize x [ROWS, COLS], one group per row, and write codes, scales and zeros to one head of the record at
    ``address``.
    """
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
        numbers = tl.minimum(tl.maximum(numbers, -MOST), MOST)
        low = tl.min(tl.where(inside, numbers, MOST), 1)[:, None]
        high = tl.max(tl.where(inside, numbers, -MOST), 1)[:, None]
        scale, zero = range_of(low, high, LEVELS)
        meta = head * ROWS + r
        tl.store((address + tl.load(offsets + 1)).to(tl.pointer_type(tl.float16)) + meta, scale, mask=r < ROWS)
        tl.store((address + tl.load(offsets + 2)).to(tl.pointer_type(tl.float16)) + meta, zero, mask=r < ROWS)
        packed = tl.zeros((ROW_BLOCK, COL_BLOCK), tl.uint8)
        mine = (r < ROWS) & (c < WIDTH)
        for part in tl.static_range(8 // BITS):  # reload the numbers, which are still cached
            some = tl.load(x + r * row_stride + (part * WIDTH + c) * col_stride, mask=mine, other=0).to(tl.float32)
            packed |= code_of(some, scale, zero, LEVELS) << (part * BITS)
        tl.store(codes + (head * ROWS + r) * WIDTH + c, packed, mask=mine)


@launching
def unseal(
    addresses: Tensor, formats: Tensor, layout: TritonLayerLayout, dtype: torch.dtype, rotated: bool = False
) -> tuple[Tensor, Tensor]:
    """Returns the keys [H, n * 64, D] and values [H, n * 64, Dv] of records in ``dtype``, rotated back if ``rotated``.

    The records are at ``addresses`` [n] and have the ``formats`` [n] of the layout.
    """
    k, v = _keys_and_values(len(addresses), layout, dtype, addresses.device)
    if not rotated:
        _unseal_into(k, v, addresses, formats, layout)
        return k, v
    for first in range(0, len(addresses), _ROTATED_PAGES):  # a few at a time, because rotation takes float32
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
        keys = numbers_of(address, offsets, head, K_DIM, PAGE, K_BITS, K_BLOCK, PAGE)
        values = numbers_of(address, offsets + 3, head, PAGE, V_DIM, V_BITS, PAGE, V_BLOCK)
    else:
        keys = numbers_of(address, offsets, head, K_DIM, PAGE, SINK_K_BITS, K_BLOCK, PAGE)
        values = numbers_of(address, offsets + 3, head, PAGE, V_DIM, SINK_V_BITS, PAGE, V_BLOCK)
    row = ((head * tl.num_programs(0) + page) * PAGE + tl.arange(0, PAGE))[:, None]
    d, e = tl.arange(0, K_BLOCK)[None], tl.arange(0, V_BLOCK)[None]
    tl.store(k + row * K_DIM + d, tl.trans(keys.to(k.dtype.element_ty)), mask=d < K_DIM)
    tl.store(v + row * V_DIM + e, values.to(v.dtype.element_ty), mask=e < V_DIM)
