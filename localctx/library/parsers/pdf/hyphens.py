"""Decides for each hyphen at a line end whether it belongs to the word or only divides it between two lines.

The hyphen is dropped if the document has the joined word elsewhere, if a dictionary of its language has the joined
word, or if a part is no word of that language. Otherwise it stays. Dictionaries with the frequencies of words come from
pyspellchecker (MIT, twelve languages, 7 MB).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import pairwise

from localctx.library.parsers.pdf.pieces import LINE_HYPHEN, SOFT_HYPHEN
from localctx.library.parsers.pdf.text_edits import edited
from localctx.library.parsers.word_boxes import WordBox

_BETWEEN = re.compile(rf"(?<=[^\W_])(?:[-\u2010{SOFT_HYPHEN}{LINE_HYPHEN}]\n|{SOFT_HYPHEN})(?=[^\W_])")
_ALONE = re.compile(rf"{SOFT_HYPHEN}|(?<![^\W_]){LINE_HYPHEN}|{LINE_HYPHEN}(?![^\W_])")
_AT_END = re.compile(r"(?<=[^\W_])[-\u2010]$")
_MARKED = re.compile(rf"([^\W_]+){LINE_HYPHEN}(?=([^\W_]+)(\S?))")
_BROKEN_WORD = re.compile(rf"\S*{LINE_HYPHEN}\S*")
_WORD = re.compile(r"[^\W_]+(?:[-\u2010\u2011][^\W_]+)*")
_ELLIPSES = frozenset(("und", "oder", "bzw", "sowie", "and", "or"))  # after "Ein-", as in "Ein- und Ausgang"
_RARE = 10  # a joined word this many times rarer than both of its parts is taken for a mistake of the dictionary
_SAMPLE = 20_000  # characters of the text from which the language of the dictionary is found


def mark_hyphens(text: str, boxes: Sequence[WordBox]) -> tuple[str, list[WordBox]]:
    """Returns a page's text in which each hyphen that divides a word at a line end is replaced, together with the line
    end, by LINE_HYPHEN. The positions of the word boxes are adapted.

    A soft hyphen inside a word is replaced, too. Other soft hyphens are removed.
    """
    text, boxes = edited(text, boxes, [(m.start(), m.end(), LINE_HYPHEN) for m in _BETWEEN.finditer(text)])
    alone = [(m.start(), m.end(), "-" if m.group() == LINE_HYPHEN else "") for m in _ALONE.finditer(text)]
    return edited(text, boxes, alone)


def mark_at_end(text: str, following: str) -> str:
    """Replace a hyphen at the end of a page's text by LINE_HYPHEN, if the next page begins with a letter or digit.
    Returns the text.

    ``following`` is the text of the next page.
    """
    return _AT_END.sub(LINE_HYPHEN, text) if following[:1].isalnum() else text


class Hyphenation:
    """Decides for each LINE_HYPHEN of a document (a hyphen at a line end) whether it becomes a hyphen or disappears.

    ``texts`` are the texts of all pages, in which words are looked up.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._words, self._compounds, self._sample = set[str](), set[str](), ""
        for text in (mark_hyphens(text, [])[0] for text in texts):
            if len(self._sample) < _SAMPLE:
                self._sample += text
            for word in _WORD.findall(_BROKEN_WORD.sub(" ", text).casefold()):
                parts = re.split(r"[-\u2010\u2011]", word)
                self._words.update(parts)
                if len(parts) > 1:
                    self._compounds.update("-".join(pair) for pair in pairwise(parts))

    def resolve(self, text: str, boxes: Sequence[WordBox], following: str = "") -> tuple[str, list[WordBox]]:
        """Replace the LINE_HYPHENs in a page's text by hyphens or by nothing. Returns the text, and its word boxes with
        adapted positions.

        ``following`` is the text of the next page, where the last word may continue.
        """
        found = _MARKED.finditer(text + following[:100])
        edits = [(m.end() - 1, m.end(), self._hyphen(*m.groups())) for m in found if m.end() <= len(text)]
        return edited(text, boxes, edits)

    def _hyphen(self, left: str, right: str, after: str) -> str:
        """Returns the text between the parts of a word: a hyphen, a hyphen and a line end, or nothing."""
        if f"{left}-{right}".casefold() in self._compounds or not (left.isalpha() and right.isalpha()):
            return "-"
        if (left + right).casefold() in self._words:
            return ""
        if right in _ELLIPSES and not after:
            return "-\n"
        is_name = right[0].isupper() and not left.isupper()
        return "-" if is_name or 1 in (len(left), len(right)) or not self._is_one(left, right) else ""

    def _is_one(self, left: str, right: str) -> bool:
        """Returns True if the dictionary has the two parts as one word, or if one of the parts is not a word in the
        dictionary.

        In English, only a second part that is not a word counts, because English joins new words by hyphens
        (labour-saving).
        """
        if not (frequency := self._frequency):
            return False
        joined, first, second = (frequency(word.casefold()) for word in (left + right, left, right))
        if joined:
            return joined * _RARE >= min(first, second)
        return right.islower() and not (second if self._language == "en" else min(first, second))

    @cached_property
    def _frequency(self) -> Callable[[str], int] | None:
        """A function that returns how often a word occurs in texts of the document's language.

        None if there is no dictionary of the language.
        """
        from spellchecker import SpellChecker

        known = self._language in SpellChecker.languages()
        return SpellChecker(language=self._language).__getitem__ if known else None

    @cached_property
    def _language(self) -> str:
        from localctx.library.wording.identify_language import language_of

        return language_of(self._sample) or "en"
