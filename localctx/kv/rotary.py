"""Rope: the protocol of a model's rotary embedding. With it the cache re-rotates keys, and stores keys without the bias
of k_proj.
"""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from localctx.kernels.cpu.key_bias import KeyBias


class Rope(Protocol):
    """Rotary embedding of one model. RoPE is relative: a key rotated by d is the key d positions later."""

    def rerotate(self, layer: int, k: Tensor, by: int) -> Tensor:
        """Returns the rotated keys k [kv_heads, T, k_dim], moved ``by`` positions forward (back if negative)."""

    def has_bias(self, layer: int) -> bool:
        """Returns True if this layer's k_proj adds a bias to every key (Qwen2 family)."""

    def bias_keys(self, layer: int, positions: Tensor) -> Tensor:
        """Returns the bias of k_proj as it is in rotated keys at ``positions`` [T] int64: [kv_heads, T, k_dim]
        float32.
        """

    def key_bias(self, layers: Sequence[int], starts: Tensor) -> KeyBias:
        """Returns ``bias_keys`` for whole pages in ``layers``, in the form that kernels take: with ``KeyBias.starts``
        [layers, H, n, D]. ``starts`` [layers, n] int64 are the positions of the pages' first keys. The layers rotate
        alike.
        """

    def bias_scores(self, layer: int, q: Tensor, positions: Tensor) -> Tensor:
        """Returns the dot products of q [Hq, D] with ``bias_keys``, without building these: [Hq, T] float32, not
        scaled.
        """
