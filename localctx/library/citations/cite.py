"""Citations: the sentences or clauses of documents that support an answer, as ranges of the documents' text.

An answer that stands in the text word for word, such as a name or a number, is supported only by what contains it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from localctx.document_parts import Citation, Source
from localctx.library.citations.evidence import EvidenceRange, EvidenceScorer, ScoredRange, evidence_of
from localctx.library.search.search import Passage
from localctx.store.documents import StoredDocument, labels, part_labels

ENOUGH = 0.5  # weighted share of the answer's words that a quote must contain to be cited as its support
ALIKE = 0.8  # of the rank of the best evidence that contains the answer, from which on other such evidence is cited
MAX_CITED = 3  # citations of an answer from documents that were read whole
ATTENTION = 0.5  # by which evidence with most of the attention gains, of its share of the question's words

TextRange = tuple[int, int]
AttendedRange = tuple[int, int, int, float]  # number of the document, start, end, share of the attention


def cite_passages(answer: str, question: str, passages: Sequence[Passage]) -> list[Citation]:
    """Returns, best first, what supports ``answer`` best in each passage.

    If no passage supports the answer, returns what is nearest to the question, with a weight below ENOUGH.
    """
    sources = [source for p in passages if (source := _CitableText.of_passage(p)).ranges]
    scorer = _scorer(answer, question, sources)
    found = _direct_evidence(scorer, sources) or _enough(scorer, sources) or _nearest(scorer, sources)
    return [one.source.cite(one.range, "passage", one.evidence.answer) for one in found]


def cite_characters(document: StoredDocument, start: int, end: int) -> Citation:
    """Returns characters ``start..end`` of a document as a citation of an answer with words of them."""
    return _CitableText.of_document(document).cite((start, end), "quote", 1.0)


def nearest_sentence(documents: Sequence[StoredDocument], question: str) -> Citation:
    """Returns the sentence or clause of the documents with most of the question's words, with a weight of 0."""
    sources = list(map(_CitableText.of_document, documents))
    found = _nearest(_scorer("", question, sources), [source for source in sources if source.ranges])
    if not found:
        return replace(cite_characters(documents[0], 0, len(documents[0].text)), source="passage", weight=0.0)
    return found[0].source.cite(found[0].range, "passage", 0.0)


def likeliest_sentence(text: str, ranges: Sequence[TextRange], question: str) -> tuple[float, TextRange, TextRange]:
    """Returns which of ``ranges`` of ``text`` stands in the sentence or clause with most of the question's words: its
    weighted share of them, the range, and the characters of the sentence (or of all that the range reaches into).
    """
    known = evidence_of(text) or (EvidenceRange(0, len(text), frozenset(), ""),)
    starts, scorer = [one.start for one in known], EvidenceScorer("", question, known)
    found = list[tuple[float, TextRange, TextRange]]()
    for start, end in ranges:
        first = max(0, bisect_right(starts, start) - 1)
        last = max(first, bisect_left(starts, end) - 1)
        around = min(start, starts[first]), max(end, known[last].end)
        found.append((scorer.together(known[first : last + 1]).question, (start, end), around))
    return max(found, key=lambda one: one[0])


def cite_from_attention(
    answer: str, question: str, documents: Sequence[StoredDocument], attended: Sequence[AttendedRange]
) -> list[Citation]:
    """Returns citations of what supports ``answer`` best, where the model attended to most while it answered; if it
    attended to nothing that does, of what supports it elsewhere, or else of what it attended to.

    ``attended`` are ranges of ``documents`` with their share of the attention, in descending order. A share of 0 means
    that it was not measured. Without any, nothing is cited.
    """
    if not attended:
        return []
    sources = list(map(_CitableText.of_document, documents))
    scorer, measured = _scorer(answer, question, sources), [item for item in attended if item[3]]
    looked = [(sources[i].within(start, end), share) for i, start, end, share in measured[:MAX_CITED]]
    seen = [_Found(source, scorer.best(source.ranges), share) for source, share in looked if source.ranges]
    found = _direct_evidence(scorer, sources, measured)
    found = found or [one for one in seen if one.evidence.answer >= ENOUGH] or _enough(scorer, sources)[:1]
    found = found or [one for source, share in looked for one in _nearest(scorer, [source], share)]
    cited = [
        one.source.cite(one.range, "attention" if one.share else "passage", one.share or one.evidence.answer)
        for one in found
    ]
    unique = {(c.document, c.start, c.end): c for c in sorted(cited, key=lambda c: c.weight)}
    return sorted(unique.values(), key=lambda c: -c.weight)


def cite_words(answer: str, question: str, documents: Sequence[StoredDocument]) -> list[Citation]:
    """Returns, best first, what supports ``answer`` best in each document, where nothing is known of the model's
    attention; if nothing does, the sentence nearest to the ``question``, with a weight of 0.
    """
    sources = [source for d in documents if (source := _CitableText.of_document(d)).ranges]
    scorer = _scorer(answer, question, sources)
    found = (_direct_evidence(scorer, sources) or _enough(scorer, sources))[:MAX_CITED]
    if not found and sources:
        return [replace(nearest_sentence(documents, question), source="words")]
    return [one.source.cite(one.range, "words", one.evidence.answer) for one in found]


class _CitableText(NamedTuple):
    """The ``text`` that was read of a document, from its character ``offset`` on, with the ``ranges`` that can be
    cited; ``page`` and ``heading`` return what a position of the document is under.
    """

    document: str
    name: str
    offset: int
    text: str
    ranges: Sequence[EvidenceRange]
    page: Callable[[int], str | None]
    heading: Callable[[int], str | None]

    @classmethod
    def of_passage(cls, p: Passage) -> "_CitableText":
        return cls(p.document, p.name, p.start, p.text, evidence_of(p.text), p.page_at, lambda at: p.heading)

    @classmethod
    def of_document(cls, document: StoredDocument) -> "_CitableText":
        row, text, spans = document
        page, heading = part_labels(spans), labels(spans, "heading")
        return cls(row.id, row.name, 0, text, evidence_of(text), page, heading)

    def within(self, start: int, end: int) -> "_CitableText":
        """Returns the same with the ranges alone that overlap ``start..end``; those mostly inside it, if there are."""
        overlapping = [one for one in self.ranges if one.start < end and start < one.end]
        inside = [one for one in overlapping if 2 * (min(one.end, end) - max(one.start, start)) >= one.end - one.start]
        return self._replace(ranges=inside or overlapping)

    def cite(self, of: TextRange, source: Source, weight: float) -> Citation:
        start, end = self.offset + of[0], self.offset + of[1]
        page, heading, quote = self.page(start), self.heading(start), self.text[slice(*of)]
        return Citation(self.document, self.name, page, heading, start, end, quote, source, round(weight, 4))


class _Found(NamedTuple):
    """Evidence in a ``source``; ``share`` of the attention that went there (0: unknown)."""

    source: _CitableText
    evidence: ScoredRange
    share: float = 0.0

    @property
    def range(self) -> TextRange:
        return self.evidence.start, self.evidence.end


def _scorer(answer: str, question: str, sources: Iterable[_CitableText]) -> EvidenceScorer:
    return EvidenceScorer(answer, question, (one for source in sources for one in source.ranges))


def _direct_evidence(
    scorer: EvidenceScorer, sources: Sequence[_CitableText], measured: Sequence[AttendedRange] = ()
) -> list[_Found]:
    """Returns, best first, what contains the answer word for word and has most of the question's words and of the
    attention; of yes and no, what has most of both; nothing for other answers.
    """
    most = max((share for *_, share in measured), default=0.0) or 1.0
    found = list[tuple[float, float, _Found]]()
    for i, source in enumerate(sources):
        for evidence in scorer.each(source.ranges):
            if evidence.contains or scorer.is_yes_no:
                share = _share_at(i, evidence, measured)
                rank = evidence.answer if scorer.is_yes_no else evidence.question
                found.append((rank * (1 + ATTENTION * share / most), share, _Found(source, evidence, share)))
    found.sort(key=lambda one: (-one[0], -one[1]))
    alike = [one for rank, _, one in found if rank and rank >= ALIKE * found[0][0]]
    attended = [one for _, share, one in found[:1] if share or not scorer.is_yes_no]
    return (alike or attended)[: 1 if scorer.is_yes_no else MAX_CITED]


def _share_at(document: int, evidence: ScoredRange, measured: Iterable[AttendedRange]) -> float:
    """Returns the largest share of the attention that a range of a document got which overlaps the evidence."""
    shares = (s for i, start, end, s in measured if i == document and start < evidence.end and evidence.start < end)
    return max(shares, default=0.0)


def _enough(scorer: EvidenceScorer, sources: Sequence[_CitableText]) -> list[_Found]:
    """Returns, best first, the best evidence of each source, if it has enough of the answer's words."""
    best = [_Found(source, scorer.best(source.ranges)) for source in sources if source.ranges]
    enough = [one for one in best if one.evidence.answer >= ENOUGH]
    return sorted(enough, key=lambda one: one.evidence.score, reverse=True)


def _nearest(scorer: EvidenceScorer, sources: Sequence[_CitableText], share: float = 0.0) -> list[_Found]:
    """Returns the sentence or clause with most of the question's words, the first of several; [] without any."""
    every = [_Found(source, evidence, share) for source in sources for evidence in scorer.each(source.ranges)]
    return [max(every, key=lambda one: (one.evidence.question, one.evidence.answer))] if every else []
