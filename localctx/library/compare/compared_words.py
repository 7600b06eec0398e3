"""Splits texts into words for comparison, so that texts that differ only in their form have the same words.

White space, line breaks, hyphens at line ends, bullets, marks of Markdown, and forms of letters, dashes and quotation
marks make no difference. Case and punctuation make a difference.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_CJK = "\u3040-\u30ff\u3400-\u9fff"
_LETTER = rf"(?:[^\W_{_CJK}]|[\u0300-\u036f])"
_DASH = "-\u2010-\u2015\u2212"
_HYPHEN = "[-\u2010\u2011]"
_TOKEN = re.compile(
    r"\d+(?:[.,:/'’]\d+)*"  # noqa: RUF001
    rf"|[{_CJK}]"
    rf"|{_LETTER}+(?:['’]{_LETTER}+)*(?:{_HYPHEN}(?:[^\S\n]*\n\s*)?{_LETTER}+)*"  # noqa: RUF001
    rf"|[{_DASH}]+|\.{{2,}}|\S"
)
_BROKEN = re.compile(rf"{_HYPHEN}[^\S\n]*\n\s*")
_DANGLING = re.compile(rf"({_LETTER}+){_HYPHEN}[^\S\n]+({_LETTER}+)")
_ELLIPSES = frozenset(
    ("und", "oder", "bzw", "sowie", "and", "or", "et", "ou")
)  # after "Ein-", as in "Ein- und Ausgang"
_RULE = re.compile(r"^[^\S\n]*(?:\|?(?:[^\S\n]*:?-{3,}:?[^\S\n]*\|?)+|={3,})[^\S\n]*$", re.MULTILINE)  # below a header
_MARKUP = frozenset("*_`|~\\•◦▪●○■·‣⁃")  # noqa: RUF001
_SIMILAR = str.maketrans(
    {
        **dict.fromkeys("‐‑‒–—―−", "-"),  # noqa: RUF001
        **dict.fromkeys("‘’‚‛′`´", "'"),  # noqa: RUF001
        **dict.fromkeys("“”„‟″«»", '"'),
        "\u2044": "/",
    }
)


class Word(NamedTuple):
    """A word, a number or a punctuation mark of a text, with its place. Words with the same ``key`` count as equal."""

    key: str
    start: int
    end: int


class Hyphens:
    """Decides whether a hyphen at a line end belongs to the word or only divides it. It looks up the words of all
    ``texts`` that are compared.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._compounds, self._dangling = set[str](), set[tuple[str, str]]()
        for text in texts:
            words = (found[0] for found in _TOKEN.finditer(text))
            self._compounds.update(_plain(word) for word in words if "-" in _plain(word) and "\n" not in word)
            self._dangling.update(_DANGLING.findall(text))

    def joined(self, word: str) -> str:
        """Returns a word that is divided by a line end as one word. The hyphen stays if the texts have the word with
        this hyphen elsewhere.
        """
        left, *others = _BROKEN.split(word)
        for right in others:
            if f"{left}-{right}" in self._compounds or not (left[-1].isalpha() and right[0].islower()):
                left = f"{left}-{right}"
            elif right in _ELLIPSES or (left, right) in self._dangling:
                left = f"{left}- {right}"
            else:
                left += right
        return left


def words_of(text: str, hyphens: Hyphens) -> list[Word]:
    """Returns the words of ``text``, in order."""
    return list(_words(_RULE.sub(lambda rule: " " * len(rule[0]), text), hyphens))


def _words(text: str, hyphens: Hyphens) -> Iterator[Word]:
    for found in _TOKEN.finditer(text):
        start, end = found.span()
        if _is_markup(text, start, end):
            continue
        key = _plain(found[0])
        if "\n" in key:
            yield from _broken(key, hyphens, start, end)
        else:
            yield Word(key, start, end)


def _broken(key: str, hyphens: Hyphens, start: int, end: int) -> Iterator[Word]:
    """Yields the words of ``key``, which has a hyphen at a line end: one joined word, or several, as in "Ein- und"."""
    for part in _TOKEN.findall(hyphens.joined(key)):
        yield Word(part, start, end)


def _is_markup(text: str, start: int, end: int) -> bool:
    """Returns True for bullets, lone dashes, and marks of headings and emphasis, which belong to the form of a text and
    not to its words.
    """
    token, before, after = text[start:end], text[start - 1 : start], text[end : end + 1]
    if token in _MARKUP:
        return True
    if token == "#":
        return not before.isalnum() and (after in ("#", "") or after.isspace())
    is_alone = (not before or before.isspace() or before in _MARKUP) and (not after or after.isspace())
    return token[0] in "-‐‑‒–—―−" and (is_alone or len(token) > 2)  # noqa: RUF001


def _plain(token: str) -> str:
    """Returns a token in which letters, dashes and quotation marks that look alike are replaced by one form."""
    return token if token.isascii() else unicodedata.normalize("NFKC", token).translate(_SIMILAR)
