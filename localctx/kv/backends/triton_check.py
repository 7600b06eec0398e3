"""Checks on the device itself that the fast kernel ``word_attention`` attends as the slower kernel does. Imports
Triton.

The fast kernel relies on the layout in which a compiler keeps the numbers. So before the fast kernel is used, both
kernels attend to a few small pages. If the results differ, the slower kernel is used, which decodes pages first.
"""

import logging
from functools import cache

import torch
from torch import Tensor

from localctx.kernels.triton import attention as attention_triton
from localctx.kernels.triton.records import TritonLayerLayout
from localctx.kv.codecs import Codec, make_codec
from localctx.shape import PAGE, LayerShape

NEAR = 2e-2  # greatest difference, as a share of the largest number: bf16 has three digits
_PARTS = [[0, 0, 3, 37], [0, 3, 4, 0], [0, 4, 7, 0]]  # 37 tokens are hidden; the second part is a sink
_KINDS = [0, 0, 0, 1, 0, 0, 0]
_HIDDEN, _FILLED = 21, 41  # numbers of tokens of the open page

_log = logging.getLogger("localctx")


def describe(device: torch.device) -> str:
    """Returns one line of text for ``localctx doctor``, which says which kernel attends to int8 and int4 pages on
    ``device``, and why.
    """
    shape = LayerShape(2, 128, 128)
    bf16, *codecs = (make_codec(name, shape) for name in ("bf16", "int8", "int4"))
    if not attention_triton.attends_by_words(_layout(codecs[0], bf16, device)):
        return "by the slower kernel, because the faster one needs Triton 3.5"
    doubts = {codec.format.name: doubt for codec in codecs if (doubt := doubt_about(codec, bf16, device))}
    if not doubts:
        return "by the faster kernel, which agrees with the slower one here"
    wrong = "; ".join(f"{doubt} with {name} pages" for name, doubt in doubts.items())
    return f"by the slower kernel where the faster one is not right: it {wrong}"


@cache
def doubt_about(ordinary: Codec, sink: Codec, device: torch.device) -> str:
    """Returns the reason not to use the kernel ``word_attention`` on ``device``; "" if it may be used. ``ordinary`` and
    ``sink`` are the codecs of the two kinds of pages.
    """
    try:
        off = max(_difference(ordinary, sink, device, full) for full in (False, True))
    except Exception as error:  # a compiler and a launcher may raise anything
        _log.warning("word_attention does not run", exc_info=error)
        return f"does not run ({type(error).__name__})"
    if off <= NEAR:
        return ""
    _log.warning("word_attention is off by %.0e of the largest number", off)
    return f"is off by {off:.0e} of the largest number"


def _difference(ordinary: Codec, sink: Codec, device: torch.device, full: bool) -> float:
    """Returns the greatest difference between the results of the two kernels, as a share of the largest number;
    infinity if a number is not finite. If ``full``, the kernels use a soft cap, extra scores, masses, and other pages
    for each head; otherwise they use none of these, as for most tokens.
    """
    generator, (heads, width) = torch.Generator().manual_seed(1), (ordinary.shape.kv_heads, ordinary.shape.k_dim)
    queries, count = (3 if full else 4) * heads, len(_KINDS)

    def rand(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator).to(device)

    def sent(numbers: list) -> Tensor:
        return torch.tensor(numbers, device=device)

    k, v = (rand(heads, count * PAGE, width) + 3 * rand(heads, 1, width) for _ in range(2))
    records = [codec.encode(k, v) for codec in (ordinary, sink)]
    orders = [torch.randperm(count, generator=generator).tolist() for _ in range(heads)]
    order, kinds = sent(orders if full else orders[0]), sent([_KINDS] * heads if full else _KINDS)
    some, sinks = (kept.data_ptr() + kept.shape[1] * order for kept in records)
    pages = attention_triton.TritonPages(
        sent(_PARTS), sent([0, len(_PARTS)]), torch.where(kinds == 1, sinks, some), kinds.to(torch.uint8)
    )
    q, new_k, new_v = (rand(1, n, width).bfloat16() for n in (queries, heads, heads))
    open_page = rand(2, heads, PAGE, width).bfloat16()
    extra, found = rand(queries, count * PAGE) if full else None, list[list[Tensor]]()
    for by_words in (True, False):
        opened = open_page.clone()
        places = sent([[x.data_ptr() for x in opened]]), sent([_FILLED]), sent([_HIDDEN])
        out, masses = attention_triton.attend_rows(
            q, new_k, new_v, pages, attention_triton.TritonOpenPages(*places),
            _layout(ordinary, sink, device)._replace(by_words=by_words), width**-0.5,
            softcap=3 * full, extra=extra, masses=full,
        )  # fmt: skip
        found.append([x.float() for x in (out, opened, masses) if x is not None])
    off = torch.stack([(a - b).abs().max() / b.abs().max() for a, b in zip(*found, strict=True)])
    return float(off.nan_to_num(torch.inf).max())


def _layout(ordinary: Codec, sink: Codec, device: torch.device) -> TritonLayerLayout:
    """Returns the layout of pages that consist of a single record, in the codec ``ordinary`` or ``sink``."""
    shape, both = ordinary.shape, (ordinary, sink)
    parts = [(y.k_codes, y.k_scale, y.k_zero, y.v_codes, y.v_scale, y.v_zero) for y in (c.layout for c in both)]
    bits = tuple((c.format.k_bits, c.format.v_bits) for c in both)
    return TritonLayerLayout(shape.kv_heads, shape.k_dim, shape.v_dim, bits, torch.tensor(parts, device=device))
