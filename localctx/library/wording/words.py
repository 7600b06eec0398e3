"""Splits text into lower-case words for comparison, with numbers in their normalized form."""

import re

from localctx.library.wording.number_forms import NUMBER, number_at

_CJK = r"\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"(?<![^\W{_CJK}])(?P<number>{NUMBER})(?![^\W{_CJK}])|[{_CJK}]|[^\W{_CJK}]+")


def split_words(text: str) -> list[str]:
    """Returns the words of a text in lower case: kana and Chinese characters singly, numbers by ``number_form``."""
    return [
        number_at(text, *found.span()) if found["number"] else found.group().casefold()
        for found in _WORD.finditer(text)
    ]


def in_spaces(text: str) -> str:
    """Returns the words of a text, each between spaces, so that a substring search matches only whole words."""
    return f" {' '.join(split_words(text))} "
