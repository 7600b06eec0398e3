"""Reads the texts of a column as numbers (with separators, money, percentages) or days. Standard library only.

A whole column is read in one notation: beside 2,75, the text 1.500 is fifteen hundred.
"""

import datetime
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

ColumnKind = Literal["number", "day", "text"]

_SPACES = " \u00a0\u202f\u2009"
_SIGNS = "[$€£¥₹₽₩₺₴₪฿₫₱]"
_LETTERS = r"[^\W\d_]{1,4}\.?"
_NUMBER = re.compile(
    rf"(?P<minus>[-\u2212(]?)(?P<before>(?:{_SIGNS}|{_LETTERS}(?=[{_SPACES}]))?)[{_SPACES}]?(?P<sign>[-\u2212+]?)"
    rf"(?P<digits>\d[\d.,'\u2019{_SPACES}]*\d|\d|[.,]\d+)(?P<exponent>(?:[eE][-+]?\d{{1,3}})?)"
    rf"(?P<after>(?:[{_SPACES}]?(?:{_SIGNS}|[%‰°])|[{_SPACES}]{_LETTERS}|[^\W\d_]{{2,4}})?)\)?"
)
_GROUPED = re.compile(r"\d{1,3}(?:[^\d]\d{2,3})*(?:[^\d]\d{3})")
_ISO_DAY = re.compile(
    r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[-+]\d\d:?\d\d)?)?"
)
_DAY = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d{2})")


@dataclass(frozen=True)
class Column:
    """How the texts of a column are read: the kind of the column, and a function from a text to its value, or to None
    if the text has no value.
    """

    kind: ColumnKind
    value: Callable[[str], float | str | None]


def column_of(texts: Iterable[str]) -> Column:
    """Decide how the ``texts`` of a column are read.

    The kind of the column is ``number`` or ``day`` if nine in ten of its non-empty texts are numbers or days, else
    ``text``. The value of a number is a float, the value of a day is a text such as ``2026-05-01``, and the value of a
    text is the text itself.
    """
    filled = [text for text in texts if text.strip()]
    for kind, reader in (("number", _number_reader(filled)), ("day", _day_reader(filled))):
        if filled and sum(reader(text) is not None for text in filled) >= 0.9 * len(filled):
            return Column(kind, reader)  # type: ignore[arg-type]
    return Column("text", lambda text: text)


def value_of(text: str) -> float | datetime.date | str:
    """Returns the value of a single text, regardless of its column: a number, a day, or the text itself."""
    if (number := _number_reader([text])(text)) is not None:
        return number
    day = _day_reader([text])(text)
    return datetime.date.fromisoformat(day) if day else text


def _number_reader(texts: Iterable[str]) -> Callable[[str], float | None]:
    """Returns a function from a text of the column to its number, or to None."""
    matches = [match for text in texts if (match := _NUMBER.fullmatch(text.strip()))]
    point = _decimal_point([match["digits"] for match in matches])
    units = {(match["before"] or match["after"]).strip() for match in matches} - {""}

    def read(text: str) -> float | None:
        match = _NUMBER.fullmatch(text.strip())
        if not match or (len(units) > 3 and (match["before"] or match["after"])):  # codes, not units
            return None
        return _number(match, point)

    return read


def _number(match: re.Match[str], point: str) -> float | None:
    digits = match["digits"]
    whole, _, decimals = digits.rpartition(point) if point in digits else (digits, "", "")
    if digits.startswith("0") and digits.isdigit() and len(digits) > 1:  # a postcode or an account
        return None
    if re.search(r"\D", whole) and not _GROUPED.fullmatch(whole):  # a telephone number, an address
        return None
    try:
        number = float(f"{re.sub(r'[^0-9]', '', whole) or 0}.{decimals or 0}{match['exponent']}")
    except ValueError:
        return None
    return -number if match["minus"] or match["sign"] in ("-", "\u2212") else number


def _decimal_point(numbers: Iterable[str]) -> str:
    """Returns the decimal point of a column, ``.`` or ``,``; ``.`` if its numbers do not show it.

    In a number with both separators, the decimal point is the last separator. In a number with one separator, the
    separator is the decimal point unless exactly three digits follow. If a separator occurs twice, the other one is the
    decimal point.
    """
    for digits in numbers:
        marks = [c for c in digits if c in ".,"]
        if len(set(marks)) == 2:
            return marks[-1]
        if len(marks) > 1:
            return "," if marks[0] == "." else "."
        if marks and len(digits.partition(marks[0])[2]) != 3:
            return marks[0]
    return "."


def _day_reader(texts: Iterable[str]) -> Callable[[str], str | None]:
    """Returns a function from a text of the column to its day, or to None.

    The month comes first if some text has a second number above 12 and none has a first number above 12.
    """
    found = [match for text in texts if (match := _DAY.fullmatch(text.strip()))]
    month_first = any(int(m[3]) > 12 for m in found) and not any(int(m[1]) > 12 for m in found)

    def read(text: str) -> str | None:
        if match := _ISO_DAY.fullmatch(text.strip()):
            return _day(match[1], match[2], match[3])
        if match := _DAY.fullmatch(text.strip()):
            day, month = (match[3], match[1]) if month_first else (match[1], match[3])
            year = match[4] if len(match[4]) == 4 else f"{19 if match[4] > '69' else 20}{match[4]}"
            return _day(year, month, day)
        return None

    return read


def _day(year: str, month: str, day: str) -> str | None:
    try:
        return datetime.date(int(year), int(month), int(day)).isoformat()
    except ValueError:
        return None
