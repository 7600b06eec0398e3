"""Words of a text as they are compared one by one, in lower case, numbers in their form."""

import re

from localctx.library.wording.number_forms import NUMBER, number_at

_CJK = r"\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"(?<![^\W{_CJK}])(?P<number>{NUMBER})(?![^\W{_CJK}])|[{_CJK}]|[^\W{_CJK}]+")


def split_words(text: str) -> list[str]:
    """Returns the words of a text in lower case; characters of scripts without spaces one by one, numbers in their form
    (``number_form``).
    """
    return [
        number_at(text, *found.span()) if found["number"] else found.group().casefold()
        for found in _WORD.finditer(text)
    ]


def in_spaces(text: str) -> str:
    """Returns the words of a text, each between spaces, so that a text is found in another only as whole words."""
    return f" {' '.join(split_words(text))} "
