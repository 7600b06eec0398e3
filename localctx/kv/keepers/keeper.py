"""Keeper: an eviction policy. It decides which tokens of a sequence attention sees.

Every keeper protects the sink pages at the start of the prompt and the most recent page.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal, Protocol, Self

import numpy as np

from localctx.errors import UsageError
from localctx.kv.attention_history import AttentionHistory
from localctx.shape import PAGE, SINK_PAGES

if TYPE_CHECKING:  # torch takes seconds to import, and keeper names are checked before that
    from torch import Tensor

Phase = Literal["reading", "asking", "answering"]
"""The phases of a request: read the document, read the question, generate the answer."""


class Observation(Enum):
    """The quantities that attention can measure for a keeper, layer by layer."""

    PAGE_MASS = "the attention mass of each sealed page in this step, [pages]"
    TOKEN_VOTES = "the mean weight that the step's last queries give each sealed token, [kv_heads, tokens]"


class KeptSequence(Protocol):
    """The part of a sequence (a ``Cache``) that a keeper may read and change."""

    @property
    def history(self) -> AttentionHistory: ...

    @property
    def num_pages(self) -> int:
        """The number of sealed pages."""

    def keep_tokens(self, slots: int, stop: int, score: TokenScore) -> None:
        """Evict tokens by score: replace the sealed pages from the sinks to page ``stop`` by ``slots`` pages with the
        best tokens. ``score`` is a function that returns a score for each token of a layer, for each KV head; the
        tokens with the highest scores are kept. A sliding-window layer keeps its last pages instead. Raises
        OutOfKVMemory.
        """


TokenScore = Callable[[int, "Tensor"], "Tensor"]
"""Scores tokens, [kv_heads, tokens], given a layer and its keys after the sinks, [kv_heads, tokens, k_dim] float32.
The highest scores are kept.
"""


@dataclass(frozen=True, kw_only=True)
class Keeper:
    """An eviction policy. This base class evicts nothing, and every query sees every page; subclasses override what
    they do differently. A keeper is immutable: what it learns about a sequence is stored in the sequence's
    ``AttentionHistory``.
    """

    name: str = ""
    pages_may_persist: bool = True
    """True if pages computed under this keeper match their names and may be persisted. False if the keeper
    evicts pages while a document is still being read."""
    unbounded_positions: bool = False
    """True if positions are rebased after evictions, so that a text may be longer than the model's window."""
    sink_pages: int = 0
    """With unbounded positions, the number of first pages re-rotated to the positions before the window."""

    @classmethod
    def from_budget(cls, budget: float | None, tokens: int) -> Self:
        """Returns the keeper for a prompt of ``tokens`` tokens. ``budget`` is a number of tokens, or, if it is at most
        1, a share of the prompt; None is the default budget. Raises ValueError if this keeper takes no budget.
        """
        if budget is not None:
            raise ValueError(f"{cls().name} has no budget")
        return cls()

    def max_tokens_held(self, tokens: int) -> int:
        """Returns the maximum number of tokens in the cache for a prompt of ``tokens`` tokens. The chunk that is being
        prefilled does not count.
        """
        return tokens

    def pages_seen(self, pages: int) -> int:
        """Returns the number of pages, out of ``pages`` sealed pages, that one query may attend to."""
        return pages

    def pages_to_evict(self, pages: int, mean_mass: np.ndarray) -> list[int]:
        """Returns the indices of the sealed pages to evict after a step, ascending. There are ``pages`` sealed pages.
        ``mean_mass`` [pages] is the attention mass that each page got from a query on average. The default evicts none.
        """
        return []

    def observes(self, phase: Phase) -> Observation | None:
        """Returns the quantity that attention must measure for ``observe`` in this ``phase``; None if it need not
        measure anything.
        """
        return None

    def observe(self, history: AttentionHistory, layer: int, weights: Tensor | np.ndarray) -> None:
        """Hook: called after attention in each ``layer``, with the measured ``weights``, whose meaning and shape depend
        on the result of ``observes``. Subclasses store them in ``history``; the default does nothing.
        """

    def after_prefill(self, sequence: KeptSequence) -> None:
        """Hook: called when the whole prompt, with the question, has been read. Subclasses may pack ``sequence`` into
        fewer pages; the default does nothing. Raises OutOfKVMemory.
        """


@dataclass(frozen=True, kw_only=True)
class TokenBudget(Keeper):
    """A keeper whose budget is a number of ``tokens``."""

    tokens: int = 2048

    @classmethod
    def from_budget(cls, budget: float | None, tokens: int) -> Self:
        """Returns the keeper for a prompt of ``tokens`` tokens. ``budget`` is a number of tokens, or, if it is at most
        1, a share of the prompt; None stands for 2,048 tokens. The budget is at least four pages.
        """
        part = 2048.0 if budget is None else budget
        return cls(tokens=max(4 * PAGE, math.ceil(part * tokens) if part <= 1 else int(part)))


@dataclass(frozen=True, kw_only=True)
class PromptCompressor(TokenBudget):
    """A keeper that evicts once, after the whole prompt was read. Each KV head then keeps the tokens with the best
    scores. ``tokens`` is the budget; a tenth of it is reserved for the last pages of the prompt (arXiv:2605.18053).
    """

    def after_prefill(self, sequence: KeptSequence) -> None:
        """Pack sealed pages into fewer pages, so that the sequence keeps about as many tokens as the budget. Each KV
        head keeps the tokens with the best ``score``.

        The sinks and the last pages of the prompt stay whole. Only pages that ``pages_scored`` counts are packed.
        Raises OutOfKVMemory.
        """
        recent = max(1, self.tokens // PAGE // 10)
        slots = max(1, self.tokens // PAGE - recent - SINK_PAGES)
        stop = min(self.pages_scored(sequence), sequence.num_pages - recent)
        if stop - SINK_PAGES > slots:
            sequence.keep_tokens(slots, stop, lambda layer, keys: self.score(sequence.history, layer, keys))

    def pages_scored(self, sequence: KeptSequence) -> int:
        """Returns how many sealed pages, from the first one on, have tokens that ``score`` can score. The default is
        all sealed pages.
        """
        return sequence.num_pages

    def score(self, history: AttentionHistory, layer: int, keys: Tensor) -> Tensor:
        raise NotImplementedError


def parse_budget(spec: str, budget: str) -> float:
    """Returns the number in the ``budget`` of a keeper's ``spec``, such as ``2048`` or ``1/4``. Raises UsageError."""
    number, _, divisor = budget.partition("/")
    try:
        part = float(number) / float(divisor or 1)
    except (ValueError, ZeroDivisionError) as e:
        raise UsageError(f"{spec!r} has no valid budget", "for example: select:1/4, sink-window:2048") from e
    if not 0 < part < float("inf"):
        raise UsageError(f"{spec!r}: the budget must be greater than 0", "for example: select:1/4")
    return part
