"""Backend: the kernels that seal the pages of a pool and compute over the pages where they are. Each pool has one.

``TorchBackend`` is the reference without custom kernels: pages are fetched and decoded, on any device.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from localctx.kernels.cpu.key_bias import KeyBias
from localctx.kernels.reference import Part
from localctx.kernels.sketch import Score, Sketch
from localctx.kv.page_format import PageFormat

MAX_DECODE_TOKENS = 16  # new tokens of one sequence in a decode batch; more are a chunk


class PageAddresses(NamedTuple):
    """The pages that a kernel reads: their addresses ``bases`` (int64) and their ``kinds`` (uint8, ORDINARY or SINK: in
    full precision), both [pages]. They are arrays or tensors, as ``Backend.place`` makes them. ``mixed``: pages after
    the first may be of both kinds.
    """

    bases: Any
    kinds: Any
    mixed: bool = True


class PageAttention(NamedTuple):
    """The result of attention over sealed pages: ``out`` [Hq, T, Dv] and log-sum-exp ``lse`` [Hq, T]. ``page_lse`` [Hq,
    pages] is the log-sum-exp of each single page for the last token, None unless requested.
    """

    out: Tensor
    lse: Tensor
    page_lse: Tensor | None


class Backend(Protocol):
    """The kernels for the pages of one pool. A record is one layer of one page.

    ``in_place``: kernels read any page in any tier. ``mixes_kinds``: ``unpack`` takes pages of both kinds at once.
    ``prefill_kernel``: ``prefill`` is a kernel for many tokens. ``gathers``: ``gather`` is a kernel that copies
    records. ``max_batch_tokens`` is the most new tokens per sequence in a decode batch, 0 for no decode batches.
    ``best_scores`` is a function that ranks pages by their sketches (keys at two bits), None for the default.
    """

    name: str
    in_place: bool
    mixes_kinds: bool
    prefill_kernel: bool
    gathers: bool
    max_batch_tokens: int
    best_scores: Score | None

    def selects_in_batch(self, pages: int, unbiased: bool) -> bool:
        """Returns True if a decode batch can take a token that selects some of ``pages`` pages. ``unbiased``: keys of
        these pages are stored without the bias of k_proj.
        """

    def reads(self, on_device: np.ndarray, dtype: torch.dtype) -> bool:
        """Returns True if attention kernels can read the pages for a model of ``dtype``. ``on_device`` [n] is True for
        each page in the device tier.
        """

    def seal(self, layer: int, kind: int, payloads: Sequence[Tensor], k: Tensor, v: Tensor) -> None:
        """Encode k and v [kv_heads, pages * 64, dim] into one layer of new pages of this ``kind`` (ORDINARY or SINK).
        ``payloads`` is the memory of the new pages, into which the records are written.
        """

    def unpack(self, layer: int, pages: PageAddresses, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Returns keys and values [kv_heads, pages * 64, dim] in ``dtype``, of pages for which ``unpacks`` is True."""

    def unpacks(self, on_device: np.ndarray) -> bool:
        """Returns True if ``unpack`` can read the pages. ``on_device`` [n] is True for each page in the device tier."""

    def decode(self, layer: int, kind: int, records: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Returns keys and values [kv_heads, pages * 64, dim] in ``dtype``, of fetched ``records`` [pages, bytes of a
        record], all of one ``kind`` (ORDINARY or SINK).
        """

    def gather(self, addresses: np.ndarray, out: Tensor, rows: np.ndarray) -> None:
        """Copy the records at ``addresses`` (int64) to ``rows`` (int64) of ``out`` [any, bytes of a record], in the
        current stream. The records are on the device or in pinned memory.
        """

    def place(self, bases: np.ndarray, kinds: np.ndarray) -> PageAddresses:
        """Returns the addresses ``bases`` and the ``kinds`` of pages, both [pages], in the form that the kernels
        take.
        """

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
        """Attend with each of the T tokens q [Hq, T, D] to n pages, which differ between tokens. ``indices`` into
        ``pages`` are [T * n], or [H, T * n] if they differ between KV heads too. ``scale`` is the factor of scores.
        With ``softcap`` c > 0, a score becomes c * tanh(score / c). The first ``skip`` tokens of the first page are
        hidden, for every token. ``extra`` [Hq, T * n * 64] is added to the scaled scores. With ``page_lse``, the result
        includes the log-sum-exp of each page.
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
        bias: KeyBias | None = None,
    ) -> Part:
        """Attend with the last T tokens q [Hq, T, D] to ``pages``, and causally to k, v [H, S, D] after the pages.
        Returns (out [Hq, T, Dv], log-sum-exp [Hq, T]). ``scale`` is the factor of scores. With ``softcap`` c > 0, a
        score becomes c * tanh(score / c). ``loss`` is the share of attention weights that a query may lose to skipped
        pages. ``bias`` is the bias of k_proj that the keys of the pages lack; it cannot be combined with ``loss`` or
        rotated pages.
        """

    def make_sketch(self, layer: int, pages: PageAddresses) -> Sketch | None:
        """Returns the sketch (keys at two bits) of these pages, or None if it must be made from fetched records."""


_NOT_IN_PLACE = "the torch backend reads nothing in place: pages are fetched and decoded"


class TorchBackend:
    """Seals and decodes pages with the codec, in torch, on any device. It has no kernels that attend to pages:
    ``dispatch`` then has pages fetched and decoded, and never calls ``attend`` or ``prefill`` here.
    """

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

    @torch.inference_mode()  # pages sealed in inference mode may only be written in it
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
        bias: KeyBias | None = None,
    ) -> Part:
        raise AssertionError(_NOT_IN_PLACE)

    def make_sketch(self, layer: int, pages: PageAddresses) -> Sketch | None:
        return None
