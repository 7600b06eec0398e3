"""OpenPage: the last tokens of a sequence, fewer than a page, in full precision."""

import numpy as np
import torch
from torch import Tensor

from localctx.kv.block_table import BlockTable
from localctx.kv.pool import Pool
from localctx.kv.rerotation import rerotate
from localctx.shape import PAGE

KV = tuple[Tensor, Tensor]


class OpenPage:
    """The open page of a sequence: k and v [kv_heads, 64, dim] of each layer, of which the first ``filled`` tokens are
    committed.

    A step may fill the page. Tokens that no longer fit go to separate buffers, which become the open page when the step
    is committed.
    """

    def __init__(self, pool: Pool, dtype: torch.dtype) -> None:
        self.pool, self.dtype, self.filled = pool, dtype, 0
        self._layers: list[KV] = [self._empty(layer) for layer in range(len(pool.shape.layers))]
        self._next: dict[int, KV] = {}

    @property
    def nbytes(self) -> int:
        """The size in bytes of the page's memory, which is the same for a full and an empty page."""
        return sum(k.nbytes + v.nbytes for k, v in self._layers)

    @property
    def addresses(self) -> np.ndarray:
        """The addresses of the keys and the values of each layer, [layers, 2] int64."""
        return np.array([(k.data_ptr(), v.data_ptr()) for k, v in self._layers], np.int64)

    def tokens(self, layer: int) -> KV:
        """Returns the keys and values of the committed tokens in one layer: k [kv_heads, filled, k_dim], v [kv_heads,
        filled, v_dim].
        """
        k, v = self._layers[layer]
        return k[:, : self.filled], v[:, : self.filled]

    def write(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Write k and v [kv_heads, n, dim] of new tokens after the committed tokens. The caller ensures that they fit
        into the page.
        """
        for buffer, new in zip(self._layers[layer], (k, v), strict=True):
            buffer[:, self.filled : self.filled + new.shape[1]] = new

    def write_next(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Write k and v [kv_heads, n, dim] as the first n tokens of the next page. They go to buffers of their own,
        because a rollback still needs this page. ``commit`` makes these buffers the open page.
        """
        self._next[layer] = fresh = self._empty(layer)
        for buffer, rest in zip(fresh, (k, v), strict=True):
            buffer[:, : rest.shape[1]] = rest

    def commit(self, tokens: int) -> None:
        """Commit the step, which appended ``tokens`` tokens."""
        for layer, buffers in self._next.items():
            self._layers[layer] = buffers
        self._next = {}
        self.filled = (self.filled + tokens) % PAGE

    def rollback(self) -> None:
        """Discard the buffers of the next page, which ``write_next`` filled."""
        self._next = {}

    def payload(self) -> np.ndarray:
        """Returns the committed tokens in full precision as bytes (uint8): k and v of each layer in turn."""
        parts = [x.contiguous().view(torch.uint8).flatten() for i in range(len(self._layers)) for x in self.tokens(i)]
        return torch.cat(parts).cpu().numpy()

    def adopt(self, payload: np.ndarray) -> None:
        """Load the output of ``payload``. The page must be empty."""
        assert self.filled == 0
        flat = torch.from_numpy(payload.copy()).view(self.dtype).to(self.pool.device)
        self.filled = len(flat) // sum(s.kv_heads * (s.k_dim + s.v_dim) for s in self.pool.shape.layers)
        for layer in range(len(self._layers)):
            for x in self.tokens(layer):
                x.copy_(flat[: x.numel()].view_as(x))
                flat = flat[x.numel() :]

    def reopen(self, table: BlockTable, index: int, filled: int) -> None:
        """Load the first ``filled`` tokens of the sealed page at ``index`` of ``table``. Their keys and values have
        only the precision of the codec.
        """
        self.filled = filled
        for layer in range(len(self._layers)) if filled else ():
            k, v = table.read(layer, index, index + 1, self.dtype)
            self._layers[layer] = k.contiguous().clone(), v.contiguous().clone()  # a copy: fetched memory is reused

    def rerotate(self, by: int) -> None:
        """Re-rotate the keys of all layers to positions that are greater by ``by``."""
        self._layers = [rerotate(self.pool, layer, k, v, by) for layer, (k, v) in enumerate(self._layers)]

    def fork(self) -> "OpenPage":
        """Returns an independent copy of the open page with its committed tokens."""
        twin = OpenPage.__new__(OpenPage)
        twin.pool, twin.dtype, twin.filled, twin._next = self.pool, self.dtype, self.filled, {}
        twin._layers = [(k.clone(), v.clone()) for k, v in self._layers]
        return twin

    def _empty(self, layer: int) -> KV:
        s = self.pool.shape.layers[layer]
        k, v = (torch.zeros(s.kv_heads, PAGE, d, dtype=self.dtype, device=self.pool.device) for d in (s.k_dim, s.v_dim))
        return k, v
