"""Normalizes words, so that two texts can be compared regardless of case and inflection."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from localctx.library.wording.number_forms import NUMBER, number_at, number_form
from localctx.store.search_words import COMMON_WORDS

_WORD = re.compile(
    rf"{NUMBER}|[%€$£]|[\u3040-\u30ff\u3400-\u9fff]"  # CJK characters one by one
    r"|[^\W\d_\u3040-\u30ff\u3400-\u9fff]+(?:['’][^\W\d_]+)*"  # noqa: RUF001
)
_ELIDED = re.compile(r"(?:[cdjlmnst]|qu)['’](?=[^\W\d_]{2})", re.IGNORECASE)  # noqa: RUF001 (d'animaux, l'été)
_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
_ALIKE = {"%": "percent", "€": "euro", "eur": "euro", "$": "dollar", "usd": "dollar", "£": "pound", "gbp": "pound"}
_ALIKE |= {word: str(number) for number, word in enumerate(re.findall(r"\w+", _NUMBERS))}
_ENDINGS = ("ing", "ies", "ied", "ed", "es", "en", "er", "s", "e", "n")
MIN_STEM = 3  # letters that a stem keeps at least

NEGATIONS = frozenset(
    re.findall(r"\w+", "no not never none nobody nothing neither nor cannot without nicht kein keine ohne nie")
)
FUNCTION_WORDS = (
    COMMON_WORDS
    | NEGATIONS
    | frozenset(
        re.findall(
            r"\w+",
            "i me my mine you your yours he him his she her hers we us our ours they them theirs those these such "
            "itself himself herself themselves being am may might can could shall should would must if then than "
            "so but because while although though however therefore thus hence also too very more most much many "
            "some any all each every both either other another same own only just even still yet again further "
            "once here there about above after against before below between down during into off out over through "
            "under until up within upon per via both yes okay ok sure well first finally additionally moreover "
            "furthermore overall like one ones s t re ve ll d der die das den dem des ein eine einen einem einer "
            "eines und oder ist sind war waren wird werden hat haben mit von zu zum zur im in am an auf aus bei "
            "für nach über um als auch es er sie wir ihr sich so wie ",
        )
    )
)


class WordForm(NamedTuple):
    """A word of a text, at characters ``start..end``: its normalized ``form``, and the ``word`` in lower case."""

    form: str
    start: int
    end: int
    word: str

    @property
    def is_number(self) -> bool:
        """True for digits and for numbers written as words."""
        return self.form[0].isdigit()

    @property
    def is_content(self) -> bool:
        """True unless the word is a function word, such as "the", or a negation, such as "not"."""
        if self.is_number:
            return self.word != "one"
        return not self.negates and re.split("['’]", self.word)[0] not in FUNCTION_WORDS  # noqa: RUF001

    @property
    def negates(self) -> bool:
        """True for negations such as "not"."""
        return self.word in NEGATIONS or self.word.endswith(("n't", "n’t"))  # noqa: RUF001


def word_forms(text: str) -> Iterator[WordForm]:
    """Yields the words of ``text`` in order, with their normalized forms."""
    for found in _WORD.finditer(text):
        elided = _ELIDED.match(text, *found.span())
        start, end = elided.end() if elided else found.start(), found.end()
        word = text[start:end].casefold()
        yield WordForm(number_at(text, start, end) if word[0].isdigit() else form_of(word), start, end, word)


def content_forms(text: str) -> set[str]:
    """Returns the forms of the content words of ``text``."""
    return {word.form for word in word_forms(text) if word.is_content}


@lru_cache(1 << 16)
def form_of(word: str) -> str:
    """Returns the normalized form of a lower-case word.

    The form is the same for "running", "runs" and "run", and for "1,000" and "1000".
    """
    if word[0].isdigit():
        return number_form(word)
    word = re.sub("['’]s?$", "", word) or word  # noqa: RUF001
    return _ALIKE.get(word) or _stem(word)


def _stem(word: str) -> str:
    """Returns the stem of a word: the word without its endings. All inflections of a word have the same stem, which
    need not be a real word.
    """
    while (shorter := _without_ending(word)) != word:  # "covered" must end like "cover"
        word = shorter
    return _ALIKE.get(word, word)


def _without_ending(word: str) -> str:
    for ending in _ENDINGS:
        stem = word.removesuffix(ending)
        if stem != word and len(stem) >= MIN_STEM and not (ending == "s" and stem[-1] in "su"):
            word = stem + "y" * (ending in ("ies", "ied"))
            break
    if len(word) > MIN_STEM and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]  # stopped, stop
    return word[:-1] if len(word) > MIN_STEM and word.endswith("e") else word
