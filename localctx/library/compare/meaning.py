"""Decides what changed words are about: a number or money, a date, a name, an obligation, or other wording."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from localctx.library.compare.clauses import Clause
from localctx.library.compare.comparison import Meaning
from localctx.library.compare.dates import dates_in
from localctx.library.wording.number_forms import NUMBER, number_form

_OBLIGATIONS = {
    "en": "shall must may can could should will would ought need needs required obliged obligated entitled permitted "
    "allowed forbidden prohibited mandatory optional liable not no never cannot without neither nor unless only",
    "de": "muss müssen musst müsse darf dürfen dürfe soll sollen sollte sollten kann können könne verpflichtet "
    "berechtigt erlaubt verboten untersagt zulässig unzulässig zwingend freiwillig haftet haften nicht kein keine "
    "keinen keinem keiner keines nie niemals ohne weder noch nur",
    "fr": "doit doivent devra devront devrait devraient peut peuvent pourra pourront pourrait pourraient faut faudra "
    "obligé obligée obligés tenu tenue tenus tenues autorisé autorisée autorisés interdit interdite interdits permis "
    "obligatoire facultatif responsable pas ne n jamais aucun aucune sans ni seulement uniquement",
}
_WRITTEN_NUMBERS = {
    "en": "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million half",
    "de": "zwei drei vier fünf sechs sieben acht neun zehn elf zwölf zwanzig dreißig vierzig fünfzig sechzig siebzig "
    "achtzig neunzig hundert tausend million millionen halb",
    "fr": "deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize vingt trente "
    "quarante cinquante soixante cent cents mille million millions demi",
}
_OBLIGING = {language: frozenset(words.split()) for language, words in _OBLIGATIONS.items()}
"""Words that oblige, permit or deny, by the ISO 639-1 code of their language. Other languages are not guessed."""

_COUNTING = {language: frozenset(words.split()) for language, words in _WRITTEN_NUMBERS.items()}
_MONEY = re.compile(
    r"[$€£¥₹%‰]|\b(?:EUR|USD|GBP|CHF|JPY|CNY|euros?|dollars?|pounds?|francs?|franken|per ?cent|prozent|pour cent)\b",
    re.IGNORECASE,
)
NUMBERS = re.compile(rf"(?:(?<!\w)[-−](?=\d))?(?:{NUMBER})")  # noqa: RUF001
_WORDS = re.compile(r"[^\W\d_]+")
_TITLES = frozenset(["mr", "mrs", "ms", "dr", "prof", "herr", "frau", "herrn", "monsieur", "madame", "mme"])
_ACRONYM = 5  # letters; a longer word in capitals is a heading
_CAPITAL_NOUNS = ("de", "lb")  # languages in which every noun begins with a capital


@dataclass(frozen=True)
class WordRun:
    """The characters ``start..end`` of ``clause``, the text of a clause, that differ from the other version. All white
    space in ``clause`` is spaces.
    """

    clause: str
    start: int
    end: int

    @property
    def text(self) -> str:
        """The words that differ."""
        return " ".join(self.clause[self.start : self.end].split())

    @cached_property
    def undated(self) -> str:
        """The text of the clause with spaces in place of its dates, so that parts of dates are not taken for
        numbers.
        """
        text = self.clause
        for start, end, _ in dates_in(text):
            text = text[:start] + " " * (end - start) + text[end:]
        return text

    @property
    def undated_text(self) -> str:
        """The words that differ, with spaces in place of dates."""
        return self.undated[self.start : self.end]


class Meanings:
    """Decides what changed words are about. To recognize names, this class looks up words in ``clauses``, the clauses
    of both documents.
    """

    def __init__(self, clauses: Iterable[Clause]) -> None:
        capital, small = set[str](), set[str]()
        for clause in clauses:
            for i, key in enumerate(clause.keys):
                if key[0].islower():
                    small.add(key.casefold())
                elif i and _is_capital(key):
                    capital.add(key.casefold())
        self._names = capital - small

    def of(self, old: WordRun, new: WordRun, language: str | None) -> Meaning:
        """Returns what the words ``old``, which became the words ``new``, are about: the first of number, date, name
        and obligation that differs, else wording. ``language`` is the language of the text (None: unknown).
        """
        found: list[tuple[Meaning, list[list[str]]]] = [
            ("number", [list(_numbers(run, language)) for run in (old, new)]),
            ("date", [list(_dates(run)) for run in (old, new)]),
            ("name", [list(self._names_in(run, language)) for run in (old, new)]),
            ("obligation", [list(_obligations(run, language)) for run in (old, new)]),
        ]
        return next((meaning for meaning, (a, b) in found if Counter(a) != Counter(b)), "wording")

    def _names_in(self, run: WordRun, language: str | None) -> Iterator[str]:
        """Yields the names: words with a capital letter that never occur in lower case.

        In German, where all nouns have a capital, only words beside another such word or after a title are names.
        """
        words = list(_WORDS.finditer(run.undated))
        for i, word in enumerate(words):
            if not (run.start <= word.start() < run.end and _is_capital(word[0])):
                continue
            before = words[i - 1][0] if i else ""
            beside = [w[0] for w in (*words[max(1, i - 1) : i], *words[i + 1 : i + 2]) if _is_capital(w[0])]
            in_german = before.casefold() in _TITLES or (i and beside)
            if in_german if language in _CAPITAL_NOUNS else word[0].casefold() in self._names:
                yield word[0]


def _is_capital(word: str) -> bool:
    return word[0].isupper() and (not word.isupper() or len(word) <= _ACRONYM)


def _dates(run: WordRun) -> Iterator[str]:
    for start, end, form in dates_in(run.clause):
        if start < run.end and run.start < end:
            yield form


def _numbers(run: WordRun, language: str | None) -> Iterator[str]:
    """Yields the numbers in digits or in words, and the currencies. Parts of dates are left out."""
    text = run.undated_text
    yield from (number_form(found[0], amount=True) for found in NUMBERS.finditer(text))
    yield from (found[0].casefold() for found in _MONEY.finditer(text))
    yield from (word for word in _small_words(text) if word in _COUNTING.get(language or "", ()))


def _obligations(run: WordRun, language: str | None) -> Iterator[str]:
    if language == "en":
        yield from ("not" for _ in re.finditer(r"n['’]t\b", run.undated_text))  # noqa: RUF001
    yield from (word for word in _small_words(run.undated_text) if word in _OBLIGING.get(language or "", ()))


def _small_words(text: str) -> Iterator[str]:
    return (found[0].casefold() for found in _WORDS.finditer(text))
