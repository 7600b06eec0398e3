"""Prompt lookup: drafts tokens by copying. Answers repeat the document, so the tokens that followed an earlier
occurrence of the last tokens often come again.
"""

from collections.abc import Sequence

NGRAM = 3  # tokens that must occur earlier in the same order
_FIRST_DRAFT = 2  # tokens in the first draft


class PromptLookup:
    """Drafts tokens for an answer. It finds the last NGRAM tokens at an earlier place in the prompt ``tokens`` or the
    answer, and proposes the tokens that followed there.

    This is prompt-lookup decoding: speculative decoding (arXiv:2211.17192) without a draft model.

    A draft has at most ``max_draft`` tokens; 0 disables drafting. The next draft is longer after a fully accepted one,
    else as long as the accepted part. ``drafted`` and ``accepted`` are numbers of tokens.
    """

    def __init__(self, tokens: Sequence[int], max_draft: int) -> None:
        self.max_draft, self.drafted, self.accepted = max_draft, 0, 0
        self._tokens, self._next_size = list[int](), _FIRST_DRAFT
        self._continuations = dict[tuple[int, ...], int]()  # n-gram to the index after its last occurrence
        for token in tokens if max_draft else ():
            self.add(token)

    def add(self, token: int) -> None:
        """Append a token of the prompt or the answer."""
        if len(self._tokens) >= NGRAM:
            self._continuations[tuple(self._tokens[-NGRAM:])] = len(self._tokens)
        self._tokens.append(token)

    def draft(self, max_tokens: int) -> list[int]:
        """Returns at most ``max_tokens`` tokens that may come next. Returns none if the last NGRAM tokens did not occur
        before.
        """
        at = self._continuations.get(tuple(self._tokens[-NGRAM:]))
        return [] if at is None else self._tokens[at : at + min(max_tokens, self._next_size, self.max_draft)]

    def record(self, drafted: int, accepted: int) -> None:
        """Record that the first ``accepted`` tokens of a draft of ``drafted`` tokens were right, and set the length of
        the next draft.
        """
        self.drafted, self.accepted = self.drafted + drafted, self.accepted + accepted
        self._next_size = min(self.max_draft, 2 * self._next_size) if accepted == drafted else max(1, accepted)
