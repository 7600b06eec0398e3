"""Finds and numbers the passage that supports each sentence of an answer.

Answers, chats and summaries share this matcher: it weighs words by rarity, requires all numbers and names, and rejects
passages that contradict the sentence.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Literal

from localctx.document_parts import Citation
from localctx.library.citations.claims import claims_something
from localctx.library.citations.source_index import DocumentRange, SourceIndex, SourceText
from localctx.library.wording.identify_language import language_of
from localctx.library.wording.sentences import ENDS, sentences
from localctx.library.wording.words import in_spaces
from localctx.library.wording.yes_no import clause_after

SUPPORTS = 0.8  # weighted share of a sentence's words that a passage must have to support it

Support = Literal["supported", "unsupported", "unchecked"]


@dataclass(frozen=True)
class AnswerSentence:
    """A sentence of an answer, at the characters ``start..end``, and the result of looking for a passage that supports
    it.

    The sentence is ``supported`` if the passage ``source`` says the same; ``number`` is the number of that source, from
    1. The sentence is ``unsupported`` if no passage says the same. It is ``unchecked`` if it claims nothing, or if it
    could not be checked, for example because not all sources are known.
    """

    start: int
    end: int
    support: Support
    number: int | None = None
    source: Citation | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, sentence: Mapping[str, Any]) -> "AnswerSentence":
        """Returns the AnswerSentence that ``to_json`` encoded."""
        source = sentence["source"] and _citation(sentence["source"])
        return cls(sentence["start"], sentence["end"], sentence["support"], sentence["number"], source)


class SupportFinder:
    """Finds the passages that support the sentences of one answer to ``question``, and numbers these sources in the
    order in which they are found.

    ``texts`` are the texts that were read. If ``partial``, more texts were read than these, so no sentence is called
    ``unsupported``.
    """

    def __init__(self, texts: Sequence[SourceText], question: str = "", partial: bool = False) -> None:
        self._index, self._question, self._partial = SourceIndex(texts), question, partial
        self._known = dict[str, Citation | None]()
        self._sources = list[Citation]()

    def check(self, answer: str, complete: bool = True, near: Sequence[DocumentRange] = ()) -> list[AnswerSentence]:
        """Check all sentences of an answer and return them.

        If the answer is not ``complete``, an unfinished last sentence is unchecked instead of unsupported. If several
        passages support a sentence equally, one that overlaps a range in ``near`` is preferred.
        """
        found = [self.check_sentence(answer, *of, near) for of in sentences(answer, 0, len(answer))]
        if found and not complete and found[-1].support == "unsupported" and answer[found[-1].end - 1] not in ENDS:
            found[-1] = AnswerSentence(found[-1].start, found[-1].end, "unchecked")
        return found

    def check_sentence(self, answer: str, start: int, end: int, near: Sequence[DocumentRange] = ()) -> AnswerSentence:
        """Check the sentence at characters ``start..end`` of an answer and return it. If several passages support it
        equally, one that overlaps a range in ``near`` is preferred.
        """
        sentence = answer[start:end]
        if not claims_something(sentence):
            return AnswerSentence(start, end, "unchecked")
        if sentence not in self._known:
            self._known[sentence] = self._source(sentence, near)
        if source := self._known[sentence]:
            return AnswerSentence(start, end, "supported", self._number(source), source)
        return AnswerSentence(start, end, "unchecked" if self._partial or self._is_foreign(sentence) else "unsupported")

    def _source(self, sentence: str, near: Sequence[DocumentRange]) -> Citation | None:
        match = self._index.best_match(sentence, self._question, near)
        if match is None or match.share < SUPPORTS:
            return None
        return match.cite()

    def _is_foreign(self, sentence: str) -> bool:
        """Returns True if a sentence is in another language than the first text, so that the words of the sentence
        cannot match there.
        """
        if self._language == "en" and sentence.isascii():
            return False  # avoids loading the language model, which takes most of a second
        said = language_of(sentence)
        return said is not None and self._language is not None and said != self._language

    @cached_property
    def _language(self) -> str | None:
        return next((language_of(source.text) for source in self._index.texts), None)

    def _number(self, source: Citation) -> int:
        if source not in self._sources:
            self._sources.append(source)
        return self._sources.index(source) + 1


def check_quotes(answer: str, citations: Sequence[Citation]) -> list[AnswerSentence]:
    """Returns those parts of ``answer`` that consist of words of its ``citations``, each with its citation as source.

    Words that no citation has are left out. For a yes or no answer, returns its sentences as unchecked.
    """
    if clause_after(answer) is not None:
        return [AnswerSentence(*of, "unchecked") for of in sentences(answer, 0, len(answer))]
    quotes, words = [in_spaces(c.quote) for c in citations], list(re.finditer(r"\S+", answer))
    found, sources = list[AnswerSentence](), list[int]()
    while words:
        if part := _longest_part(answer, words, quotes):
            start, end, source = part
            sources += [source] if source not in sources else []
            number, cited = sources.index(source) + 1, citations[source]
            found.append(AnswerSentence(start, end, "supported", number, cited))
        words = [word for word in words[1:] if not part or word.start() >= part[1]]
    return found


def _longest_part(answer: str, words: Sequence[re.Match[str]], quotes: Sequence[str]) -> tuple[int, int, int] | None:
    """Returns the longest run of ``words``, beginning with the first word, that one of ``quotes`` contains; None if
    there is none.

    Returns (start, end, index of the quote), without a separator after the last word.
    """
    start, best = words[0].start(), None
    for word in words:
        said = answer[start : word.end()].rstrip(",;")
        has = next((i for i, quote in enumerate(quotes) if in_spaces(said) in quote), None) if said else None
        if has is None:
            break
        best = start, start + len(said), has
    return best


def is_unsure(answer: str, supports: Collection[Support], quoted: bool) -> bool:
    """Returns True if no passage supports the answer, or if it only quotes a single word, such as the "no" of "no more
    than". ``supports`` are those of its sentences, and ``quoted`` says whether its citations are quotations.
    """
    unsupported = "supported" not in supports and "unsupported" in supports
    return unsupported or (quoted and not claims_something(answer))


def check_by_citations(answer: str, citations: Sequence[Mapping[str, Any]]) -> list[AnswerSentence]:
    """Check the sentences of ``answer`` against its ``citations`` (JSON) alone, when the other texts are no longer
    known. Returns the sentences.

    A sentence is supported if a citation supports it, else unchecked.
    """
    texts = [
        SourceText(c["document"], c["name"], c["start"], c["quote"], _always(c["page"]), _always(c["heading"]))
        for c in citations
    ]
    return SupportFinder(texts, partial=True).check(answer)


def checked_summary(summary: str, citations: Sequence[Mapping[str, Any]]) -> list[AnswerSentence]:
    """Returns those sentences of a ``summary`` that have ``citations``, numbered.

    ``citations`` are JSON, in which ``at`` is the end of the cited sentence. The other sentences are left out: they are
    paraphrases that cannot be checked.
    """
    starts = {end: start for start, end in sentences(summary, 0, len(summary))}
    return [
        AnswerSentence(starts.get(c["at"], c["at"]), c["at"], "supported", number, _citation(c))
        for number, c in enumerate(citations, 1)
    ]


def numbered_sources(checked: Sequence[AnswerSentence]) -> list[Citation]:
    """Returns the sources of an answer's sentences, in the order of their numbers."""
    by_number = {sentence.number: sentence.source for sentence in checked if sentence.number and sentence.source}
    return [source for _, source in sorted(by_number.items()) if source]


def _always(label: str | None) -> Any:
    return lambda at: label


def _citation(citation: Mapping[str, Any]) -> Citation:
    return Citation(**{f.name: citation[f.name] for f in fields(Citation)})
