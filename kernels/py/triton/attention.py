"""Attention of new tokens over page records in a GPU's memory (Triton).

On the CPU, ``cpu.decode`` and ``cpu.decode_batch`` compute the same. Records and open pages are given by address: they
may be in any mix of allocations, and must outlive the call. A record begins at a multiple of 16 bytes. The reference is
``reference.attend_reference`` over the decoded records.
"""

from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from localctx.kernels.triton import word_attention
from localctx.kernels.triton.layouts import HAS_GLUON
from localctx.kernels.triton.records import (
    PAGE,
    TritonLayerLayout,
    block_of,
    column_order,
    half_of,
    launching,
    load_half,
)
from localctx.kernels.triton.rotation import rotate

_HIDDEN = tl.constexpr(-1e30)
_RESOURCES: dict[int, dict[str, int]] = {  # by head width
    64: {"num_warps": 4, "num_stages": 1},
    128: {"num_warps": 4, "num_stages": 1, "maxnreg": 128},  # spills some, but four programs beat two
    256: {"num_warps": 8, "num_stages": 1},
}
_MERGED = 128  # parts that one step of the merge reads
_SLICE = 32  # values that one program of the merge computes


class TritonPages(NamedTuple):
    """The sealed pages that each of n rows attends to. A row is one new token of one sequence. The pages of all rows
    are listed one after another.

    ``addresses`` int64 and ``formats`` uint8 (record formats of the layout) are [pages], or [H, pages] if each KV head
    has other pages. ``parts`` [S, 4] int64 split the list into tasks whose pages have one format: (row, first page, end
    page, number of hidden tokens in the first page). Row i has the parts ``bounds[i]`` to ``bounds[i + 1]`` (int64 [n +
    1]). The kernel ignores parts of zeros after the last row's parts, and pages in no part.
    """

    parts: Tensor
    bounds: Tensor
    addresses: Tensor
    formats: Tensor


class TritonOpenPages(NamedTuple):
    """The open (partly filled) page of each of n rows. A row is one new token of one sequence. ``addresses`` [n, 2]
    int64 point to the page's keys [H, 64, D] and values [H, 64, Dv] in bf16.

    The page of a row has ``filled`` [n] tokens, fewer than 64, of which the first ``hidden`` [n] are not seen. The
    kernel writes the row's new token after them.
    """

    addresses: Tensor
    filled: Tensor
    hidden: Tensor


def parts_wanted(layout: TritonLayerLayout) -> int:
    """Returns into how many parts the pages of a row should be split, in layers with this ``layout``. A program attends
    to each part, and their results are merged.

    The number is large enough to give a GPU enough programs, and small enough for a quick merge.
    """
    return max(128, 1024 // layout.heads) if attends_by_words(layout) else max(64, 512 // layout.heads)


def attends_by_words(layout: TritonLayerLayout) -> bool:
    """Returns True if the faster kernel ``word_attention`` supports pages of this ``layout``. That kernel also needs at
    most 8 query heads per KV head, which the caller checks.
    """
    width = word_attention.WIDTH
    return (
        HAS_GLUON
        and layout.by_words
        and (layout.k_dim, layout.v_dim) == (width, width)
        and layout.bits[0] in word_attention.BITS
        and layout.bits[-1] == (16, 16)
    )


def bounds_of(parts: np.ndarray, rows: int) -> np.ndarray:
    """Returns ``TritonPages.bounds`` [rows + 1], the index of each row's first part, for ``parts`` [S, 4] on the CPU.
    ``rows`` is the number of rows.
    """
    return np.searchsorted(parts[:, 0], np.arange(rows + 1))


@launching
def attend_rows(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pages: TritonPages,
    tails: TritonOpenPages,
    layout: TritonLayerLayout,
    scale: float,
    *,
    softcap: float = 0,
    sinks: Tensor | None = None,
    extra: Tensor | None = None,
    rotated: bool = False,
    masses: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attend with one new token per row: q [n, Hq, D], k [n, H, D] and v [n, H, Dv]. A row sees its sealed ``pages``,
    its open page (``tails``) and itself. ``scale`` is the factor of scores.

    Returns out [n, Hq, Dv] in q's precision and, with ``masses``, the share of the row's attention that each page got,
    [Hq, pages] (else None). ``rotated``: pages were rotated by ``quant.rotate``. ``extra`` [Hq, pages * 64] is added to
    the scaled scores. With ``softcap`` c > 0, a score becomes c * tanh(score / c). ``sinks`` [Hq] are learned logits
    that take attention mass but add no value.
    """
    out, lse, each = _attend(q, (k, v, tails), pages, layout, scale, softcap, sinks, extra, rotated, masses)
    if each is None:
        return out, None
    first, stop = pages.parts[:, 1], pages.parts[:, 2]
    row = torch.zeros(each.shape[1] + 1, dtype=torch.int64, device=q.device)
    for ends, by in ((first, 1), (stop, -1)):
        row.index_add_(0, ends, by * (pages.parts[:, 0] + 1))
    row = row.cumsum(0)[:-1]  # row of each page, from 1; 0 for a page in no part
    share = (each - lse[(row - 1).clamp_min(0)].T).exp()
    return out, share.masked_fill(row == 0, 0)


@launching
def attend_pages(
    q: Tensor,
    pages: TritonPages,
    layout: TritonLayerLayout,
    scale: float,
    *,
    softcap: float = 0,
    extra: Tensor | None = None,
    rotated: bool = False,
    masses: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Attend with queries q [n, Hq, D] to their sealed pages only. Every query must see at least one page.

    Returns out [n, Hq, Dv] in q's precision, lse [n, Hq] float32 and, with ``masses``, the log-sum-exp of each single
    page [Hq, pages] (else None). ``extra`` [Hq, pages * 64] is added to the scaled scores. With ``softcap`` c > 0, a
    score becomes c * tanh(score / c). ``rotated``: pages were rotated by ``quant.rotate``.
    """
    return _attend(q, None, pages, layout, scale, softcap, None, extra, rotated, masses)


def _attend(
    q: Tensor,
    new: tuple[Tensor, Tensor, TritonOpenPages] | None,
    pages: TritonPages,
    layout: TritonLayerLayout,
    scale: float,
    softcap: float,
    sinks: Tensor | None,
    extra: Tensor | None,
    rotated: bool,
    masses: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Launch two kernels, as in Flash-Decoding: the first attends to parts of the context, the second merges the
    results.

    All rows share one call, and pages are found by a table, as in PagedAttention (arXiv:2309.06180).
    """
    (n, heads, _), device = q.shape, q.device
    q = q.contiguous() if rotated else q  # ``rotate`` returns a contiguous tensor, and both have one stride
    assert all(x.stride(-1) == 1 for x in (q, *(new or ())[:2]))
    count, group = len(pages.parts), heads // layout.heads
    slots = count + (n if new else 0)
    out = torch.empty(slots, heads, layout.v_dim, device=device)
    tops, totals = torch.empty(2, slots, heads, device=device).unbind()
    per_head = pages.addresses.shape[-1]
    each = torch.full((heads, per_head), float("-inf"), device=device) if masses else None
    k, v, tails = new or (None, None, TritonOpenPages(None, None, None))  # type: ignore[arg-type]
    given = (
        q, rotate(q) if rotated else q, k, v, pages.parts, pages.addresses, pages.formats, layout.offsets,
        tails.addresses, tails.filled, tails.hidden, None if extra is None else extra.contiguous(),
        out, tops, totals, each, count, per_head, per_head if pages.addresses.dim() == 2 else 0,
        float(scale), float(softcap), *q.stride()[:2], *(k.stride()[:2] if k is not None else (0, 0)),
        *(v.stride()[:2] if v is not None else (0, 0)),
    )  # fmt: skip
    few, many = layout.bits[0], layout.bits[-1]
    if attends_by_words(layout) and group <= word_attention.MOST_HEADS:
        word_attention.attend_parts[(slots, layout.heads)](
            *given, HEADS=layout.heads, GROUP=group, K_BITS=few[0], V_BITS=few[1], CAPPED=softcap > 0, num_warps=1
        )
    else:
        wide = max(64, block_of(layout.k_dim), block_of(layout.v_dim))
        _attend_parts[(slots, layout.heads)](
            *given, HEADS=layout.heads, GROUP=group, GROUPS=block_of(group), K_DIM=layout.k_dim, V_DIM=layout.v_dim,
            K_BLOCK=block_of(layout.k_dim), V_BLOCK=block_of(layout.v_dim), K_BITS=few[0], V_BITS=few[1],
            SINK_K_BITS=many[0], SINK_V_BITS=many[1], CAPPED=softcap > 0,
            **_RESOURCES[min(wide, 256)],
        )  # fmt: skip
    result = torch.empty(n, heads, layout.v_dim, dtype=torch.float32 if rotated else q.dtype, device=device)
    out_rotated = torch.empty_like(result) if rotated else None
    lse = torch.empty(n, heads, device=device)
    _merge[(n, heads, -(-layout.v_dim // _SLICE))](
        out, tops, totals, pages.bounds, sinks, result, out_rotated, lse, count, heads,
        TAIL=new is not None, V_DIM=layout.v_dim, SLICE=_SLICE, MERGED=_MERGED, num_warps=4,
    )  # fmt: skip
    return (result if out_rotated is None else rotate(out_rotated, result, q.dtype)), lse, each


@triton.jit(do_not_specialize=["count", "per_head", "head_stride"])
def _attend_parts(  # type: ignore[no-untyped-def]
    q, q_rotated, k_new, v_new, parts, addresses, formats, offsets,
    tails, filled, hidden, extra,
    out, tops, totals, masses, count, per_head, head_stride,
    scale, softcap, q_row, q_head, k_row, k_head, v_row, v_head,
    HEADS: tl.constexpr, GROUP: tl.constexpr, GROUPS: tl.constexpr, K_DIM: tl.constexpr, V_DIM: tl.constexpr,
    K_BLOCK: tl.constexpr, V_BLOCK: tl.constexpr, K_BITS: tl.constexpr, V_BITS: tl.constexpr,
    SINK_K_BITS: tl.constexpr, SINK_V_BITS: tl.constexpr, CAPPED: tl.constexpr,
):  # fmt: skip
    """Attend with the query heads of one KV head to a part of a row's pages. Programs from index ``count`` on attend to
    a row's open page instead.
    """
    part, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i, d, t = tl.arange(0, GROUPS), tl.arange(0, K_BLOCK)[None], tl.arange(0, PAGE)
    asks = (i[:, None] < GROUP) & (d < K_DIM)
    query = head * GROUP + i
    acc = tl.zeros((GROUPS, V_BLOCK), tl.float32)
    top = tl.full((GROUPS,), _HIDDEN, tl.float32)
    total = tl.zeros((GROUPS,), tl.float32)
    e = tl.arange(0, V_BLOCK)
    if part < count:
        row, first = tl.load(parts + part * 4), tl.load(parts + part * 4 + 1)
        stop, skip = tl.load(parts + part * 4 + 2), tl.load(parts + part * 4 + 3)
        queries = half_of(tl.load(q_rotated + row * q_row + query[:, None] * q_head + d, mask=asks, other=0))
        addresses += head * head_stride
        kind = tl.load(formats + head * head_stride + first)
        if (K_BITS == SINK_K_BITS and V_BITS == SINK_V_BITS) or kind == 0:
            acc, top, total, e = _over_pages(
                queries, addresses, offsets + kind * 6, extra, masses, head, query, first, stop, skip, per_head, scale,
                softcap, GROUP, K_DIM, V_DIM, K_BLOCK, V_BLOCK, K_BITS, V_BITS, CAPPED,
            )  # fmt: skip
        else:
            acc, top, total, e = _over_pages(
                queries, addresses, offsets + kind * 6, extra, masses, head, query, first, stop, skip, per_head, scale,
                softcap, GROUP, K_DIM, V_DIM, K_BLOCK, V_BLOCK, SINK_K_BITS, SINK_V_BITS, CAPPED,
            )  # fmt: skip
    elif k_new is not None:
        row = part - count
        end = tl.load(filled + row)
        queries = half_of(tl.load(q + row * q_row + query[:, None] * q_head + d, mask=asks, other=0))
        k_new += row * k_row + head * k_head
        v_new += row * v_row + head * v_head
        k = _tail(tl.load(tails + row * 2), k_new, end, head, K_DIM, K_BLOCK)
        v = _tail(tl.load(tails + row * 2 + 1), v_new, end, head, V_DIM, V_BLOCK)
        s = tl.dot(queries, tl.trans(half_of(k))) * scale
        seen = (t >= tl.load(hidden + row)) & (t <= end)
        p, acc, top, total = _see(s, seen[None], softcap, acc, top, total, CAPPED)
        acc += tl.dot(p.to(tl.float16), half_of(v))
    at = part * (HEADS * GROUP) + query
    tl.store(out + at[:, None] * V_DIM + e[None], acc, mask=(i[:, None] < GROUP) & (e[None] < V_DIM))
    tl.store(tops + at, top, mask=i < GROUP)
    tl.store(totals + at, total, mask=i < GROUP)


@triton.jit
def _over_pages(  # type: ignore[no-untyped-def]
    queries, addresses, offsets, extra, masses, head, query, first, stop, skip, per_head, scale, softcap,
    GROUP: tl.constexpr, K_DIM: tl.constexpr, V_DIM: tl.constexpr, K_BLOCK: tl.constexpr, V_BLOCK: tl.constexpr,
    K_BITS: tl.constexpr, V_BITS: tl.constexpr, CAPPED: tl.constexpr,
):  # fmt: skip
    """Attend to the pages ``first`` to ``stop``. Returns the weighted sum of values, the top score, the sum of weights,
    and the ``column_order`` of the weighted sum. Weights are relative to the top score.
    """
    t, d = column_order(PAGE, K_BITS, PAGE), tl.arange(0, K_BLOCK)
    mine = query - head * GROUP < GROUP
    acc = tl.zeros((queries.shape[0], V_BLOCK), tl.float32)
    top = tl.full((queries.shape[0],), _HIDDEN, tl.float32)
    total = tl.zeros((queries.shape[0],), tl.float32)
    k_codes, k_scale, k_zero = tl.load(offsets), tl.load(offsets + 1), tl.load(offsets + 2)
    v_codes, v_scale, v_zero = tl.load(offsets + 3), tl.load(offsets + 4), tl.load(offsets + 5)
    following = tl.load(addresses + first)
    for page in range(first, stop):
        at = following
        following = tl.load(addresses + tl.minimum(page + 1, stop - 1))  # loaded early, because all else waits for it
        k = load_half(at + k_codes, at + k_scale, at + k_zero, head, d, K_DIM, PAGE, K_BITS, PAGE)
        v = load_half(at + v_codes, at + v_scale, at + v_zero, head, t, PAGE, V_DIM, V_BITS, V_BLOCK)
        s = tl.dot(queries, k) * scale
        if extra is not None:
            more = (query[:, None] * per_head + page) * PAGE + t[None]
            s += tl.load(extra + more, mask=mine[:, None], other=0)
        seen = (page > first) | (t >= skip)
        p, acc, top, total = _see(s, seen[None], softcap, acc, top, total, CAPPED)
        if masses is not None:
            tl.store(masses + query * per_head + page, top + tl.log(tl.sum(p, 1)), mask=mine)
        acc += tl.dot(p.to(tl.float16), v)
    return acc, top, total, column_order(V_DIM, V_BITS, V_BLOCK)


@triton.jit
def _see(s, seen, softcap, acc, top, total, CAPPED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Do one step of online softmax with 64 more scores s. Returns their weights, and the running sums rescaled to the
    new top score.
    """
    if CAPPED:
        s = softcap * (1 - 2 / (tl.exp(2 * s / softcap) + 1))
    s = tl.where(seen, s, _HIDDEN)
    higher = tl.maximum(top, tl.max(s, 1))
    shrink, p = tl.exp(top - higher), tl.exp(s - higher[:, None])
    return p, acc * shrink[:, None], higher, total * shrink + tl.sum(p, 1)


@triton.jit
def _tail(address, new, end, head, DIM: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns the keys or values [64, BLOCK] of one head in an open page, with ``new`` as row ``end``. Writes ``new``
    to the page too.
    """
    t, d = tl.arange(0, PAGE)[:, None], tl.arange(0, BLOCK)[None]
    place = tl.multiple_of(address.to(tl.pointer_type(tl.bfloat16)), 16) + (head * PAGE + t) * DIM + d
    token = tl.load(new + d + tl.zeros_like(t), mask=(t == end) & (d < DIM), other=0)
    x = tl.load(place, mask=(t < end) & (d < DIM), other=0)
    tl.store(place, token, mask=(t == end) & (d < DIM))
    return tl.where(t == end, token, x)


@triton.jit(do_not_specialize=["count"])
def _merge(  # type: ignore[no-untyped-def]
    out, tops, totals, bounds, sinks, result, out_rotated, lse, count, heads,
    TAIL: tl.constexpr, V_DIM: tl.constexpr, SLICE: tl.constexpr, MERGED: tl.constexpr,
):  # fmt: skip
    """Merge the parts of a row for a slice of one query head's values, like ``reference.merge``. If ``out_rotated`` is
    given, the output of the sealed pages is stored there, because it must still be rotated back.
    """
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    e = tl.program_id(2) * SLICE + tl.arange(0, SLICE)
    own = tl.zeros((SLICE,), tl.float32)
    pages = tl.zeros((SLICE,), tl.float32)
    top, total = tl.full((), _HIDDEN, tl.float32), tl.full((), 0, tl.float32)
    if TAIL:
        tail = (count + row) * heads + head
        own += tl.load(out + tail * V_DIM + e, mask=e < V_DIM, other=0)
        top, total = tl.load(tops + tail), tl.load(totals + tail)
    if sinks is not None:
        sink = tl.load(sinks + head).to(tl.float32)
        higher = tl.maximum(top, sink)
        own *= tl.exp(top - higher)
        total = total * tl.exp(top - higher) + tl.exp(sink - higher)
        top = higher
    stop = tl.load(bounds + row + 1)
    for first in range(tl.load(bounds + row), stop, MERGED):
        part = first + tl.arange(0, MERGED)
        at = part * heads + head
        each = tl.load(tops + at, mask=part < stop, other=_HIDDEN)
        higher = tl.maximum(top, tl.max(each, 0))
        weight = tl.where(part < stop, tl.exp(each - higher), 0)
        shrink = tl.exp(top - higher)
        some = tl.load(out + at[:, None] * V_DIM + e[None], mask=(part[:, None] < stop) & (e[None] < V_DIM), other=0)
        own *= shrink
        pages = pages * shrink + tl.sum(some * weight[:, None], 0)
        total = total * shrink + tl.sum(weight * tl.load(totals + at, mask=part < stop, other=0), 0)
        top = higher
    query = row * heads + head
    place = query * V_DIM + e
    if out_rotated is not None:
        tl.store(out_rotated + place, pages / total, mask=e < V_DIM)
        pages = tl.zeros((SLICE,), tl.float32)
    tl.store(result + place, ((own + pages) / total).to(result.dtype.element_ty), mask=e < V_DIM)
    tl.store(lse + query, top + tl.log(total))
