"""sink-window: keeps the beginning of the prompt and its last tokens (StreamingLLM, arXiv:2309.17453)."""

from dataclasses import dataclass

import numpy as np

from localctx.kv.keepers.keeper import TokenBudget
from localctx.shape import PAGE


@dataclass(frozen=True, kw_only=True)
class SinkWindow(TokenBudget):
    """Keeps the sink pages and the last ``tokens`` tokens. The sinks are re-rotated to the positions just before the
    window, so positions never exceed the range that the model was trained on.
    """

    name: str = "sink-window"
    sink_pages: int = 1  # of 64 tokens; StreamingLLM keeps four tokens, but a page is the smallest unit here
    pages_may_persist: bool = False
    unbounded_positions: bool = True

    def max_tokens_held(self, tokens: int) -> int:
        """Returns the number of tokens in the sinks and the window together."""
        return min(tokens, self.tokens + self.sink_pages * PAGE)

    def pages_to_evict(self, pages: int, mean_mass: np.ndarray) -> list[int]:
        """Returns the indices of the pages between the sinks and the window, of ``pages`` sealed pages. ``mean_mass``
        is not used.
        """
        return list(range(self.sink_pages, pages - max(1, self.tokens // PAGE)))


KEEPER = SinkWindow
