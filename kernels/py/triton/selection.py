"""Page selection in a GPU's memory (Triton), without a sync with the CPU, so that a CUDA graph can capture it.

Torch reference: ``cpu.selection.choose`` with a ``score``.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from localctx.kernels.sketch import LEAST
from localctx.kernels.triton.records import block_of, launching
from localctx.kernels.triton.sketch import sketch_scores

MAX_PAGES = 8192
"""Most pages of a sequence: one program holds them all in its registers."""
_WIDTHS = {1024: (4, 8), 2048: (4, 16), 4096: (2, 16), MAX_PAGES: (1, 16)}
"""By the number of pages that a program is compiled for: queries ranked at a time, and warps, so that none spills."""
_LEAST = tl.constexpr(float(LEAST))
_ALWAYS = tl.constexpr(0x7F800001)  # above the result of ``_bits`` for any number


class TritonSketch(NamedTuple):
    """A sketch (keys at two bits) in GPU memory, given by address. ``place`` [4] int64 has the addresses of the codes,
    scales and zeros, and the number of pages for which each head has memory.

    ``numbers`` [2] int64 has the number of pages in the sketch and the number of pages to choose, which is not larger.
    """

    place: Tensor
    numbers: Tensor


class ChosenPages(NamedTuple):
    """The pages that each KV head chose, in ascending order: their ``addresses``, ``formats`` and ``indices``, each [H,
    room].

    ``room`` may be larger than the number of chosen pages. In the places left over, ``indices`` are 0, and
    ``addresses`` and ``formats`` are undefined.
    """

    addresses: Tensor
    formats: Tensor
    indices: Tensor


@launching
def choose(
    q: Tensor, scale: float, sketch: TritonSketch, addresses: Tensor, formats: Tensor, sinks: int, room: int
) -> ChosenPages:
    """Choose for each KV head the pages that should get the most attention, by the ranks that ``cpu.selection.choose``
    describes. q [H, Q, D] are queries before scaling, and ``scale`` is the factor of scores. The first ``sinks`` pages
    and the last page are always chosen; ties go to the earlier page.

    ``addresses`` and ``formats`` [pages] are those of all pages of the sequence. The sketch may have fewer pages, but
    not more. ``sketch.numbers`` says how many pages to choose, and ``room`` is at least that number: the results have
    ``room`` places per head.
    """
    scores, heads = best_scores(q, scale, sketch, len(addresses)), len(q)
    found = torch.empty(2, heads, room, dtype=torch.int64, device=q.device)
    kinds = torch.empty(heads, room, dtype=torch.uint8, device=q.device)
    width = next(width for width in _WIDTHS if width >= len(addresses))
    together, warps = _WIDTHS[width]
    _choose[(heads,)](
        scores, sketch.numbers, addresses, formats, found[0], kinds, found[1], len(addresses), sinks, room,
        QUERIES=q.shape[1], TOGETHER=min(together, triton.next_power_of_2(q.shape[1])), WIDTH=width, num_warps=warps,
    )  # fmt: skip
    return ChosenPages(found[0], kinds, found[1])


@launching
def best_scores(q: Tensor, scale: float, sketch: TritonSketch, most: int) -> Tensor:
    """Returns the greatest approximate score of a query with the 64 keys of a page, for each query and page: [H, Q,
    most] float32. q [H, Q, D] are queries before scaling, and ``scale`` is the factor of scores. The sketch has at most
    ``most`` pages. Scores of pages that it does not have are undefined.
    """
    heads, queries, dim = q.shape
    assert q.stride(-1) == 1
    out = torch.empty(heads, queries, most, device=q.device)
    block = min(64, block_of(queries))
    _best_at[(most, heads, triton.cdiv(queries, block))](
        q, sketch.place, sketch.numbers, out, float(scale), queries, *q.stride()[:2],
        DIM=dim, BLOCK=block_of(dim), QUERIES=block,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["queries", "q_head", "q_row"])
def _best_at(q, place, numbers, out, factor, queries, q_head, q_row, DIM: tl.constexpr, BLOCK: tl.constexpr, QUERIES: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: E501 # fmt: skip
    page, head, most = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(0)
    if page < tl.load(numbers):
        at = (head * tl.load(place + 3) + page) * DIM
        codes = tl.multiple_of(tl.load(place).to(tl.pointer_type(tl.uint8)), 16)
        scale = tl.multiple_of(tl.load(place + 1).to(tl.pointer_type(tl.float16)), 16)
        zero = tl.multiple_of(tl.load(place + 2).to(tl.pointer_type(tl.float16)), 16)
        i, d = tl.program_id(2) * QUERIES + tl.arange(0, QUERIES)[:, None], tl.arange(0, BLOCK)[None]
        query = tl.load(q + head * q_head + i * q_row + d, mask=(i < queries) & (d < DIM), other=0).to(tl.float32)
        scores = sketch_scores(query * factor, codes + at * 16, scale + at, zero + at, DIM, BLOCK)
        tl.store(out + (head * queries + i) * most + page, tl.max(scores, 1)[:, None], mask=i < queries)


@triton.jit(do_not_specialize=["most", "sinks", "room"])
def _choose(  # type: ignore[no-untyped-def]
    scores, numbers, addresses, formats, chosen_addresses, chosen_formats, indices, most, sinks, room,
    QUERIES: tl.constexpr, TOGETHER: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Choose the pages of one KV head. One program holds the scores of all pages in registers."""
    head, page = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    pages, count = tl.load(numbers).to(tl.int32), tl.load(numbers + 1).to(tl.int32)
    promised = tl.zeros((WIDTH,), tl.float32)
    scores += head * QUERIES * most
    for first in range(0, QUERIES, TOGETHER):
        query = first + tl.arange(0, TOGETHER)[:, None]
        row = tl.minimum(query, QUERIES - 1) * most
        some = tl.load(scores + row + page[None], mask=page[None] < pages, other=float("-inf"))
        weights = _weights(some, pages, count)
        promised += tl.sum(tl.where(query < QUERIES, weights, 0.0), 0)
    always = (page < sinks) | (page == pages - 1)
    keys = tl.where(always, _ALWAYS, _bits(promised))
    chosen, place = _greatest(tl.where(page < pages, keys, -1), count)
    indices += head * room
    tl.store(indices + place, page.to(tl.int64), mask=chosen)
    tl.store(indices + page, tl.zeros_like(page).to(tl.int64), mask=(page >= count) & (page < room))
    tl.store(chosen_addresses + head * room + place, tl.load(addresses + page, mask=chosen, other=0), mask=chosen)
    tl.store(chosen_formats + head * room + place, tl.load(formats + page, mask=chosen, other=0), mask=chosen)


@triton.jit
def _weights(scores, pages, count):  # type: ignore[no-untyped-def]
    """Returns the weights of pages for each query: exp of the ``scores`` [queries, WIDTH], divided by the query's
    ``count``-th greatest weight. Only the first ``pages`` scores are real.
    """
    top = tl.max(scores, 1)[:, None]
    weights = tl.exp(scores - tl.where(top > float("-inf"), top, 0.0))
    page = tl.arange(0, scores.shape[1])[None]
    least = _count_greatest(tl.where(page < pages, _bits(weights), -1), count).to(tl.float32, bitcast=True)
    return weights * (1.0 / tl.maximum(least, tl.sum(weights, 1) * _LEAST))[:, None]


@triton.jit
def _bits(x):  # type: ignore[no-untyped-def]
    """Returns the bits of non-negative numbers x as integers, which sort like the numbers. The bits of any other number
    are clamped to the bits of 0 or infinity.
    """
    return tl.minimum(tl.maximum(x.to(tl.int32, bitcast=True), 0), 0x7F800000)


@triton.jit
def _count_greatest(keys, count):  # type: ignore[no-untyped-def]
    """Returns the ``count``-th greatest of each row of keys [rows, WIDTH], found by bisection. At least ``count`` keys
    of a row are >= 0.
    """
    low = tl.zeros_like(tl.max(keys, 1))
    high = low + (_ALWAYS + 1)
    while tl.max(high - low, 0) > 1:  # at least ``count`` keys are >= low, fewer are >= high
        middle = low + (high - low) // 2
        found = tl.sum((keys >= middle[:, None]).to(tl.int32), 1)
        low = tl.where(found >= count, middle, low)
        high = tl.where(found > count, high, tl.where(found == count, middle + 1, middle))
    return tl.min(tl.where(keys >= low[:, None], keys, _ALWAYS), 1)


@triton.jit
def _greatest(keys, count):  # type: ignore[no-untyped-def]
    """Returns a mask of the ``count`` greatest keys [WIDTH], and the index of each one among them. Among equal keys,
    the first ones are taken.
    """
    least = tl.max(_count_greatest(keys[None], count), 0)
    greater, equal = (keys > least).to(tl.int32), (keys == least).to(tl.int32)
    before = tl.cumsum(greater * 65_536 + equal, 0)  # two sums in one
    above, same = before >> 16, before & 65_535
    room = count - tl.sum(greater, 0)
    return (greater > 0) | ((equal > 0) & (same <= room)), above + tl.minimum(same, room) - 1
