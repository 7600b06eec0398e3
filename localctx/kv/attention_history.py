"""AttentionHistory: the attention that a sequence's pages and tokens received, for keepers and attribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


class AttentionHistory:
    """Records the attention that the pages and tokens of one sequence received, for keepers (eviction policies) and for
    attribution of answers.

    ``page_mass`` [pages] is the attention mass of each sealed page, summed over the queries that could see the page.
    ``queries`` [pages] is the number of these queries. ``token_votes`` holds, for each layer, the attention weight that
    the last queries of the prompt gave each sealed token, [kv_heads, tokens]. ``recorded`` is the attention mass of
    every 64 tokens of the text since ``record`` was called; None before that. Evicted pages keep their place in
    ``recorded``.
    """

    def __init__(self) -> None:
        self.page_mass, self.queries = np.zeros(0), np.zeros(0)
        self.token_votes: dict[int, Tensor] = {}
        self.recorded: np.ndarray | None = None

    @property
    def mean_mass(self) -> np.ndarray:
        """The attention mass of each sealed page, divided by the number of queries that could see the page: [pages]."""
        return self.page_mass / np.maximum(self.queries, 1)

    def add_page_mass(self, mass: np.ndarray) -> None:
        """Add ``mass`` [n] to the attention mass of the first n sealed pages."""
        self.page_mass[: len(mass)] += mass

    def advance(self, pages: int, queries: int) -> None:
        """Extend the history to ``pages`` sealed pages, and count ``queries`` more queries for each of them."""
        more = np.zeros(pages - len(self.page_mass))
        self.page_mass = np.concatenate((self.page_mass, more))
        self.queries = np.concatenate((self.queries, more)) + queries

    def keep(self, indices: list[int]) -> None:
        """Forget all sealed pages except those at ``indices``."""
        self.page_mass, self.queries = self.page_mass[indices], self.queries[indices]

    def reset(self, pages: int) -> None:
        """Start over with ``pages`` sealed pages that have received no attention yet."""
        self.page_mass, self.queries = np.zeros(pages), np.zeros(pages)
        self.token_votes.clear()

    def record(self, pages: int) -> None:
        """Start to record, in ``recorded``, the attention mass that the first ``pages`` pages of the text will
        receive.
        """
        self.recorded = np.zeros(pages)

    def add_recorded(self, text_pages: np.ndarray, mass: np.ndarray) -> None:
        """Add attention ``mass`` to ``recorded``. ``text_pages`` are indices into ``recorded`` (0 is the first 64
        tokens of the text). Both are [n] or [kv_heads, n]. Indices beyond the recorded pages are ignored.
        """
        assert self.recorded is not None
        count = len(self.recorded)
        self.recorded += np.bincount(text_pages.ravel(), mass.ravel(), count)[:count]

    def fork(self, recording: bool = True) -> AttentionHistory:
        """Returns a copy for a forked sequence. If ``recording`` is True, the copy shares ``recorded``, so that both
        sequences add their attention mass to it.
        """
        twin = AttentionHistory()
        twin.page_mass, twin.queries = self.page_mass.copy(), self.queries.copy()
        twin.recorded = self.recorded if recording else None
        return twin
