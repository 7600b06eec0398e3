"""select: each query sees the pages with the highest expected scores (after Quest, arXiv:2406.10774)."""

import math
from dataclasses import dataclass
from typing import Self

from localctx.kv.keepers.keeper import Keeper
from localctx.shape import SINK_PAGES

DENSE_LAYERS = 2  # the first layers, in which every query sees everything (Quest)


@dataclass(frozen=True, kw_only=True)
class Select(Keeper):
    """Shows each query of the answer only some pages: those whose sketches (keys at two bits) promise the highest
    scores. Nothing is evicted. While the document and the question are read, queries see all pages, as in Quest.
    """

    name: str = "select"
    part: float = 0.25

    @classmethod
    def from_budget(cls, budget: float | None, tokens: int) -> Self:
        """Returns the keeper for a prompt of ``tokens`` tokens. ``budget`` is the number of tokens that a query sees,
        or, if it is at most 1, a share of the prompt; None stands for a quarter of the pages.
        """
        part = 0.25 if budget is None else budget
        return cls(part=part if part <= 1 else part / max(part, tokens))

    def pages_seen(self, pages: int) -> int:
        """Returns how many of ``pages`` sealed pages one query attends to: the share ``part``, but at least the sinks
        and three more pages.
        """
        return min(pages, max(SINK_PAGES + 3, math.ceil(pages * self.part)))


KEEPER = Select
