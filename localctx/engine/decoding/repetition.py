"""Detects repetition: with greedy decoding, small models may generate the same tokens again and again."""

from collections import deque

COPIES = 3  # consecutive copies of the same tokens that make a repetition
MAX_PERIOD = 128  # tokens in one copy
MIN_TOKENS = 24  # in all copies together: zeros of a number and lines of a table are shorter
MIN_LINE = 16  # tokens of a line that counts as a repetition after two copies


class Repetition:
    """Detects that an answer repeats itself, and meanwhile withholds tokens that may belong to a repetition.

    Tokens are withheld while each equals the token a fixed distance (at most MAX_PERIOD tokens) before it. ``found`` is
    True if the answer ends in COPIES copies of the same tokens, MIN_TOKENS tokens or more in all, or in two copies of a
    line of at least MIN_LINE tokens. The caller then ends the answer and drops the withheld tokens: all copies but the
    first.
    """

    def __init__(self) -> None:
        self.found = False
        self._ids, self._ends = list[int](), list[bool]()  # for each token: its id, and whether it ends a line
        self._runs = [0] * (MAX_PERIOD + 1)  # by distance d: how many of the last tokens equal those d before
        self._withheld = deque[int]()  # indices of withheld tokens

    def add(self, token: int, ends_line: bool = False) -> int:
        """Add the next token, and set ``found``. ``ends_line`` is True if the token's text ends a line. Returns how
        many withheld tokens, oldest first, may be shown now.
        """
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
        """The number of tokens that are withheld now."""
        return len(self._withheld)

    def _repeats(self, distance: int) -> bool:
        run = self._runs[distance]
        if run >= (COPIES - 1) * distance and run + distance >= MIN_TOKENS:
            return True
        return run >= distance >= MIN_LINE and self._ends[-1] and self._ends[-1 - distance]

    def _release(self) -> int:
        """Release the withheld tokens that are not part of a possible repetition. Returns how many were released."""
        first_in_run = len(self._ids) - max(self._runs)
        count = 0
        while self._withheld and self._withheld[0] < first_in_run:
            self._withheld.popleft()
            count += 1
        return count
