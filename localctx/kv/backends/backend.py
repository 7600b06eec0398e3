"""Backend: the kernels that seal pages and compute over them where they lie. One for each pool.

``TorchBackend`` is the reference without kernels of its own: pages are fetched and decoded, on any device.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from localctx.kernels.reference import Part
from localctx.kernels.sketch import Score, Sketch
from localctx.kv.page_format import PageFormat

MAX_DECODE_TOKENS = 16  # new tokens of one sequence in a decode batch; more are a chunk


class PageAddresses(NamedTuple):
    """Pages for a backend's kernels: ``bases``, their addresses (int64), and ``kinds`` (uint8), both [pages]; arrays
    or tensors, as ``Backend.place`` made them. ``mixed``: there may be two kinds behind the first page.
    """

    bases: Any
    kinds: Any
    mixed: bool = True


class PageAttention(NamedTuple):
    """Attention over sealed pages: ``out`` [Hq, T, Dv], ``lse`` [Hq, T] and, where asked for, each page's own lse for
    the last token, ``page_lse`` [Hq, pages].
    """

    out: Tensor
    lse: Tensor
    page_lse: Tensor | None


class Backend(Protocol):
    """The kernels for the pages of one pool. ``in_place``: kernels read any page in any tier. ``mixes_kinds``:
    ``unpack`` takes pages of several kinds. ``prefill_kernel``: there is a kernel for many tokens, ``prefill``.
    ``gathers``: there is one that copies records, ``gather``. ``max_batch_tokens``: new tokens of one sequence that a
    decode batch takes, 0 for no decode batches. ``best_scores`` ranks pages by their sketches, None for the default.
    """

    name: str
    in_place: bool
    mixes_kinds: bool
    prefill_kernel: bool
    gathers: bool
    max_batch_tokens: int
    best_scores: Score | None

    def selects_in_batch(self, pages: int, unbiased: bool) -> bool:
        """True if decode batches take a token that selects among so many pages; ``unbiased``: of keys that are stored
        without the bias of k_proj.
        """

    def reads(self, on_device: np.ndarray, dtype: torch.dtype) -> bool:
        """True if kernels read, for a model of ``dtype``, pages of which ``on_device`` [n] are in the device's tier."""

    def seal(self, layer: int, kind: int, payloads: Sequence[Tensor], k: Tensor, v: Tensor) -> None:
        """Encode k and v [kv_heads, pages * 64, dim] into one layer of new pages, whose bytes are ``payloads``."""

    def unpack(self, layer: int, pages: PageAddresses, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Keys and values [kv_heads, pages * 64, dim] of pages where ``unpacks`` says that it reads them."""

    def unpacks(self, on_device: np.ndarray) -> bool:
        """True if ``unpack`` reads pages of which ``on_device`` [n] are in the device's tier."""

    def decode(self, layer: int, kind: int, records: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Keys and values [kv_heads, pages * 64, dim] of ``records`` [pages, total] of a kind, which ``fetch`` made."""

    def gather(self, addresses: np.ndarray, out: Tensor, rows: np.ndarray) -> None:
        """Copy the records at ``addresses`` (int64), on the device or in pinned memory, to ``rows`` (int64) of ``out``
        [any, total], in the current stream.
        """

    def place(self, bases: np.ndarray, kinds: np.ndarray) -> PageAddresses:
        """Addresses and kinds of pages, as the kernels take them."""

    def attend(
        self,
        layer: int,
        q: Tensor,
        pages: PageAddresses,
        indices: Tensor,
        scale: float,
        *,
        skip: int = 0,
        softcap: float = 0,
        extra: Tensor | None = None,
        page_lse: bool = False,
    ) -> PageAttention:
        """Each of the tokens q [Hq, T, D] over its own pages: ``indices`` into ``pages`` are [T * n], or [H, T * n]
        where each KV head has its own. The first ``skip`` tokens of each first page are not seen; ``extra``
        [Hq, T * n * 64] is added to the scaled scores.
        """

    def prefill(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        pages: PageAddresses,
        scale: float,
        softcap: float,
        loss: float = 0,
    ) -> Part:
        """The last T tokens q [Hq, T, D] over ``pages``, and causally over k, v [H, S, D] after them. ``loss`` is the
        share of attention weights that a query may lose to pages that it skips.
        """

    def make_sketch(self, layer: int, pages: PageAddresses) -> Sketch | None:
        """The sketch of these pages' keys; None where it is made of fetched records."""


_NOT_IN_PLACE = "the torch backend reads nothing in place: pages are fetched and decoded"


class TorchBackend:
    """Seals by the codec; reads nothing in place, so that dispatch never asks it to attend."""

    name = "torch"
    in_place = mixes_kinds = prefill_kernel = gathers = False
    max_batch_tokens = 0
    best_scores: Score | None = None

    def __init__(self, page_format: PageFormat, device: torch.device) -> None:
        self._format, self._device = page_format, device

    def selects_in_batch(self, pages: int, unbiased: bool) -> bool:
        return self.in_place

    def reads(self, on_device: np.ndarray, dtype: torch.dtype) -> bool:
        return self.in_place

    @torch.inference_mode()  # a page sealed while the model ran may only be written so
    def seal(self, layer: int, kind: int, payloads: Sequence[Tensor], k: Tensor, v: Tensor) -> None:
        span = self._format.record_span(kind, layer)
        for payload, record in zip(payloads, self._format.codecs[kind][layer].encode(k, v), strict=True):
            payload[span].copy_(record)

    def unpack(self, layer: int, pages: PageAddresses, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        raise AssertionError(_NOT_IN_PLACE)

    def unpacks(self, on_device: np.ndarray) -> bool:
        return self.in_place

    def decode(self, layer: int, kind: int, records: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        return self._format.codecs[kind][layer].decode(records, dtype)

    def gather(self, addresses: np.ndarray, out: Tensor, rows: np.ndarray) -> None:
        raise AssertionError("the torch backend has no kernel that copies: records are copied one by one")

    def place(self, bases: np.ndarray, kinds: np.ndarray) -> PageAddresses:
        return PageAddresses(bases, kinds)

    def attend(
        self,
        layer: int,
        q: Tensor,
        pages: PageAddresses,
        indices: Tensor,
        scale: float,
        *,
        skip: int = 0,
        softcap: float = 0,
        extra: Tensor | None = None,
        page_lse: bool = False,
    ) -> PageAttention:
        raise AssertionError(_NOT_IN_PLACE)

    def prefill(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        pages: PageAddresses,
        scale: float,
        softcap: float,
        loss: float = 0,
    ) -> Part:
        raise AssertionError(_NOT_IN_PLACE)

    def make_sketch(self, layer: int, pages: PageAddresses) -> Sketch | None:
        return None
