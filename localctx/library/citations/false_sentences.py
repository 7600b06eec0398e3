"""Leaves out the sentences of a written summary that have other figures than its document, or contradict it."""

import re
from typing import NamedTuple

from localctx.library.citations.claims import claim_of, claims_something
from localctx.library.citations.source_index import SourceIndex, SourceText
from localctx.library.wording.sentences import sentences
from localctx.library.wording.word_forms import word_forms
from localctx.store.documents import StoredDocument

MIN_DIGITS = 3  # of a number without a sign of money or percent; shorter ones may number, count or date something
_FIGURE = re.compile(r"(?P<money>[€$£]\s?)?(?P<number>\d[\d.,]*\d|\d)(?P<percent>\s?(?:%|per cent|percent))?")
_LIMITS = re.compile(
    r"\b(?:without|unless|except|only|if|with|after|before|until|neither|nor|but|than|more|less|most|least)\b",
    re.IGNORECASE,
)


class FilteredSummary(NamedTuple):
    """The ``text`` of a summary, and the sentences that were ``left_out`` of it."""

    text: str
    left_out: list[str]


class FalseSentenceFilter:
    """Filters summaries of one document."""

    def __init__(self, document: StoredDocument) -> None:
        self._index, self._known = SourceIndex([SourceText.of(document)]), _numbers(document.text)

    def filter(self, summary: str) -> FilteredSummary:
        """Returns ``summary`` without the sentences that have an amount, a percentage or a long number that the
        document does not have, and without those that affirm what a sentence of the document denies, or the other way
        round.

        Names and short numbers are not compared: a true summary may word and count things in its own way. A sentence
        with a condition or a limit is not compared with denials.
        """
        kept, left_out, at = list[str](), list[str](), 0
        for start, end in sentences(summary, 0, len(summary)):
            if self._is_false(summary[start:end]):
                left_out.append(" ".join(summary[start:end].split()))
            else:
                kept.append(summary[at:end])
            at = end
        return FilteredSummary("".join(kept).strip(), left_out)

    def _is_false(self, sentence: str) -> bool:
        return claims_something(sentence) and bool(_figures(sentence) - self._known or self._is_denied(sentence))

    def _is_denied(self, sentence: str) -> bool:
        """Returns True if a sentence of the document has nearly the same words, and denies one that ``sentence``
        affirms, or affirms one that it denies.
        """
        match = self._index.most_similar_sentence(sentence)
        if match is None or _LIMITS.search(f"{sentence} {match}"):
            return False
        return claim_of(sentence).contradicts(claim_of(match))


def _numbers(text: str) -> frozenset[str]:
    return frozenset(word.form for word in word_forms(text) if word.is_number)


def _figures(sentence: str) -> frozenset[str]:
    """Returns the normalized amounts of money, percentages and long numbers of a sentence."""
    found = _FIGURE.finditer(sentence)
    long = (
        m["number"] for m in found if m["money"] or m["percent"] or sum(map(str.isdigit, m["number"])) >= MIN_DIGITS
    )
    return frozenset[str]().union(*map(_numbers, long))
