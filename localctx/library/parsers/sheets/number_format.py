"""Shows a number in the format of its cell, unless digits would be lost. Standard library only.

Days and times become ISO 8601, because a format such as 03/04 does not say which number is the month. ssf (a port of
SheetJS' formats, 2020) was tried: it rounds, as a spreadsheet does, and needs babel, 30 MB.
"""

import datetime
import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

from localctx.library.parsers.sheets.cells import SheetCell, plain_number, show

BUILT_IN = {
    **{1: "0", 2: "0.00", 3: "#,##0", 4: "#,##0.00", 9: "0%", 10: "0.00%", 11: "0.00E+00", 12: "# ?/?", 13: "# ??/??"},
    **dict.fromkeys((5, 6, 37, 38, 41, 42), "#,##0"),  # some with the currency of the reader's country
    **dict.fromkeys((7, 8, 39, 40, 43, 44), "#,##0.00"),
    **{46: "[h]:mm:ss", 48: "##0.0E+0"},
    **dict.fromkeys((14, 15, 16, 17, *range(27, 32), 36, *range(50, 59)), "yyyy-mm-dd"),
    **dict.fromkeys((18, 19, 20, 21, 32, 33, 34, 35, 45, 47), "h:mm:ss"),
    22: "yyyy-mm-dd h:mm",
}
"""Format codes by their numbers in a workbook (ECMA-376, part 1, 18.8.30); simplified for days and times."""

_Kind = Literal["number", "day", "moment", "time", "duration"]
_LITERAL = re.compile(
    r'"([^"]*)"|\\(.)|_.|\*.|\[\$([^\]-]*)[^\]]*\]|\[(?!h+\]|m+\]|s+\])[^\]]*\]', re.DOTALL | re.IGNORECASE
)
_DURATION = re.compile(r"\[(h+|m+|s+)\]", re.IGNORECASE)
_DIGITS = re.compile(r"[#0?,]*[#0?][#0?,]*(?:\.[#0?]*)?|\.[#0?]+")
_LONGEST = 366  # days of a duration that is shown as a time: a larger number is a moment of a calendar


@dataclass(frozen=True)
class _Format:
    """A parsed format. ``before`` and ``after`` are printed around a number.

    ``whole`` is the minimum number of digits before the decimal point, ``decimals`` the number of digits after the
    point. ``grouped`` adds commas; ``percent`` multiplies by 100.
    """

    kind: _Kind
    before: str = ""
    after: str = ""
    whole: int = 0
    decimals: int = 0
    grouped: bool = False
    percent: bool = False


_GENERAL = None


def shown_cell(value: float, code: str, from_1904: bool) -> SheetCell:
    """Returns the cell of a number with the format ``code``.

    Days are counted from 1900, or from 1904 if ``from_1904``.
    """
    form = _parsed(code)
    if form is _GENERAL:
        return SheetCell(value, plain_number(value))
    if form.kind == "number":
        return SheetCell(value, _number(value, form))
    converted = _moment(value, form.kind, from_1904)
    return SheetCell(converted, show(converted))


@cache
def _parsed(code: str) -> _Format | None:
    """Returns the parsed format, or None for one whose numbers are shown as they are: general, scaled, fractions."""
    section = code.partition(";")[0]
    if section.strip().lower() in ("general", "", "@"):
        return _GENERAL
    bare = _LITERAL.sub(" ", section).lower()
    if _DURATION.search(bare):
        return _Format("duration")
    letters = set(re.sub(r"am/pm|a/p", "h", bare))
    if letters & set("ydhs") or "m" in letters:
        return _Format(_kind_of_time(letters))
    return _number_format(section)


def _kind_of_time(letters: set[str]) -> _Kind:
    has_day = bool(letters & set("yd")) or not letters & set("hs")
    return "moment" if has_day and letters & set("hs") else "day" if has_day else "time"


def _number_format(section: str) -> _Format | None:
    marked = _LITERAL.sub(_marked, section)
    places = list(_DIGITS.finditer(marked))
    if len(places) != 1:
        return _GENERAL
    before, after = marked[: places[0].start()], marked[places[0].end() :]
    whole, _, decimals = places[0].group().partition(".")
    if whole.endswith(",") or after.startswith(",") or re.search(r"[/eE]", _without_literals(before + after)):
        return _GENERAL
    least, grouped, percent = whole.count("0"), "," in whole, "%" in _without_literals(before + after)
    return _Format("number", _text(before), _text(after), least, len(decimals), grouped, percent)


def _marked(match: re.Match[str]) -> str:
    """Returns the text of a literal in private-use characters, so that its characters are not taken for digits of the
    format.
    """
    text = match[1] or match[2] or match[3] or ("" if match[0][0] in '*["\\' else " ")
    return "".join(chr(0xF0000 + ord(c)) if ord(c) < 0xFFFF else c for c in text)


def _without_literals(text: str) -> str:
    return "".join(c for c in text if ord(c) < 0xF0000)


def _text(marked: str) -> str:
    text = "".join(chr(ord(c) - 0xF0000) if 0xF0000 <= ord(c) < 0xFFFFF else c for c in marked)
    return re.sub(r"\s+", " ", text)


def _number(value: float, form: _Format) -> str:
    scaled = float(f"{value * 100:.15g}") if form.percent else value
    digits = f"{abs(scaled):{',' if form.grouped else ''}.{form.decimals}f}"
    if float(digits.replace(",", "")) != float(f"{abs(scaled):.15g}"):
        digits = plain_number(abs(scaled))
    digits = digits.zfill(form.whole + (form.decimals and form.decimals + 1)) if not form.grouped else digits
    return f"{'-' * (value < 0)}{form.before.lstrip()}{digits}{form.after}".rstrip()


def _moment(value: float, kind: _Kind, from_1904: bool) -> object:
    """Returns a number of days as a day, moment, time or duration; the number is returned unchanged if the calendar
    does not have that day.
    """
    try:
        if kind == "duration" or (kind == "time" and 1 <= value < _LONGEST):
            return datetime.timedelta(days=value)
        moment = _beginning(value, from_1904) + datetime.timedelta(seconds=round(value * 86400))
    except (OverflowError, ValueError):
        return value
    if value < 0:
        return value
    return moment.time() if kind == "time" and value < 1 else moment


def _beginning(value: float, from_1904: bool) -> datetime.datetime:
    """Returns the date of day 0. Excel counts a day that did not exist, February 29, 1900, so for ``value`` before that
    day, day 0 is a day later.
    """
    if from_1904:
        return datetime.datetime(1904, 1, 1)
    return datetime.datetime(1899, 12, 31 if value < 60 else 30)
