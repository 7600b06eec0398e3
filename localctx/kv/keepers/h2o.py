"""h2o: keeps the pages with the most attention so far, and the last ones (heavy hitters, arXiv:2306.14048)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from localctx.kv.attention_history import AttentionHistory
from localctx.kv.keepers.keeper import Observation, Phase, TokenBudget
from localctx.shape import PAGE, SINK_PAGES

if TYPE_CHECKING:  # torch takes seconds to import, and keeper names are checked before that
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class H2O(TokenBudget):
    """Evicts pages so that ``tokens`` tokens stay. Half of them are in the pages that received the most attention so
    far, half in the last pages.
    """

    name: str = "h2o"
    pages_may_persist: bool = False

    def max_tokens_held(self, tokens: int) -> int:
        """Returns the maximum number of tokens in the cache for a prompt of ``tokens`` tokens: the budget of this
        keeper, or ``tokens`` if that is smaller.
        """
        return min(tokens, self.tokens)

    def pages_to_evict(self, pages: int, mean_mass: np.ndarray) -> list[int]:
        """Returns the indices of the pages to evict, of ``pages`` sealed pages, so that the budget is kept. Pages with
        the least ``mean_mass`` [pages], their attention mass, are evicted first. Sinks and the last pages are never
        evicted.
        """
        over = pages - max(SINK_PAGES + 2, self.tokens // PAGE)
        if over <= 0:
            return []
        recent = max(1, self.tokens // PAGE // 2)
        order = np.argsort(mean_mass[SINK_PAGES : pages - recent], kind="stable") + SINK_PAGES
        return sorted(order[:over].tolist())

    def observes(self, phase: Phase) -> Observation | None:
        """Returns PAGE_MASS in every phase: this keeper needs the attention mass of every page in every step."""
        return Observation.PAGE_MASS

    def observe(self, history: AttentionHistory, layer: int, weights: Tensor | np.ndarray) -> None:
        """Add ``weights`` [pages], the attention mass of the sealed pages in one layer, to the ``history``, which adds
        up the masses of all layers.
        """
        history.add_page_mass(np.asarray(weights))


KEEPER = H2O
