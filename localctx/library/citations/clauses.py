"""Splits text into ranges that can be cited as evidence: sentences, and clauses of long sentences."""

import re
from collections.abc import Iterator

from localctx.library.wording.sentences import sentences

LONG_WORDS, LONG_CHARACTERS = 40, 300  # a longer sentence is divided into clauses
MIN_WORDS = 5  # words of a clause

_CUT = re.compile(
    r"(?<=[;:])\s+|(?<=[；：])\s*"  # noqa: RUF001
    r"|(?<=,)\s+(?=(?:and|or|but|nor|provided|except|unless|if|which|who|whose|where|when|while|whereas|although|because|"
    r"und|oder|aber|sondern|sofern|soweit|wenn|falls|weil|dass|wobei|während|es sei denn|"
    r"et|ou|mais|donc|car|si|lorsque|sauf|y|o|pero|sino|cuando|salvo|porque)\b)"
    r"|(?<=，)(?=而|但|并|且|或|如|若|除|则|不过)",  # noqa: RUF001
    re.IGNORECASE,
)
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]{1,2}|[^\W\u3040-\u30ff\u3400-\u9fff]+")  # two CJK signs are one word


def count_words(text: str) -> int:
    """Returns the number of words of a text; two kana or Chinese characters count as one word."""
    return len(_WORD.findall(text))


def evidence_ranges(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields (start, end) of the sentences of ``text[start:end]``, in order.

    Divides a sentence of more than LONG_WORDS words or LONG_CHARACTERS characters into clauses of at least MIN_WORDS
    words.
    """
    for first, last in sentences(text, start, end):
        yield from _clauses(text, first, last)


def _clauses(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    sentence = text[start:end]
    if len(sentence) > LONG_CHARACTERS or count_words(sentence) > LONG_WORDS:
        for cut in _CUT.finditer(text, start, end):
            if min(count_words(text[start : cut.start()]), count_words(text[cut.end() : end])) >= MIN_WORDS:
                yield start, cut.start()
                start = cut.end()
    yield start, end
