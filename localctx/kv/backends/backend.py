"""Backend: the kernels that seal the pages of a pool and compute over the pages where they are. Each pool has one
backend.

``TorchBackend`` is the reference implementation without custom kernels: pages are fetched and decoded, on any device.
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
    """The pages that a kernel reads: their addresses ``bases`` (int64) and their ``kinds`` (uint8), both [pages]. A
    page is ORDINARY (encoded by the codec) or SINK (in full precision). Both are arrays or tensors, as
    ``Backend.place`` makes them. ``mixed`` is True if the pages after the first may be of both kinds.
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

    If ``in_place``, kernels read any page in any tier. If ``mixes_kinds``, ``unpack`` takes ORDINARY and SINK pages at
    once. If ``prefill_kernel``, ``prefill`` is a kernel for many tokens. If ``gathers``, ``gather`` is a kernel that
    copies records. ``max_batch_tokens`` is the maximum number of new tokens of one sequence in a decode batch, 0 if
    there are no decode batches. ``best_scores`` is a function that scores pages by their sketches (keys at two bits),
    None for the default function.
    """

    name: str
    in_place: bool
    mixes_kinds: bool
    prefill_kernel: bool
    gathers: bool
    max_batch_tokens: int
    best_scores: Score | None

    def selects_in_batch(self, pages: int, unbiased: bool) -> bool:
        """Returns True if a decode batch can take a token that attends only to selected pages, of ``pages`` pages in
        all. ``unbiased`` is True if keys of these pages are stored without the bias of k_proj.
        """

    def reads(self, on_device: np.ndarray, dtype: torch.dtype) -> bool:
        """Returns True if attention kernels can read n pages for a model that computes in ``dtype``. ``on_device`` [n]
        is True for each page in the device tier.
        """

    def seal(self, layer: int, kind: int, payloads: Sequence[Tensor], k: Tensor, v: Tensor) -> None:
        """Encode k and v [kv_heads, pages * 64, dim] into one layer of new pages of this ``kind`` (ORDINARY or SINK).
        ``payloads`` is the memory of the new pages, into which the records are written.
        """

    def unpack(self, layer: int, pages: PageAddresses, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Returns the decoded keys and values [kv_heads, pages * 64, dim] of one layer of ``pages``, in ``dtype``.
        ``unpacks`` must be True for these pages.
        """

    def unpacks(self, on_device: np.ndarray) -> bool:
        """Returns True if ``unpack`` can read the pages. ``on_device`` [n] is True for each page in the device tier."""

    def decode(self, layer: int, kind: int, records: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Returns the decoded keys and values [kv_heads, pages * 64, dim] in ``dtype`` of ``records`` [pages, bytes of
        a record], which were fetched to the device. All are of one ``kind`` (ORDINARY or SINK).
        """

    def gather(self, addresses: np.ndarray, out: Tensor, rows: np.ndarray) -> None:
        """Copy the records at ``addresses`` (int64) to ``rows`` (int64) of ``out`` [any, bytes of a record], in the
        current stream. The records are on the device or in pinned memory.
        """

    def place(self, bases: np.ndarray, kinds: np.ndarray) -> PageAddresses:
        """Returns page addresses in the form that the kernels take. ``bases`` and ``kinds`` [pages] are the addresses
        and kinds (ORDINARY or SINK) of the pages.
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
        """Attend with T tokens q [Hq, T, D] to sealed pages, where each token sees n pages of its own choice.
        ``indices`` into ``pages`` are [T * n], or [H, T * n] if each KV head sees other pages. ``scale`` is the factor
        of scores. With ``softcap`` c > 0, a score becomes c * tanh(score / c). The first ``skip`` tokens of each
        token's first page are hidden. ``extra`` [Hq, T * n * 64] is added to the scaled scores. If ``page_lse``, the
        result includes the log-sum-exp of each page.
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
        """Attend with the last T tokens q [Hq, T, D] to all ``pages``, and causally to the S tokens after the pages,
        with k and v [H, S, D]. Returns (out [Hq, T, Dv], log-sum-exp [Hq, T]). ``scale`` is the factor of scores. With
        ``softcap`` c > 0, a score becomes c * tanh(score / c).

        ``loss`` is the share of attention (0 to 1) that a query may lose to skipped pages. ``bias`` is the bias of
        k_proj that the stored keys of the pages lack. It cannot be combined with Hadamard-rotated pages.
        """

    def make_sketch(self, layer: int, pages: PageAddresses) -> Sketch | None:
        """Returns the sketch (keys at two bits) of one layer of ``pages``. Returns None if the caller must make it from
        fetched records.
        """


_NOT_IN_PLACE = "the torch backend reads nothing in place: pages are fetched and decoded"


class TorchBackend:
    """Encodes and decodes pages with the codec in torch, on any device. It has no kernels that attend to pages:
    ``dispatch`` then fetches and decodes pages, and never calls ``attend`` or ``prefill`` of this class.
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
