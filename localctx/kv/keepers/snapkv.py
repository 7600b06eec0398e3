"""snapkv: after the prompt was read, keeps the tokens that the prompt's last queries attended to (SnapKV,
arXiv:2404.14469).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from localctx.kv.attention_history import AttentionHistory
from localctx.kv.keepers.keeper import KeptSequence, Observation, Phase, PromptCompressor
from localctx.shape import PAGE, SINK_PAGES

if TYPE_CHECKING:  # torch takes seconds to import, and keeper names are checked before that
    from torch import Tensor

POOLING = 7  # tokens over which votes are pooled, so that phrases are kept rather than single tokens


@dataclass(frozen=True, kw_only=True)
class SnapKV(PromptCompressor):
    """Keeps, for each KV head, the tokens to which the last queries of the question attended most. ``tokens`` is the
    number of tokens to keep.
    """

    name: str = "snapkv"

    def observes(self, phase: Phase) -> Observation | None:
        """Returns TOKEN_VOTES while the question is read: this keeper needs the attention weight that the question's
        last queries give each token. Returns None in the other phases.
        """
        return Observation.TOKEN_VOTES if phase == "asking" else None

    def observe(self, history: AttentionHistory, layer: int, weights: Tensor | np.ndarray) -> None:
        """Store ``weights`` [kv_heads, tokens], the attention weights that the last queries of this step gave each
        token, in the ``history``. They replace the weights of earlier steps, so that only the last step of the question
        counts.
        """
        import torch

        history.token_votes[layer] = torch.as_tensor(weights)

    def pages_scored(self, sequence: KeptSequence) -> int:
        """Returns the number of pages that were already sealed when the last step of the question was computed. Only
        their tokens have votes.
        """
        return min((votes.shape[1] // PAGE for votes in sequence.history.token_votes.values()), default=0)

    def score(self, history: AttentionHistory, layer: int, keys: Tensor) -> Tensor:
        """Returns a score for each token after the sinks, [kv_heads, tokens]: the greatest vote (attention weight)
        among the token and its neighbours. ``keys`` [kv_heads, tokens, k_dim] only gives the number of tokens.
        """
        from torch.nn.functional import max_pool1d

        votes = history.token_votes[layer][:, SINK_PAGES * PAGE :][:, : keys.shape[1]]
        return max_pool1d(votes[None], POOLING, 1, POOLING // 2)[0]


KEEPER = SnapKV
