"""TritonBackend: GPU kernels for pages in GPU memory. Imported only where these kernels run."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from localctx.kernels.sketch import Sketch
from localctx.kernels.triton import attention as attention_triton
from localctx.kernels.triton import pages as pages_triton
from localctx.kernels.triton import record_copy as record_copy_triton
from localctx.kernels.triton import records as records_triton
from localctx.kernels.triton import selection as selection_triton
from localctx.kernels.triton import sketch as sketch_triton
from localctx.kv.backends.backend import PageAddresses, PageAttention, TorchBackend
from localctx.kv.backends.triton_check import doubt_about
from localctx.kv.page_format import ORDINARY, PageFormat
from localctx.kv.row_parts import split_rows_evenly
from localctx.shape import KVShape

_layouts = dict[tuple[KVShape, str, torch.device], list[records_triton.TritonLayerLayout]]()


class TritonBackend(TorchBackend):
    """Attends with Triton kernels to pages in GPU memory. For models that do not compute in bf16, torch attends."""

    name = "triton"
    mixes_kinds = gathers = True
    max_batch_tokens = 1

    def __init__(self, page_format: PageFormat, device: torch.device) -> None:
        super().__init__(page_format, device)
        self.best_scores = sketch_triton.best_scores
        self.layouts = _shared_layouts(page_format, device)

    def selects_in_batch(self, pages: int, unbiased: bool) -> bool:
        """Returns False for more than MAX_PAGES ``pages``, which the selection kernel cannot rank. Also returns False
        if keys are stored without the bias of k_proj (``unbiased``): torch then computes the scores that the bias adds,
        from positions on the CPU.
        """
        return pages <= selection_triton.MAX_PAGES and not unbiased

    def reads(self, on_device: np.ndarray, dtype: torch.dtype) -> bool:
        return dtype == torch.bfloat16 and bool(on_device.all())

    def seal(self, layer: int, kind: int, payloads: Sequence[Tensor], k: Tensor, v: Tensor) -> None:
        at = torch.tensor([payload.data_ptr() for payload in payloads], device=self._device)
        pages_triton.seal(k, v, at, self.layouts[layer], kind, self._format.rotated)

    def unpacks(self, on_device: np.ndarray) -> bool:
        return bool(on_device.all())

    def unpack(self, layer: int, pages: PageAddresses, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        return pages_triton.unseal(pages.bases, pages.kinds, self.layouts[layer], dtype, self._format.rotated)

    def decode(self, layer: int, kind: int, records: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Returns the decoded keys and values [kv_heads, pages * 64, dim] of fetched ``records`` [pages, bytes of a
        record], all of one ``kind`` (ORDINARY or SINK). The kernel reads each record as if the record were a whole
        page.
        """
        first = records.data_ptr() - int(self._format.offsets[kind, layer])
        bases = first + records.shape[1] * torch.arange(len(records), device=records.device)
        return self.unpack(layer, PageAddresses(bases, torch.full_like(bases, kind, dtype=torch.uint8)), dtype)

    def gather(self, addresses: np.ndarray, out: Tensor, rows: np.ndarray) -> None:
        record_copy_triton.gather(out, self._sent(addresses), self._sent(rows))

    def place(self, bases: np.ndarray, kinds: np.ndarray) -> PageAddresses:
        """Copy the addresses and kinds to the device."""
        return PageAddresses(self._sent(bases), self._sent(kinds), mixed=bool((kinds[1:] != ORDINARY).any()))

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
        tokens, count = q.shape[1], indices.shape[-1] // q.shape[1]
        kinds = pages.kinds[indices]
        known = kinds.cpu().numpy() if pages.mixed else np.tile(np.arange(count) == 0, tokens)
        wanted = attention_triton.parts_wanted(self.layouts[layer])
        parts = split_rows_evenly(np.arange(tokens + 1) * count, [(0, skip)] * tokens, wanted, known)
        bounds = attention_triton.bounds_of(parts, tokens)
        seen = attention_triton.TritonPages(self._sent(parts), self._sent(bounds), pages.bases[indices], kinds)
        out, lse, each = attention_triton.attend_pages(
            q.transpose(0, 1),
            seen,
            self.layouts[layer],
            scale,
            softcap=softcap,
            extra=extra,
            rotated=self._format.rotated,
            masses=page_lse,
        )
        return PageAttention(out.transpose(0, 1), lse.T, None if each is None else each[:, -count:])

    def make_sketch(self, layer: int, pages: PageAddresses) -> Sketch | None:
        return sketch_triton.make_sketch(pages.bases, pages.kinds, self.layouts[layer])

    def _sent(self, numbers: np.ndarray) -> Tensor:
        """Copy ``numbers`` to the device without waiting for it."""
        on_host = torch.from_numpy(numbers)
        if self._device.type != "cuda":
            return on_host.to(self._device)
        return on_host.pin_memory().to(self._device, non_blocking=True)


def _shared_layouts(page_format: PageFormat, device: torch.device) -> list[records_triton.TritonLayerLayout]:
    """Returns for each layer the offsets of the layer's record from the address of a page, for both kinds of pages.

    Pools of one shape and codec share these tensors, and the tensors are never freed, because captured graphs read them
    even after a pool was closed.
    """
    key = page_format.shape, page_format.codec, device
    if key not in _layouts:
        _layouts[key] = [*_make_layouts(page_format, device)]
    return _layouts[key]


def _make_layouts(page_format: PageFormat, device: torch.device) -> Iterator[records_triton.TritonLayerLayout]:
    for layer, (heads, k_dim, v_dim, table, *_) in enumerate(page_format.layouts):
        offsets = torch.from_numpy(table[:, 2:] + page_format.offsets[:, layer, None])
        bits = tuple((int(k), int(v)) for k, v in table[:, :2])
        layout = records_triton.TritonLayerLayout(heads, k_dim, v_dim, bits, offsets.to(device))
        if attention_triton.attends_by_words(layout):
            both = (codecs[layer] for codecs in page_format.codecs)
            layout = layout._replace(by_words=not doubt_about(*both, device))
        yield layout
