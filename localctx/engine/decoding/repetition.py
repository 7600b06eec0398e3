"""Detects repetition: small models that answer greedily may generate the same tokens again and again."""

from collections import deque

COPIES = 3  # of the same tokens one after another are a repetition
MAX_PERIOD = 128  # tokens in one copy
MIN_TOKENS = 24  # in all copies together: zeros of a number and rules of a table are shorter
MIN_LINE = 16  # tokens of a line that is a repetition as soon as it is followed by itself


class Repetition:
    """Withholds the last tokens of an answer while they equal those just before, and detects a repetition.

    An answer repeats itself when its last tokens are COPIES copies of the same tokens, or when a whole line of at least
    MIN_LINE tokens is followed by itself. The tokens withheld then, all copies but the first, are dropped.
    """

    def __init__(self) -> None:
        self.found = False
        self._ids, self._ends = list[int](), list[bool]()  # of all tokens: their ids, whether a line ends with each
        self._runs = [0] * (MAX_PERIOD + 1)  # by distance: how many of the last tokens equal those so far before them
        self._withheld = deque[int]()  # the indices of tokens that are withheld

    def add(self, token: int, ends_line: bool = False) -> int:
        """Add the next token; returns how many withheld tokens, the oldest first, may be shown now."""
        at = len(self._ids)
        self._ids.append(token)
        self._ends.append(ends_line)
        self._withheld.append(at)
        for distance in range(1, min(at, MAX_PERIOD) + 1):
            self._runs[distance] = self._runs[distance] + 1 if self._ids[at - distance] == token else 0
        self.found = any(self._repeats(distance) for distance in range(1, min(at, MAX_PERIOD) + 1))
        return 0 if self.found else self._release()

    @property
    def withheld(self) -> int:
        """The number of tokens that are withheld."""
        return len(self._withheld)

    def _repeats(self, distance: int) -> bool:
        run = self._runs[distance]
        if run >= (COPIES - 1) * distance and run + distance >= MIN_TOKENS:
            return True
        return run >= distance >= MIN_LINE and self._ends[-1] and self._ends[-1 - distance]

    def _release(self) -> int:
        """Release the tokens before every run that still goes on; returns their number."""
        first_in_run = len(self._ids) - max(self._runs)
        count = 0
        while self._withheld and self._withheld[0] < first_in_run:
            self._withheld.popleft()
            count += 1
        return count
