"""Recognizes the numbers that clauses begin with (4.2, (a), § 7), which shift when a clause is inserted before them."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_ROMAN = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}
_NAMES = (
    "article|artikel|art|chapter|clause|item|kapitel|abschnitt|paragraph|paragraphe|part|teil|schedule|section|sec|"
    "step|ziffer|anlage|anhang|annex|annexe|appendix|chapitre"
)
_NUMBER = re.compile(
    rf"(?P<name>(?:(?:{_NAMES})\b\.?|§+)\s*)?(?P<open>[(\[]?)"
    r"(?P<value>\d{1,3}(?:\.\d{1,3})*|[a-zA-Z]|[ivxlcIVXLC]{1,6})(?P<close>[.)\]:]*)(?=\s)",
    re.IGNORECASE,
)
_NEXT = re.compile(r"\s+[\"'“„«(]?[^\W\d_]")
_MIN_SHARE = 0.7  # of the numbers of a style that follow one another, if the style numbers clauses
REFERENCE = re.compile(
    rf"(?:\b(?:{_NAMES}|clauses|articles|sections|chapters|items|parts|paragraphs|paragraphes|ziffern|abschnitte|nr|no)"
    r"\b\.?|§+)\s*(?:\d[\d.]*\s*(?:,|and|or|to|und|oder|bis|et|ou|à|-|–)\s*)*$",  # noqa: RUF001
    re.IGNORECASE,
)
"""Matches at the end of the text before a number that names a clause, such as ``see clause``."""


class ClauseNumber(NamedTuple):
    """The number at the start of a clause. ``printed`` is the number as printed, ``style`` its form, such as ``(a)``,
    and ``values`` are its parts, such as (4, 2). ``end`` is the position in the text where the number ends.

    A letter such as i can be a letter or a Roman number. ``values`` take it as a letter; ``roman`` is the value as a
    Roman number, or None.
    """

    printed: str
    style: str
    values: tuple[int, ...]
    roman: tuple[int, ...] | None
    end: int


def leading_number(text: str, start: int, end: int) -> ClauseNumber | None:
    """Returns the number that the clause at ``text[start:end]`` may begin with, or None."""
    found = _NUMBER.match(text, start, end)
    if not found or found.end() >= end:
        return None
    name, opened, value, closed = (found[group] or "" for group in ("name", "open", "value", "close"))
    is_bare = not (name or closed)
    if is_bare and (value[0].isalpha() or not _NEXT.match(text, found.end(), end) or not _capital(text, found.end())):
        return None
    printed = text[start : found.end()].strip().rstrip(".:")
    if value[0].isdigit():
        values, roman = tuple(map(int, value.split("."))), None
        shape = ".".join("1" * len(values))
    else:
        values, roman = _lettered(value)
        shape = "A" if value[0].isupper() else "a"
    style = f"{' '.join(name.casefold().split())}{opened}{shape}{closed[:1]}"
    return ClauseNumber(printed, style, values, roman, found.end())


def _capital(text: str, at: int) -> bool:
    """Returns True if the first letter after a bare number is a capital, or a letter of a script without capitals."""
    letter = next((c for c in text[at : at + 8] if c.isalpha()), "")
    return bool(letter) and not letter.islower()


def _lettered(value: str) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    lower = value.lower()
    numeral = _roman(lower) if set(lower) <= _ROMAN.keys() else None
    if len(value) > 1:
        return (numeral or 0,), None
    return (ord(lower) - ord("a") + 1,), (numeral,) if numeral else None


def _roman(letters: str) -> int:
    values = [_ROMAN[letter] for letter in letters]
    return sum(-v if v < max(values[i:]) else v for i, v in enumerate(values))


def numbering_styles(documents: Iterable[Sequence[ClauseNumber]]) -> frozenset[str]:
    """Returns the styles, such as ``(a)``, that really number clauses: those whose numbers follow one another in a
    document, as 1, 2, 3.

    Each of ``documents`` has the possible numbers of a document in order.
    """
    found = set[str]()
    for numbers in documents:
        styles = dict[str, list[ClauseNumber]]()
        for number in numbers:
            styles.setdefault(number.style, []).append(number)
        found |= {style for style, used in styles.items() if len(used) > 1 and _in_sequence(used)}
    return frozenset(found)


def _in_sequence(numbers: Sequence[ClauseNumber]) -> bool:
    """Returns True if most of the ``numbers`` are first numbers, such as 1 or (a), or follow a number that comes before
    them.
    """
    seen, following = set[tuple[int, ...]](), 0
    for i, number in enumerate(numbers):
        readings = [number.values, *([number.roman] if number.roman else [])]
        following += i == 0 or any(r[-1] == 1 or (*r[:-1], r[-1] - 1) in seen for r in readings)
        seen.update(readings)
    return following >= _MIN_SHARE * len(numbers) and len(seen) > 1
