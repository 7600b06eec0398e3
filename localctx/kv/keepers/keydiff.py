"""keydiff: after the prompt was read, keeps the tokens with the most distinctive keys (KeyDiff, arXiv:2504.15364)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from localctx.kv.attention_history import AttentionHistory
from localctx.kv.keepers.keeper import PromptCompressor

if TYPE_CHECKING:  # torch takes seconds to import, and keeper names are checked before that
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class KeyDiff(PromptCompressor):
    """Keeps, for each KV head, the keys that are least similar to the mean key, because similar keys are redundant.
    ``tokens`` is the number of tokens to keep. This keeper needs no attention weights, so attention stays as fast as
    with ``full``. Unlike in the paper, tokens are evicted once, after the prompt was read, and not after every block.
    """

    name: str = "keydiff"

    def score(self, history: AttentionHistory, layer: int, keys: Tensor) -> Tensor:
        """Returns a score for each token, [kv_heads, tokens]: the negative cosine similarity between its key, in
        ``keys`` [kv_heads, tokens, k_dim], and the mean of all normalized keys. ``history`` and ``layer`` are not used.
        """
        from torch.nn.functional import cosine_similarity, normalize

        return -cosine_similarity(keys, normalize(keys, dim=-1).mean(1, keepdim=True), dim=-1)


KEEPER = KeyDiff
