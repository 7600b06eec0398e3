"""Guesses of what comes next, looked up in what is there: answers from documents repeat the document."""

from collections.abc import Sequence

KEY = 3  # tokens that must have come in the same order before
_TRY = 2  # tokens guessed at first, and after a miss


class PromptLookup:
    """What followed when the last tokens of the prompt ``tokens`` and its answer came before (prompt-lookup decoding:
    speculation, arXiv:2211.17192, without a second model). At most ``most`` tokens are guessed; how many, what became
    of the last guess decides. ``drafted`` and ``accepted`` count.
    """

    def __init__(self, tokens: Sequence[int], most: int) -> None:
        self.most, self.drafted, self.accepted = most, 0, 0
        self._tokens, self._next = list[int](), _TRY
        self._after = dict[tuple[int, ...], int]()  # where what followed these tokens last begins
        for token in tokens if most else ():
            self.add(token)

    def add(self, token: int) -> None:
        """The next token is known."""
        if len(self._tokens) >= KEY:
            self._after[tuple(self._tokens[-KEY:])] = len(self._tokens)
        self._tokens.append(token)

    def guess(self, most: int) -> list[int]:
        """At most ``most`` tokens that may follow; none where nothing is alike."""
        at = self._after.get(tuple(self._tokens[-KEY:]))
        return [] if at is None else self._tokens[at : at + min(most, self._next, self.most)]

    def hear(self, drafted: int, accepted: int) -> None:
        """So many of the tokens guessed last were right: all of them, and more are guessed next time."""
        self.drafted, self.accepted = self.drafted + drafted, self.accepted + accepted
        self._next = min(self.most, 2 * self._next) if accepted == drafted else max(1, accepted)
