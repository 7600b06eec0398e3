"""Subjects of comparisons: finds the subject that a noun such as "rent" names in any of several languages, and tests
whether a text is about a subject.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from localctx.library.wording.quantities import QuantityKind
from localctx.library.wording.word_forms import word_forms
from localctx.workflows.comparing.subject_words import GENERIC, KINDS, SUBJECT_WORDS

SHARED = 5  # words with the same first letters, at least this many, are taken as related: terminate, termination

_CJK = r"\u3400-\u9fff"
_DISTINCT = ("rent", "deposit", "salary", "interest", "notice", "start", "end", "area")
_MODIFIERS = (
    r"(?:(?:monthly|annual|yearly|weekly|agreed|total|overall|basic|net|gross|monatlichen?|jährlichen?|vereinbarten?|"
    r"gesamten?)\s)*"
)
_AFTER = r"(?:\s(?:mensuel(?:le)?s?|annuel(?:le)?s?|mensual(?:es)?|anual(?:es)?))?"


@dataclass(frozen=True)
class Subject:
    """The subject that documents are compared in. A text is about the subject if it has any of the ``names`` (a pattern
    of alternatives) or, if that is "", if it has all of the ``words``.

    ``kind`` is the kind of the subject's values (None: any kind). ``plain`` is the question that asks one document
    about the subject, by language; {} if the wording in other languages is not known.
    """

    kind: QuantityKind | None = None
    names: str = ""
    words: tuple[str, ...] = ()
    plain: Mapping[str, str] = field(default_factory=dict)

    def is_in(self, text: str) -> bool:
        """Returns True if ``text`` is about the subject, in any of the languages."""
        if self.names:
            return bool(_whole_words(self.names).search(text))
        return self.words_in(text) == {*self.words}

    def words_in(self, text: str) -> set[str]:
        """Returns those of the ``words`` that are in ``text``."""
        forms = {word.form for word in word_forms(text)}
        return {word for word in self.words if any(_alike(word, form) for form in forms)}


def names_another(text: str, subject: Subject) -> bool:
    """Returns True if ``text`` is about another distinct subject, such as the deposit, and not about ``subject``."""
    others = (SUBJECTS[name] for name in _DISTINCT if SUBJECTS[name] is not subject)
    return not subject.is_in(text) and any(other.is_in(text) for other in others)


def subject_of(noun: str) -> Subject:
    """Returns the subject that a noun phrase of a question names."""
    if named := named_subject(noun):
        return named
    kind = next((kind for words, kind in KINDS if re.fullmatch(words, noun, re.IGNORECASE)), None)
    return content_of(noun, kind)


def content_of(text: str, kind: QuantityKind | None = None) -> Subject:
    """Returns the subject that consists of the content words of ``text``."""
    content = [word.form for word in word_forms(text) if word.is_content]
    return Subject(kind, "", tuple([form for form in content if form not in _GENERIC] or content))


def named_subject(noun: str) -> Subject | None:
    """Returns the subject in SUBJECTS that a noun phrase names, or None if the phrase names none of them."""
    for name, found in SUBJECT_WORDS.items():
        if re.fullmatch(rf"{_MODIFIERS}(?:{found.nouns}){_AFTER}", noun, re.IGNORECASE):
            return SUBJECTS[name]
    return None


def has_content(noun: str) -> bool:
    """Returns True if a noun phrase has at least one content word."""
    return any(word.is_content for word in word_forms(noun))


@cache
def _whole_words(words: str) -> re.Pattern[str]:
    """Returns a pattern that matches any of ``words`` as a whole word. Chinese words match anywhere. Compiling all of
    them when the module is imported would take a tenth of a second.
    """
    return re.compile(rf"(?<![^\W\d_{_CJK}])(?:{words})(?![^\W\d_{_CJK}])", re.IGNORECASE)


def _alike(word: str, form: str) -> bool:
    return word == form or (len(word) >= SHARED and word[:SHARED] == form[:SHARED])


_GENERIC = frozenset(word.form for word in word_forms(GENERIC))

SUBJECTS = {
    name: Subject(found.kind, "|".join(filter(None, (found.nouns, found.further))), (), found.plain)
    for name, found in SUBJECT_WORDS.items()
}
"""Subjects that are known by name."""
