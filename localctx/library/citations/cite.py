"""Cites the sentences or clauses of documents that support an answer, as ranges of the documents' text.

If some evidence contains the answer word for word, such as a name or a number, only such evidence is cited. Attention
means the share of the model's attention that a range of text had while the model answered.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from localctx.document_parts import Citation, Source
from localctx.library.citations.evidence import EvidenceRange, EvidenceScorer, ScoredRange, evidence_of
from localctx.library.search.search import Passage
from localctx.library.wording.sentences import ENDS, heading_lines
from localctx.store.documents import StoredDocument, labels, part_labels

ENOUGH = 0.5  # weighted share of the answer's words that a quote must contain to be cited as its support
ALIKE = 0.8  # other evidence that contains the answer is cited from this share of the best one's rank
TITLE = 10  # words that a heading has at most
BELOW = 400  # characters after a line, by which it is recognized as a heading
MAX_CITED = 3  # citations of an answer from documents that were read whole
ATTENTION = 0.5  # the evidence with the most attention has its rank raised by this share

TextRange = tuple[int, int]
AttendedRange = tuple[int, int, int, float]  # number of the document, start, end, share of the attention


def cite_passages(answer: str, question: str, passages: Sequence[Passage]) -> list[Citation]:
    """Returns citations of the best evidence for ``answer`` in the passages, best first.

    If no passage supports the answer, cites the text that has the most words of the question, with a weight below
    ENOUGH.
    """
    sources = [source for p in passages if (source := _CitableText.of_passage(p)).ranges]
    scorer = _scorer(answer, question, sources)
    found = _direct_evidence(scorer, sources) or _enough(scorer, sources) or _nearest(scorer, sources)
    return [one.source.cite(one.range, "passage", one.evidence.answer) for one in found]


def cite_characters(document: StoredDocument, start: int, end: int) -> Citation:
    """Returns a citation of the characters ``start..end`` of a document, for an answer that quotes them."""
    return _CitableText.of_document(document).cite((start, end), "quote", 1.0)


def nearest_sentence(documents: Sequence[StoredDocument], question: str) -> Citation:
    """Returns a citation of the sentence or clause with the most words of the question.

    The weight of the citation is 0, because the sentence need not support any answer.
    """
    sources = list(map(_CitableText.of_document, documents))
    found = _nearest(_scorer("", question, sources), [source for source in sources if source.ranges])
    if not found:
        return replace(cite_characters(documents[0], 0, len(documents[0].text)), source="passage", weight=0.0)
    return found[0].source.cite(found[0].range, "passage", 0.0)


def likeliest_sentence(text: str, ranges: Sequence[TextRange], question: str) -> tuple[float, TextRange, TextRange]:
    """Find the sentence or clause, in the character ``ranges`` of ``text``, that has the most words of the question.

    Returns a tuple: the weighted share of the question's words that the sentence has, the one of ``ranges`` that has
    the sentence, and the characters of all sentences that this range overlaps.
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
    """Returns citations of the best evidence for ``answer``. Text that had much of the model's attention is preferred.

    ``attended`` are ranges of ``documents``, each with its share of the model's attention while answering, in
    descending order. A share of 0 means that the share was not measured. If no attended text supports the answer, cites
    evidence elsewhere, or else the attended text with the most words of the question. Without ranges, cites nothing.
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
    """Returns citations of the best evidence for ``answer``, best first. Only words are compared; the model's attention
    is not used.

    If nothing supports the answer, cites the sentence with the most words of the ``question``, with a weight of 0.
    """
    sources = [source for d in documents if (source := _CitableText.of_document(d)).ranges]
    scorer = _scorer(answer, question, sources)
    found = (_direct_evidence(scorer, sources) or _enough(scorer, sources))[:MAX_CITED]
    if not found and sources:
        return [replace(nearest_sentence(documents, question), source="words")]
    return [one.source.cite(one.range, "words", one.evidence.answer) for one in found]


class _CitableText(NamedTuple):
    """The ``text`` that was read from a document, beginning at the document's character ``offset``, and the ``ranges``
    of the text that can be cited.

    ``page`` and ``heading`` return the label at a position of the document.
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
        """Returns a copy with only the ranges that are mostly inside ``start..end`` or, if there are none, the ranges
        that overlap ``start..end``.
        """
        overlapping = [one for one in self.ranges if one.start < end and start < one.end]
        inside = [one for one in overlapping if 2 * (min(one.end, end) - max(one.start, start)) >= one.end - one.start]
        return self._replace(ranges=inside or overlapping)

    def cite(self, of: TextRange, source: Source, weight: float) -> Citation:
        start, end = self.offset + of[0], self.offset + of[1]
        page, heading, quote = self.page(start), self.heading(start), self.text[slice(*of)]
        return Citation(self.document, self.name, page, heading, start, end, quote, source, round(weight, 4))


class _Found(NamedTuple):
    """Evidence in a ``source`` and its ``share`` of the attention (0: unknown)."""

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
    """Returns, best first, evidence that contains the answer word for word, ranked by question words and attention.

    For yes or no, returns the evidence with the highest rank. Returns nothing if no evidence contains the answer.
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
    """Returns the largest share of the attention among a document's ranges that overlap the evidence."""
    shares = (s for i, start, end, s in measured if i == document and start < evidence.end and evidence.start < end)
    return max(shares, default=0.0)


def _enough(scorer: EvidenceScorer, sources: Sequence[_CitableText]) -> list[_Found]:
    """Returns, best first, the best evidence of each source that has enough of the answer's words."""
    best = [_Found(source, scorer.best(source.ranges)) for source in sources if source.ranges]
    enough = [one for one in best if one.evidence.answer >= ENOUGH]
    return sorted(enough, key=lambda one: one.evidence.score, reverse=True)


def _nearest(scorer: EvidenceScorer, sources: Sequence[_CitableText], share: float = 0.0) -> list[_Found]:
    """Returns the sentence or clause with the most words of the question, the first on a tie; [] if there are none.

    A heading is not evidence: the sentence below the heading is returned instead.
    """
    every = [_Found(source, evidence, share) for source in sources for evidence in scorer.each(source.ranges)]
    if not every:
        return []
    best = max(every, key=lambda one: (one.evidence.question, one.evidence.answer))
    below = [one for one in every if one.source is best.source and one.evidence.start >= best.evidence.end]
    return [next((one for one in (best, *below) if not _is_heading(one)), best)]


def _is_heading(found: _Found) -> bool:
    """Returns True for a heading, and for a short line by itself that does not end like a sentence."""
    text, (start, end) = found.source.text, found.range
    line = text[start:end].strip()
    if any(a <= start and end <= b for a, b in heading_lines(text, text.rfind("\n", 0, start) + 1, end + BELOW)):
        return True
    is_line = text[end:].startswith("\n\n") and text[:start].rstrip(" #")[-1:] in ("\n", "")
    return is_line and len(line.split()) <= TITLE and line[-1:] not in f":;{ENDS}"
