"""Repetition: small models answering greedily end up saying the same again and again; that is found and taken back."""

from collections import deque

COPIES = 3  # of the same tokens one after another are a repetition
LONGEST = 128  # tokens of what is repeated
SHORTEST = 24  # tokens of all copies together: zeros of a number and rules of a table are shorter
LINE = 16  # tokens of a line which is a repetition when it comes a second time at once


class Repetition:
    """Holds back the tokens of an answer while they repeat what came just before, and says when that is a repetition.

    The answer is in a repetition when its last tokens are COPIES copies of the same tokens, or when a whole line of at
    least LINE tokens is followed by itself. What is held then, which is every copy but the first, is never given out.
    """

    def __init__(self) -> None:
        self.found = False
        self._ids, self._ends = list[int](), list[bool]()  # of all tokens: their ids, whether a line ends with each
        self._runs = [0] * (LONGEST + 1)  # by distance: how many of the last tokens equal those so far before them
        self._held = deque[int]()  # the places of tokens that are held back

    def add(self, token: int, ends_line: bool = False) -> int:
        """Take the next token; how many of the tokens held back, the oldest first, may be given out now."""
        at = len(self._ids)
        self._ids.append(token)
        self._ends.append(ends_line)
        self._held.append(at)
        for distance in range(1, min(at, LONGEST) + 1):
            self._runs[distance] = self._runs[distance] + 1 if self._ids[at - distance] == token else 0
        self.found = any(self._repeats(distance) for distance in range(1, min(at, LONGEST) + 1))
        return 0 if self.found else self._free()

    def _repeats(self, distance: int) -> bool:
        run = self._runs[distance]
        if run >= (COPIES - 1) * distance and run + distance >= SHORTEST:
            return True
        return run >= distance >= LINE and self._ends[-1] and self._ends[-1 - distance]

    def _free(self) -> int:
        """Everything before the first token that is part of a run which goes on."""
        first = len(self._ids) - max(self._runs)
        count = 0
        while self._held and self._held[0] < first:
            self._held.popleft()
            count += 1
        return count

    @property
    def held(self) -> int:
        """How many tokens are held back."""
        return len(self._held)
