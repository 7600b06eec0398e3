"""Sketches in a GPU's memory (Triton): keys at two bits, which rank pages for a query. Torch reference: ``sketch``."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from localctx.kernels.sketch import BITS, Sketch
from localctx.kernels.triton.records import (
    MOST,
    PAGE,
    TritonLayerLayout,
    block_of,
    code_of,
    decode,
    half_of,
    launching,
    numbers_of,
    range_of,
)


@launching
def make_sketch(addresses: Tensor, formats: Tensor, layout: TritonLayerLayout) -> Sketch:
    """Returns the sketch (keys at two bits) of the keys in the records at ``addresses`` [n], which have the ``formats``
    [n] of the layout.
    """
    n, h, d, device = len(addresses), layout.heads, layout.k_dim, addresses.device
    codes = torch.empty(h, n, d, PAGE.value * BITS // 8, dtype=torch.uint8, device=device)
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
        keys = numbers_of(address, offsets, head, DIM, PAGE, K_BITS, BLOCK, PAGE)
    else:
        keys = numbers_of(address, offsets, head, DIM, PAGE, SINK_K_BITS, BLOCK, PAGE)
    keys = tl.minimum(tl.maximum(keys, -MOST), MOST)
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
    """Returns the greatest approximate score of a query with the 64 keys of a page, for each query and page: [H, Q, n]
    float32 from q [H, Q, D]. ``extra`` [H, Q, n * 64] is added to the scores of single keys.

    The tensors of the sketch may be views of the first pages of a larger sketch.
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
    """Returns the approximate products of ``query`` [Q, BLOCK] float32 with the 64 keys of one page: [Q, 64]. The
    sketch of the page is at the addresses ``codes``, ``scale`` and ``zero``. DIM is the number of channels of a key.
    """
    keys, a, b = decode(codes, scale, zero, DIM, PAGE, 2, BLOCK, PAGE)
    return tl.dot(half_of(query * a[None]), keys) + tl.sum(query * b[None], 1)[:, None]
