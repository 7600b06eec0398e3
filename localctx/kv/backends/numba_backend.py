"""NumbaBackend: CPU kernels that read pages where they are, in memory or in mapped files."""

from functools import partial

import torch
from torch import Tensor

from localctx.kernels import quant
from localctx.kernels.cpu.decode import unpack_pages
from localctx.kernels.cpu.decode_batch import attend_pages
from localctx.kernels.cpu.key_bias import NO_BIAS, KeyBias
from localctx.kernels.cpu.prefill import attend_chunk
from localctx.kernels.cpu.sparse_prefill import attend_chunk_sparsely
from localctx.kernels.reference import Part
from localctx.kv.backends.backend import MAX_DECODE_TOKENS, PageAddresses, PageAttention, TorchBackend


class NumbaBackend(TorchBackend):
    """Attends to pages in any tier with numba kernels, on the CPU."""

    name = "numba"
    in_place = prefill_kernel = True
    max_batch_tokens = MAX_DECODE_TOKENS

    def unpack(self, layer: int, pages: PageAddresses, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        bases, kinds, _ = self._records(layer, pages)
        k, v = map(torch.from_numpy, unpack_pages(bases, kinds, self._format.layouts[layer]))
        return self._rotated(k).to(dtype), self._rotated(v).to(dtype)

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
        bases, kinds, _ = self._records(layer, pages)
        tokens, outs, lses, last = q.shape[1], list[Tensor](), list[Tensor](), None
        for t, own in enumerate(indices.unflatten(-1, (tokens, -1)).unbind(-2)):
            more = None if extra is None else extra.unflatten(1, (tokens, -1))[:, t].contiguous().numpy()
            wanted, at = page_lse and t == tokens - 1, own.numpy()
            out, lse, each = attend_pages(
                self._rotated(q[:, t].float()).numpy(),
                bases[at],
                kinds[at],
                self._format.layouts[layer],
                scale,
                skip,
                softcap,
                more,
                wanted,
            )
            outs.append(self._rotated(torch.from_numpy(out)).to(q.dtype)[:, None])
            lses.append(torch.from_numpy(lse)[:, None])
            last = torch.from_numpy(each) if wanted else None
        return PageAttention(torch.cat(outs, 1), torch.cat(lses, 1), last)

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
        """Compute ``Backend.prefill`` in float32, with its arguments and its result. (For bf16 without skipped pages
        torch is faster, so ``dispatch`` does not call this method.)
        """
        assert bias is None or not self._format.rotated, "dispatch does not ask for it"
        dtype = q.dtype
        q, k, v = (self._rotated(x.float()) for x in (q, k, v))
        bases, kinds, _ = self._records(layer, pages)
        attend = partial(attend_chunk_sparsely, loss=loss) if loss else attend_chunk
        out, lse = attend(q, k, v, bases, kinds, self._format.layouts[layer], scale, softcap, bias=bias or NO_BIAS)
        return self._rotated(out).to(dtype), lse

    def _records(self, layer: int, pages: PageAddresses) -> PageAddresses:
        """Returns the addresses of one layer's records of the pages."""
        return PageAddresses(pages.bases + self._format.offsets[pages.kinds, layer], pages.kinds)

    def _rotated(self, x: Tensor) -> Tensor:
        return quant.rotate(x) if self._format.rotated else x
