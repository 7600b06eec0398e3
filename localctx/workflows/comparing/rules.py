"""Defines the class for a language's rules about comparing questions, and the class for a question that they
recognize.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from localctx.library.wording.quantities import QuantityKind
from localctx.workflows.comparing.subjects import SUBJECTS, Subject, has_content, named_subject, subject_of

Order = Literal["lower", "higher", "earlier", "later", "shorter", "longer", "none"]
"""Which value is asked for; ``none`` if the values are only to be put side by side."""

Found = Mapping[str, str]
"""The named groups of a pattern that matched, without those that matched nothing."""

_ORDERS_OF: Mapping[QuantityKind, tuple[Order, ...]] = {
    "money": ("lower", "higher", "none"),
    "number": ("lower", "higher", "longer", "shorter", "none"),
    "duration": ("longer", "shorter", "lower", "higher", "none"),
    "date": ("earlier", "later", "none"),
}
_MOST_WORDS = 6  # words of a noun phrase
_MOST_LISTED = 5  # subjects of one question
_ARTICLES = r"(?:(?:the|their|die|der|das|den|le|la|les|el|los|las) |l['’])?"  # noqa: RUF001
_AND = re.compile(
    rf"(?:\s*[,、和与]\s*(?:(?:and|und|sowie|et|y)\s+)?|\s+(?:and|und|sowie|et|y)\s+){_ARTICLES}", re.IGNORECASE
)


@dataclass(frozen=True)
class ComparingQuestion:
    """A question that compares documents. ``plain`` is the question that is asked about each document.

    The answers must be about ``subject``. ``order`` says which value wins, such as ``lower``, and ``language`` is the
    question's language (ISO 639-1). ``named`` is the number of documents that the question names (0: none). A question
    that is ``implied`` does not compare by its words ("what is the deposit"): it is asked as it is, about each
    document, only if several are about its subject. ``others`` are further questions, if documents are compared in
    several subjects, and ``noun`` names the subject as the question does.
    """

    language: str
    plain: str
    order: Order
    subject: Subject
    named: int = 0
    implied: bool = False
    noun: str = ""
    others: tuple["ComparingQuestion", ...] = ()

    def plain_in(self, language: str | None) -> str:
        """Returns the plain question for a document in ``language``: in that language, if the wording is known, else in
        the question's language.
        """
        return self.plain if language == self.language else self.subject.plain.get(language or "", self.plain)


@dataclass(frozen=True)
class Rules:
    """The rules that recognize comparing questions in one language. Each pattern matches a whole question, without the
    punctuation around it.

    The patterns differ in their groups. ``by_noun`` has the groups ``noun`` and ``more`` ("which lease has the lower
    rent"). ``by_known_noun`` has the same groups, but names no documents, so the noun must be a known subject ("which
    rent is lower"). ``by_adjective`` has only ``adjective`` ("which is cheaper"), and ``by_verb`` has ``verb`` and
    ``more`` ("which ends later"). ``side_by_side`` has a ``noun`` and no order ("what are the rents of the two"), or
    ``nouns``, which may list known subjects ("compare the rents and deposits"); it must have the group ``docs``, or a
    noun that is a known subject. A group that begins with ``count`` has the number of documents. ``plain`` has only a
    ``noun``, a known subject ("what is the rent"). ``orders`` maps the words of ``more``.

    ``ask`` makes the plain question about a noun. ``no_noun`` matches nouns that are no subject, such as the documents
    themselves. ``adjectives`` and ``verbs`` map words to the subject that they compare.
    """

    language: str
    by_noun: Sequence[str]
    by_known_noun: Sequence[str]
    by_adjective: Sequence[str]
    by_verb: Sequence[str]
    side_by_side: Sequence[str]
    plain: Sequence[str]
    orders: Sequence[tuple[str, Order]]
    adjectives: Sequence[tuple[str, Order, str]]
    verbs: Sequence[tuple[str, str]]
    counts: Mapping[str, int]
    no_noun: str
    ask: Callable[[str, Found, Subject], str]

    def read(self, question: str, documents: int) -> ComparingQuestion | None:
        """Returns ``question`` as a ComparingQuestion for this number of ``documents``, or None if no rule matches."""
        readers = (
            (self.by_noun, self._of_noun),
            (self.by_known_noun, self._of_known_noun),
            (self.by_adjective, self._of_adjective),
            (self.by_verb, self._of_verb),
            (self.side_by_side, self._of_several),
            (self.plain, self._of_plain),
        )
        for patterns, reader in readers:
            for pattern in patterns:
                match = re.fullmatch(pattern, question, re.IGNORECASE)
                found = {name: text.strip() for name, text in match.groupdict().items() if text} if match else {}
                named = self._named(found)
                asked = reader(found) if match and named <= documents else None
                if asked and (not asked.subject.kind or asked.order in _ORDERS_OF[asked.subject.kind]):
                    return replace(asked, named=named)
        return None

    def _named(self, found: Found) -> int:
        """Returns the number of documents that the question names; 0 if it names none."""
        counts = [text.lower() for name, text in found.items() if name.startswith("count")]
        return max((int(count) if count.isdecimal() else self.counts[count] for count in counts), default=0)

    def _of_noun(self, found: Found) -> ComparingQuestion | None:
        noun = found["noun"]
        if not self._is_noun(noun):
            return None
        subject = subject_of(noun)
        return ComparingQuestion(self.language, self.ask(noun, found, subject), self._order(found), subject)

    def _of_known_noun(self, found: Found) -> ComparingQuestion | None:
        known = named_subject(found["noun"])
        return self._of_subject(known, self._order(found)) if known else None

    def _of_adjective(self, found: Found) -> ComparingQuestion:
        _, order, subject = next(row for row in self.adjectives if _is(row[0], found["adjective"]))
        return self._of_subject(SUBJECTS[subject], order)

    def _of_verb(self, found: Found) -> ComparingQuestion:
        order = self._order(found)
        _, subject = next(row for row in self.verbs if _is(row[0], found["verb"]))
        ends = subject == "term" and order in ("earlier", "later")  # such as "läuft früher ab" (expires earlier)
        return self._of_subject(SUBJECTS["end" if ends else subject], order)

    def _of_several(self, found: Found) -> ComparingQuestion | None:
        noun = found.get("nouns") or found["noun"]
        if listed := self._of_list(found.get("nouns", "")):
            return listed
        if not self._is_noun(noun):
            return None
        if known := named_subject(noun):
            return self._of_subject(known, "none")
        subject = subject_of(noun)
        return (
            ComparingQuestion(self.language, self.ask(noun, found, subject), "none", subject)
            if "docs" in found
            else None
        )

    def _of_list(self, nouns: str) -> ComparingQuestion | None:
        """Returns the question about a list of known subjects, such as "rent, deposit and notice"; None for others."""
        known = {noun: named_subject(noun) for noun in _AND.split(nouns) if noun}
        questions = [
            replace(self._of_subject(subject, "none"), noun=noun) for noun, subject in known.items() if subject
        ]
        if len(questions) < len(known) or not 1 < len(questions) <= _MOST_LISTED:
            return None
        return replace(questions[0], others=tuple(questions[1:]))

    def _of_plain(self, found: Found) -> ComparingQuestion | None:
        known = named_subject(found["noun"])
        return replace(self._of_subject(known, "none"), implied=True) if known else None

    def _of_subject(self, subject: Subject, order: Order) -> ComparingQuestion:
        return ComparingQuestion(self.language, subject.plain[self.language], order, subject)

    def _order(self, found: Found) -> Order:
        return next(order for words, order in self.orders if _is(words, found["more"]))

    def _is_noun(self, words: str) -> bool:
        return len(words.split()) <= _MOST_WORDS and has_content(words) and not _is(self.no_noun, words)


def either(rows: Sequence[tuple[str, ...] | tuple[str, Order]]) -> str:
    """Returns a pattern that matches the first item of any row of a table."""
    return "|".join(row[0] for row in rows)


def _is(words: str, text: str) -> bool:
    return bool(re.fullmatch(words, text, re.IGNORECASE))
