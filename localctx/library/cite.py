"""Citations: what in the documents an answer stands on, as ranges of their text with the words that are there."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from localctx.library.search import Passage
from localctx.library.sentences import LONG, sentences
from localctx.store.documents import DocumentRow, Span, StoredDocument, labels

ENOUGH = 0.5  # of the answer's words, by weight, a quote must have to be told as its support
MOST_SENTENCES = 3
DEARER = 0.2  # of the answer's words that one sentence more has to bring
MOST = 3  # citations found by attention
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")  # each sign where none are parted

Range = tuple[int, int]
Source = Literal["passage", "attention"]
Look = tuple[int, int, int, float]  # document, start, end, share


@dataclass(frozen=True)
class Citation:
    """Characters ``start..end`` of a document's text, which are ``quote``, under this heading and on this page.

    ``weight`` of one from a ``passage``: the share of the answer's words that the quote has, 1 where it has the answer
    itself. Of one by ``attention``: the share of the attention that went to the page of the KV cache it lies in.
    """

    document: str
    name: str
    page: str | None
    heading: str | None
    start: int
    end: int
    quote: str
    source: Source
    weight: float


def quotes(answer: str, question: str, passages: Sequence[Passage]) -> list[Citation]:
    """Of each passage that supports ``answer`` the sentences that do so best, best first.

    Where none does, those of the first passage that come nearest; their weight is below ENOUGH.
    """
    found = [list(sentences(p.text, 0, len(p.text))) for p in passages]
    says = _Says(answer, question, (p.text[a:b] for p, some in zip(passages, found, strict=True) for a, b in some))
    best = [(says.best(p.text, some), p) for p, some in zip(passages, found, strict=True) if some]
    enough = [(quote, p) for quote, p in best if quote.answer >= ENOUGH] or best[:1]
    return [_of_passage(p, quote) for quote, p in sorted(enough, key=lambda e: e[0].score, reverse=True)]


def quote_range(answer: str, passage: Passage, start: int, end: int) -> Citation:
    """Characters ``start..end`` of a passage as what ``answer`` stands on."""
    says = _Says(answer, "", [passage.text[start:end]])
    return _of_passage(passage, says.best(passage.text, [(start, end)]))


def glimpses(answer: str, question: str, documents: Sequence[StoredDocument], looks: Sequence[Look]) -> list[Citation]:
    """What the model looked at most while it answered: the sentences there that support ``answer``, or all there.

    ``looks``: ranges of the ``documents``, by their number, with their share of the attention, most first; 0 where
    nothing is known of it. Those are searched when no other supports the answer.
    """
    told = [look for look in looks if look[3]][:MOST] + [look for look in looks if not look[3]]
    spots = [spot for i, start, end, share in told if (spot := _Spot(*documents[i], start, end, share)).found]
    says = _Says(answer, question, (s.text[a:b] for s in spots for a, b in s.found))
    best = [(s, says.best(s.text, s.found)) for s in spots]
    cited = [s.cite(q if q.answer >= ENOUGH else None) for s, q in best if s.share]
    if all(q.answer < ENOUGH for s, q in best if s.share):
        enough = [(s, q) for s, q in best if q.answer >= ENOUGH]
        cited = [s.cite(q) for s, q in sorted(enough, key=lambda e: e[1].score)[-1:]] + cited
    unique = dict[tuple[str, int, int], Citation]()
    for c in cited:
        unique.setdefault((c.document, c.start, c.end), c)
    return list(unique.values())


def _of_passage(p: Passage, quote: "_Quote") -> Citation:
    words, at = p.text[quote.start : quote.end], p.start
    weight = round(quote.answer, 4)
    return Citation(p.document, p.name, p.page, p.heading, at + quote.start, at + quote.end, words, "passage", weight)


class _Quote(NamedTuple):
    """Some sentences, as a range; the share of the answer's words they have, and their score."""

    start: int
    end: int
    answer: float
    score: tuple[bool, float, float]


class _Spot:
    """Characters of a document, of which a ``share`` is known or 0, and the sentences ``found`` that touch them."""

    def __init__(self, row: DocumentRow, text: str, spans: Sequence[Span], start: int, end: int, share: float) -> None:
        self.row, self.text, self.spans, self.share = row, text, spans, share
        self._range = start, end
        near = sentences(text, max(0, start - LONG), min(len(text), end + LONG))
        self.found = [(a, b) for a, b in near if a < end and start < b]

    def cite(self, quote: _Quote | None) -> Citation:
        """The quote, or the sentences that lie here for the most part."""
        start, end = (quote.start, quote.end) if quote else self._mostly()
        page, heading = (labels(self.spans, kind)(start) for kind in ("page", "heading"))
        source: Source = "attention" if self.share else "passage"
        weight = round(self.share or (quote.answer if quote else 0), 4)
        words = self.text[start:end]
        return Citation(self.row.id, self.row.name, page, heading, start, end, words, source, weight)

    def _mostly(self) -> Range:
        start, end = self._range
        inside = [(a, b) for a, b in self.found if 2 * (min(b, end) - max(a, start)) >= b - a] or self.found
        return inside[0][0], inside[-1][1]


class _Says:
    """How much of an answer some text says. Words that are in few of the ``texts`` count more."""

    def __init__(self, answer: str, question: str, texts: Iterable[str]) -> None:
        seen, total = Counter[str](), 0
        for text in texts:
            seen.update(set(split_words(text)))
            total += 1
        self._answer, self._question = (
            {w: math.log(1 + total / max(1, seen[w])) for w in split_words(said)} for said in (answer, question)
        )
        self._exactly = _plain(answer)

    def best(self, text: str, found: Sequence[Range]) -> _Quote:
        """The sentence, or the shortest run of the sentences ``found``, that says most of the answer."""
        runs = [
            found[i : i + n] for i in range(len(found)) for n in range(1, MOST_SENTENCES + 1) if i + n <= len(found)
        ]
        return max((self._quote(text, run) for run in runs), key=lambda q: q.score)

    def _quote(self, text: str, run: Sequence[Range]) -> _Quote:
        start, end = run[0][0], run[-1][1]
        words = set(split_words(text[start:end]))
        answer, question = (_share(of, words) for of in (self._answer, self._question))
        exact = bool(self._answer) and self._exactly in _plain(text[start:end])
        return _Quote(start, end, answer, (exact, answer - DEARER * (len(run) - 1), question))


def _share(of: dict[str, float], words: set[str]) -> float:
    return sum(weight for word, weight in of.items() if word in words) / sum(of.values()) if of else 0.0


def split_words(text: str) -> list[str]:
    """The words of a text, and each sign of a script without blanks, whatever their case."""
    return _WORD.findall(text.casefold())


def _plain(text: str) -> str:
    """The words alone, each between spaces, so that one text is found in another only as whole words."""
    return f" {' '.join(split_words(text))} "
