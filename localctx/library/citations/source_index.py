"""Finds the sentences, in the texts that were read, that support the claim of another sentence."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

from localctx.document_parts import Citation
from localctx.library.citations.cite import TextRange
from localctx.library.citations.claims import Claim, claim_of
from localctx.library.citations.rarity import rarity, share_of
from localctx.library.wording.sentences import sentences
from localctx.library.wording.word_forms import word_forms
from localctx.store.documents import StoredDocument, labels, part_labels

MAX_RUN = 3  # sentences in a row that may support a claim together
RUN_COST = 0.05  # share of the words that each further sentence must add
MAX_LENGTH = 500  # characters of a run; a single sentence may be longer
ALIKE = 0.8  # weighted share of a sentence's words that another sentence must have to be nearly the same
MAX_STARTS = 40  # sentences around which runs are tried: those with the most words of the claim

DocumentRange = tuple[str, int, int]
"""A document's id and the characters ``start..end`` of its text."""

_SentenceForms = tuple[int, int, frozenset[str]]  # characters start..end of a text, and the forms of its words


@dataclass(frozen=True)
class SourceText:
    """A text that was read for an answer: ``text`` begins at character ``start`` of the document with the id
    ``document``.

    ``page`` and ``heading`` are functions from a position in the document to the page or heading there, or None.
    """

    document: str
    name: str
    start: int
    text: str
    page: Callable[[int], str | None] = field(default=lambda at: None, compare=False)
    heading: Callable[[int], str | None] = field(default=lambda at: None, compare=False)

    @classmethod
    def of(cls, document: StoredDocument, start: int = 0, end: int | None = None) -> "SourceText":
        """Returns the SourceText for characters ``start..end`` of a document. If ``end`` is None, the text goes to the
        end of the document.
        """
        page, heading = part_labels(document.spans), labels(document.spans, "heading")
        return cls(document.row.id, document.row.name, start, document.text[start:end], page, heading)


class Match(NamedTuple):
    """The characters ``start..end`` of a ``source`` that match a sentence.

    ``share`` is the weighted share of the sentence's words that these characters have. The higher ``score``, the better
    the match.
    """

    source: SourceText
    start: int
    end: int
    share: float
    score: tuple[float, ...]

    def cite(self) -> Citation:
        """Returns a citation of the matching characters."""
        source, text = self.source, self.source.text[self.start : self.end]
        at, end = source.start + self.start, source.start + self.end
        page, heading, weight = source.page(at), source.heading(at), round(self.share, 4)
        return Citation(source.document, source.name, page, heading, at, end, text, "passage", weight)


class SourceIndex:
    """Finds sentences of ``texts`` by their words. The index from words to sentences is built at the first query."""

    def __init__(self, texts: Sequence[SourceText]) -> None:
        self.texts = texts
        self._where = defaultdict[str, list[tuple[int, int]]](list)  # text and sentence

    def best_match(self, sentence: str, question: str = "", near: Sequence[DocumentRange] = ()) -> Match | None:
        """Returns the best match for ``sentence``: the run of neighbouring sentences that has most of its words,
        weighted by rarity. Returns None if there is none.

        The run must have all numbers and names of the sentence, and must not contradict it. On a tie, a run that
        overlaps one of the ranges ``near`` is preferred, then one with words of the ``question``.
        """
        claim = claim_of(sentence)
        matches = self._matches(claim, question, near)
        return next((match for match in matches if match.share and not claim.contradicts(self._claim(match))), None)

    def most_similar_sentence(self, sentence: str) -> str | None:
        """Returns the one sentence of the texts that has most of the words of ``sentence``, at least the share ALIKE of
        them by weight, and all of its numbers and names; None if there is none.
        """
        best = next(iter(self._matches(claim_of(sentence), longest=1)), None)
        return best.source.text[best.start : best.end] if best and best.share >= ALIKE else None

    def _matches(
        self, claim: Claim, question: str = "", near: Sequence[DocumentRange] = (), longest: int = MAX_RUN
    ) -> list[Match]:
        """Returns the runs of up to ``longest`` sentences that have all numbers and names of ``claim``, best first."""
        runs = self._runs
        required = claim.required | claim.words & self._names
        weights = {word: self._weight(word) for word in claim.words}
        asked = {word: self._weight(word) for word in claim_of(question).words - claim.words}
        found = list[Match]()
        for text, first, last in self._candidates(weights, asked):
            words = frozenset[str]().union(*(words for *_, words in runs[text][first:last]))
            if last - first <= longest and required <= words:
                found.append(self._match(text, first, last, share_of(words, weights), share_of(words, asked), near))
        return sorted(found, key=lambda match: match.score, reverse=True)

    @cached_property
    def _runs(self) -> list[list[_SentenceForms]]:
        indexed = [_indexed(source.text)[0] for source in self.texts]
        for i, ranges in enumerate(indexed):
            for j, (_, _, words) in enumerate(ranges):
                for word in words:
                    self._where[word].append((i, j))
        return indexed

    @cached_property
    def _names(self) -> frozenset[str]:
        """The words that are always capitalized in the texts."""
        cased = [_indexed(source.text)[1:] for source in self.texts]
        upper, lower = (frozenset[str]().union(*forms) for forms in zip(*cased, strict=True)) if cased else ((), ())
        return frozenset(upper) - frozenset(lower)

    @cached_property
    def _total(self) -> int:
        return sum(map(len, self._runs))

    def _candidates(self, weights: Mapping[str, float], asked: Mapping[str, float]) -> list[tuple[int, int, int]]:
        """Returns runs of sentences (text, first sentence, end) around the sentences with the most weight. ``weights``
        are the weights of the words of the claim, ``asked`` of the words of the question.
        """
        shares = defaultdict[tuple[int, int], float](float)
        for word, weight in weights.items():
            for place in self._where.get(word, ()):
                shares[place] += weight
        for word, weight in asked.items():
            for place in self._where.get(word, ()):
                shares[place] += weight / 100 if place in shares else 0
        best = sorted(shares, key=lambda place: (-shares[place], place))[:MAX_STARTS]
        starts = [(i, j - back, j) for i, j in best for back in range(min(j, MAX_RUN - 1) + 1)]
        runs = ((i, first, first + n) for i, first, j in starts for n in range(j - first + 1, MAX_RUN + 1))
        return [run for run in dict.fromkeys(runs) if self._is_run(*run)]

    def _is_run(self, text: int, first: int, last: int) -> bool:
        found = self._runs[text][first:last]
        return len(found) == last - first and (len(found) == 1 or found[-1][1] - found[0][0] <= MAX_LENGTH)

    def _match(
        self, text: int, first: int, last: int, share: float, asked: float, near: Sequence[DocumentRange]
    ) -> Match:
        source, cost = self.texts[text], RUN_COST * (last - first - 1)
        start, end = self._runs[text][first][0], self._runs[text][last - 1][1]
        is_near = any(d == source.document and a < source.start + end and source.start + start < b for d, a, b in near)
        return Match(source, start, end, share, (share - cost, is_near, asked - cost, -text, -start))

    def _claim(self, match: Match) -> Claim:
        return claim_of(match.source.text[match.start : match.end])

    def _weight(self, word: str) -> float:
        return rarity(self._total, len(self._where.get(word, ())))


def sentence_words(text: str) -> list[_SentenceForms]:
    """Returns the sentences of ``text``: where each starts and ends, and the forms of its content words."""
    return _indexed(text)[0]


@lru_cache(8)
def _indexed(text: str) -> tuple[list[_SentenceForms], frozenset[str], frozenset[str]]:
    """Returns the sentences of a text, its capitalized words, and its other words."""
    ranges: list[TextRange] = list(sentences(text, 0, len(text)))
    starts, words = [start for start, _ in ranges], [set[str]() for _ in ranges]
    cased: tuple[set[str], set[str]] = set(), set()
    for word in word_forms(text):
        if word.is_content:
            words[bisect_right(starts, word.start) - 1].add(word.form)
            cased[not text[word.start].isupper()].add(word.form)
    indexed = [(start, end, frozenset(found)) for (start, end), found in zip(ranges, words, strict=True)]
    return indexed, frozenset(cased[0]), frozenset(cased[1])
