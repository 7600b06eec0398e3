"""Predicts how long the rest of a prefill takes. Each token takes longer than the one before, because it attends to
more tokens: a line is fitted to the seconds per token of the chunks so far.
"""

import time
from collections.abc import Callable

import numpy as np

MIN_CHUNKS = 2  # chunks from which the growth is seen


class PrefillPace:
    """Measures chunks from token ``position`` on. ``clock`` returns the time in seconds."""

    def __init__(self, position: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._position, self._clock, self._noted = position, clock, clock()
        self._chunks = list[tuple[float, float, int]]()  # middle, seconds per token, tokens

    def note(self, position: int) -> None:
        """Record that a chunk has ended at token ``position``."""
        now, tokens = self._clock(), position - self._position
        if tokens > 0:
            self._chunks.append((self._position + tokens / 2, (now - self._noted) / tokens, tokens))
        self._position, self._noted = position, now

    def seconds_to(self, total: int) -> float | None:
        """Returns the seconds until token ``total``; None while too little is measured."""
        left = total - self._position
        if left <= 0:
            return 0.0
        if len(self._chunks) < MIN_CHUNKS:
            return None
        middles, seconds, tokens = (np.array(column, float) for column in zip(*self._chunks, strict=True))
        growth, first = np.polyfit(middles, seconds, 1, w=np.sqrt(tokens))
        if growth <= 0:  # the first chunk took longer, because the program was still starting
            growth, first = 0.0, np.average(seconds, weights=tokens)
        return float(left * (first + growth * (self._position + left / 2)))
