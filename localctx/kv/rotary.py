"""Rope: the protocol of a model's rotary embedding. The cache uses it to re-rotate keys, and to store keys without the
bias of k_proj.
"""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from localctx.kernels.cpu.key_bias import KeyBias


class Rope(Protocol):
    """The rotary embedding of one model. This object moves rotated keys to other positions: a key rotated by d more
    positions equals the key d positions later.
    """

    def rerotate(self, layer: int, k: Tensor, by: int) -> Tensor:
        """Returns the rotated keys k [kv_heads, T, k_dim] as they would be ``by`` positions later (earlier if
        negative).
        """

    def has_bias(self, layer: int) -> bool:
        """Returns True if this layer's k_proj adds a bias to every key (Qwen2 family)."""

    def bias_keys(self, layer: int, positions: Tensor) -> Tensor:
        """Returns the bias of k_proj as it is in rotated keys at ``positions`` [T] int64: [kv_heads, T, k_dim]
        float32.
        """

    def key_bias(self, layers: Sequence[int], starts: Tensor) -> KeyBias:
        """Returns the bias of k_proj in the rotated keys of whole pages, in the form that kernels take: with
        ``KeyBias.starts`` [layers, H, n, D]. ``starts`` [layers, n] int64 are the positions of the pages' first keys.
        All ``layers`` have the same RoPE frequencies and pairs.
        """

    def bias_scores(self, layer: int, q: Tensor, positions: Tensor) -> Tensor:
        """Returns the products of q [Hq, D] with the rotated bias of k_proj at ``positions`` [T]: [Hq, T] float32, not
        scaled. The result of ``bias_keys`` is not computed for this.
        """
