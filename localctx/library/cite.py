"""Citations: the sentences of documents that support an answer, as ranges of the documents' text."""

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from localctx.document_parts import Citation, Source
from localctx.library.search import Passage
from localctx.library.sentences import LONG, sentences
from localctx.store.documents import DocumentRow, Span, StoredDocument, labels, part_labels

ENOUGH = 0.5  # weighted share of the answer's words that a quote must contain to be cited as its support
MAX_SENTENCES = 3  # in a quote
SENTENCE_COST = 0.2  # weighted share of the answer's words that each further sentence has to add
MAX_ATTENDED = 3  # citations found by attention

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")  # CJK characters one by one

TextRange = tuple[int, int]
AttendedRange = tuple[int, int, int, float]  # number of the document, start, end, share of the attention


def cite_passages(answer: str, question: str, passages: Sequence[Passage]) -> list[Citation]:
    """Returns, best first, the sentences of each passage that support ``answer`` best.

    If no passage supports the answer, returns the nearest sentences of the first passage, with a weight below ENOUGH.
    """
    ranges = [list(sentences(p.text, 0, len(p.text))) for p in passages]
    texts = (p.text[a:b] for p, sentence_ranges in zip(passages, ranges, strict=True) for a, b in sentence_ranges)
    matcher = _AnswerMatcher(answer, question, texts)
    best = [
        (matcher.best_quote(p.text, sentence_ranges), p)
        for p, sentence_ranges in zip(passages, ranges, strict=True)
        if sentence_ranges
    ]
    enough = [(quote, p) for quote, p in best if quote.answer >= ENOUGH] or best[:1]
    return [_cite_passage(p, quote) for quote, p in sorted(enough, key=lambda e: e[0].score, reverse=True)]


def cite_range(answer: str, passage: Passage, start: int, end: int) -> Citation:
    """Returns characters ``start..end`` of the passage's text as a citation, weighted by its match with ``answer``."""
    matcher = _AnswerMatcher(answer, "", [passage.text[start:end]])
    return _cite_passage(passage, matcher.best_quote(passage.text, [(start, end)]))


def cite_characters(document: StoredDocument, start: int, end: int) -> Citation:
    """Returns characters ``start..end`` of a document as a citation of an answer that consists of these words."""
    row, text, spans = document
    page, heading = part_labels(spans)(start), labels(spans, "heading")(start)
    return Citation(row.id, row.name, page, heading, start, end, text[start:end], "quote", 1.0)


def nearest_sentence(documents: Sequence[StoredDocument], question: str) -> Citation:
    """Returns the sentence of the documents with most of the question's words."""
    best = list[tuple[float, int, TextRange]]()
    for i, document in enumerate(documents):
        every_sentence = list(sentences(document.text, 0, len(document.text))) or [(0, len(document.text))]
        share, chosen, _ = likeliest_sentence(document.text, every_sentence, question)
        best.append((share, -i, chosen))
    share, i, (start, end) = max(best)
    return replace(cite_characters(documents[-i], start, end), source="passage", weight=0.0)


def likeliest_sentence(text: str, ranges: Sequence[TextRange], question: str) -> tuple[float, TextRange, TextRange]:
    """Returns which of ``ranges`` of ``text`` stands in the sentence with most of the question's words: that sentence's
    weighted share of them, the range, and the characters of the sentence (or of all that the range reaches into).
    """
    every_sentence = list(sentences(text, 0, len(text))) or [(0, len(text))]
    starts = [start for start, _ in every_sentence]
    matcher = _AnswerMatcher("", question, (text[a:b] for a, b in every_sentence))
    found = list[tuple[float, TextRange, TextRange]]()
    for start, end in ranges:
        first = max(0, bisect_right(starts, start) - 1)
        last = max(first, bisect_left(starts, end) - 1)
        around = min(start, starts[first]), max(end, every_sentence[last][1])
        found.append((matcher.question_share(text[slice(*around)]), (start, end), around))
    return max(found, key=lambda one: one[0])


def cite_from_attention(
    answer: str, question: str, documents: Sequence[StoredDocument], attended: Sequence[AttendedRange]
) -> list[Citation]:
    """Returns citations from the ranges that the model attended to most while it answered: the sentences in them that
    support ``answer``, or else all their sentences.

    ``attended`` are ranges of ``documents`` with their share of the attention, in descending order. A share of 0 means
    that it was not measured; such a range is cited only where no measured one supports the answer.
    """
    measured = [item for item in attended if item[3]][:MAX_ATTENDED]
    chosen = measured + [item for item in attended if not item[3]]
    ranges = [r for i, start, end, share in chosen if (r := _SentenceRange(*documents[i], start, end, share)).sentences]
    matcher = _AnswerMatcher(answer, question, (r.text[a:b] for r in ranges for a, b in r.sentences))
    best = [(r, matcher.best_quote(r.text, r.sentences)) for r in ranges]
    cited = [r.cite(q if q.answer >= ENOUGH else None) for r, q in best if r.share]
    if all(q.answer < ENOUGH for r, q in best if r.share):
        enough = [(r, q) for r, q in best if q.answer >= ENOUGH]
        cited = [r.cite(q) for r, q in sorted(enough, key=lambda e: e[1].score)[-1:]] + cited
    unique = dict[tuple[str, int, int], Citation]()
    for c in cited:
        unique.setdefault((c.document, c.start, c.end), c)
    return list(unique.values())


def cite_words(answer: str, question: str, documents: Sequence[StoredDocument]) -> list[Citation]:
    """Returns, best first, the sentences of each document that support ``answer`` best, where nothing is known of the
    model's attention; if none supports it, the sentence nearest to the ``question``, with a weight of 0.
    """
    ranges = [
        r for row, text, spans in documents if (r := _SentenceRange(row, text, spans, 0, len(text), 0.0)).sentences
    ]
    matcher = _AnswerMatcher(answer, question, (r.text[a:b] for r in ranges for a, b in r.sentences))
    best = [(r, matcher.best_quote(r.text, r.sentences)) for r in ranges]
    enough = [(r, quote) for r, quote in best if quote.answer >= ENOUGH]
    cited = [r.cite(quote) for r, quote in sorted(enough, key=lambda e: e[1].score, reverse=True)[:MAX_ATTENDED]]
    if not cited and ranges:
        cited = [nearest_sentence(documents, question)]
    return [replace(citation, source="words") for citation in cited]


def _cite_passage(p: Passage, quote: "_Quote") -> Citation:
    words, at = p.text[quote.start : quote.end], p.start
    weight = round(quote.answer, 4)
    page, start, end = p.page_at(at + quote.start), at + quote.start, at + quote.end
    return Citation(p.document, p.name, page, p.heading, start, end, words, "passage", weight)


class _Quote(NamedTuple):
    """A range of consecutive sentences, the weighted share of the answer's words in it, and its score."""

    start: int
    end: int
    answer: float
    score: tuple[bool, float, float]


class _SentenceRange:
    """The ``sentences`` of a document that overlap ``start..end``, with its ``share`` of the attention (0: unknown)."""

    def __init__(self, row: DocumentRow, text: str, spans: Sequence[Span], start: int, end: int, share: float) -> None:
        self.row, self.text, self.spans, self.share = row, text, spans, share
        self._range = start, end
        near = sentences(text, max(0, start - LONG), min(len(text), end + LONG))
        self.sentences = [(a, b) for a, b in near if a < end and start < b]

    def cite(self, quote: _Quote | None) -> Citation:
        """Returns the quote as a citation or, without one, the sentences that lie mostly inside the range."""
        start, end = (quote.start, quote.end) if quote else self._mostly_inside()
        page, heading = part_labels(self.spans)(start), labels(self.spans, "heading")(start)
        source: Source = "attention" if self.share else "passage"
        weight = round(self.share or (quote.answer if quote else 0), 4)
        words = self.text[start:end]
        return Citation(self.row.id, self.row.name, page, heading, start, end, words, source, weight)

    def _mostly_inside(self) -> TextRange:
        start, end = self._range
        inside = [(a, b) for a, b in self.sentences if 2 * (min(b, end) - max(a, start)) >= b - a] or self.sentences
        return inside[0][0], inside[-1][1]


class _AnswerMatcher:
    """Scores how much of an answer a text contains. Words that occur in few of the ``texts`` weigh more (IDF)."""

    def __init__(self, answer: str, question: str, texts: Iterable[str]) -> None:
        counts, total = Counter[str](), 0
        for text in texts:
            counts.update(set(split_words(text)))
            total += 1
        self._answer, self._question = (
            {w: math.log(1 + total / max(1, counts[w])) for w in split_words(words)} for words in (answer, question)
        )
        self._normalized_answer = _normalized(answer)

    def best_quote(self, text: str, ranges: Sequence[TextRange]) -> _Quote:
        """Returns the run of up to MAX_SENTENCES sentences, of those at ``ranges``, that matches the answer best."""
        runs = [
            ranges[i : i + n] for i in range(len(ranges)) for n in range(1, MAX_SENTENCES + 1) if i + n <= len(ranges)
        ]
        return max((self._quote(text, run) for run in runs), key=lambda q: q.score)

    def question_share(self, text: str) -> float:
        """Returns the weighted share of the question's words that ``text`` contains."""
        return _share(self._question, set(split_words(text)))

    def _quote(self, text: str, run: Sequence[TextRange]) -> _Quote:
        start, end = run[0][0], run[-1][1]
        words = set(split_words(text[start:end]))
        answer, question = (_share(weights, words) for weights in (self._answer, self._question))
        exact = bool(self._answer) and self._normalized_answer in _normalized(text[start:end])
        return _Quote(start, end, answer, (exact, answer - SENTENCE_COST * (len(run) - 1), question))


def _share(weights: dict[str, float], words: set[str]) -> float:
    return sum(w for word, w in weights.items() if word in words) / sum(weights.values()) if weights else 0.0


def split_words(text: str) -> list[str]:
    """Returns the words of a text in lower case; characters of scripts without spaces one by one."""
    return _WORD.findall(text.casefold())


def _normalized(text: str) -> str:
    """Returns the words of a text, each between spaces, so that a text is found in another only as whole words."""
    return f" {' '.join(split_words(text))} "
