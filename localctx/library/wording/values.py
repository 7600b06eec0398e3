"""Reads the values of a kind in a text: numbers, dates and amounts of money, each in one form and as printed.

dateparser reads dates in 200 languages, and price-parser reads amounts with their currency; both are by Zyte, under
BSD-3. Numbers are read by ``number_forms``, as citations compare them.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from localctx.library.wording.number_forms import NUMBER, number_form
from localctx.library.wording.yes_no import starts_with_yes

_AROUND = " \t\n.,;:"  # stripped from printed words
_LIST_ENDS = re.compile(r"\s*(?:[;,\n•]|\band\b|\bund\b|\bet\b|\by\b|、|，)\s*")  # noqa: RUF001
_NUMERIC_DATE = re.compile(r"(?<!\d)(\d{1,2})([./-])(\d{1,2})\2(?:\d{4}|\d{2})(?!\d)")
_MONTH = r"[^\W\d_]{3,}\.?"
_DATE = re.compile(
    rf"(?<!\d)(?:\d{{4}}-\d{{1,2}}-\d{{1,2}}|\d{{1,2}}([./-])\d{{1,2}}\1(?:\d{{4}}|\d{{2}})"
    r"|\d{4}\s?[年년]\s?\d{1,2}\s?[月월]\s?\d{1,2}\s?[日일]?"
    rf"|\d{{1,2}}(?:\.|st|nd|rd|th|er|º)?\s*(?:(?:day\s+)?of\s+|de\s+)?{_MONTH},?\s*(?:de\s+)?\d{{4}}"
    rf"|(?<!\w){_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?,?\s+\d{{4}})(?!\d)",
    re.IGNORECASE,
)
_JOINED = re.compile(r"(?<=\d)(?=[^\W\d_]{3})|(?<=[^\W\d_]{3})(?=\d)")  # 3 June2026, as OCR reads it
_WHOLE_DATES = {"REQUIRE_PARTS": ["day", "month", "year"], "PARSERS": ["absolute-time"], "STRICT_PARSING": True}
_CURRENCIES = {
    **{"€": "EUR", "euro": "EUR", "euros": "EUR", "£": "GBP", "pound": "GBP", "pounds": "GBP", "$": "USD"},
    **{
        "dollar": "USD",
        "dollars": "USD",
        "us$": "USD",
        "¥": "JPY",
        "yen": "JPY",
        "元": "CNY",
        "rmb": "CNY",
        "yuan": "CNY",
    },
    **{"francs": "CHF", "franken": "CHF", "fr.": "CHF", "₹": "INR", "zł": "PLN", "kč": "CZK", "kr": "SEK"},
}
_CURRENCY_WORD = re.compile(r"\b(?:euros?|pounds?|dollars?|francs?|franken)\b|元", re.IGNORECASE)

_SCALES = {
    **{"thousand": 3, "Tausend": 3, "tausend": 3, "Tsd.": 3, "mille": 3, "mil": 3, "千": 3, "万": 4, "萬": 4},
    **{"million": 6, "millions": 6, "Million": 6, "Millionen": 6, "Mio.": 6, "Mio": 6, "millón": 6, "millones": 6},
    **{"milione": 6, "milioni": 6, "mln": 6, "亿": 8, "億": 8, "billion": 9, "milliard": 9, "milliards": 9},
    **{"Milliarde": 9, "Milliarden": 9, "Mrd.": 9, "Mrd": 9, "Billion": 12, "Billionen": 12, "billones": 12},
}
"""The powers of ten by which words after a number multiply it. A billion is 10^9 in English, where it is in lower case
within a text; the German Billion is 10^12.
"""

_SCALE = re.compile(
    rf"\s?({'|'.join(sorted(map(re.escape, _SCALES), key=len, reverse=True))})(?:(?<=[千万萬亿億])|(?!\w))"
)
_LETTER_SCALE = re.compile(r"(?P<letter>k|m|bn)(?!\w)", re.IGNORECASE)  # of an amount: €4.2m, not 4.2 m of rope
_LETTERS = {"k": 3, "m": 6, "bn": 9}


@dataclass(frozen=True)
class Value:
    """A value as JSON, ``shown`` in one form for all documents, and its words as ``printed``.

    Money is a number with the ``unit`` EUR, USD or another currency, or "" if none is printed. A number, an amount and
    a date stand at characters ``start..end`` of the text.
    """

    value: Any
    shown: str
    printed: str
    unit: str = ""
    start: int = 0
    end: int = 0


def day_comes_first(text: str) -> bool | None:
    """Returns True if the numeric dates of a document name the day first, False if they name the month first, and None
    if that is unknown.

    A point between the numbers, as in 01.02.2026, is only used with the day first.
    """
    for first, separator, second in _NUMERIC_DATE.findall(text):
        if int(first) > 12 or separator == ".":
            return True
        if int(second) > 12:
            return False
    return None


def read_values(
    kind: str, text: str, language: str, day_first: bool | None = None, choices: Sequence[str] = ()
) -> list[Value]:
    """Returns the values of ``kind`` in ``text``, in the order of the text.

    ``language`` is the ISO 639-1 code of the text's language. A numeric date is left out if it is unknown whether the
    day or the month comes first.
    """
    match kind:
        case "number":
            return list(_numbers(text))
        case "money":
            return list(_amounts(text))
        case "date":
            return list(_dates(text, language, day_first))
        case "yes/no":
            yes = starts_with_yes(text)
            return [] if yes is None else [Value(yes, "yes" if yes else "no", text.strip(_AROUND))]
        case "choice":
            return list(_chosen(text, choices))
        case "list":
            parts = [part.strip(_AROUND) for part in _LIST_ENDS.split(text) if part.strip(_AROUND)]
            return [Value(parts, "; ".join(parts), text.strip(_AROUND))] if parts else []
    words = " ".join(text.split()).strip(_AROUND)
    return [Value(words, words, words)] if words else []


def _numbers(text: str) -> Iterator[Value]:
    for found in re.finditer(rf"(?:(?<!\w)[-−])?(?:{NUMBER})", text):  # noqa: RUF001
        sign, digits = ("-", found[0][1:]) if found[0][0] in "-−" else ("", found[0])  # noqa: RUF001
        form = number_form(digits, amount=True)
        if re.fullmatch(r"\d+(\.\d+)?", form):
            power, end = _scale_after(text, *found.span())
            number = Decimal(sign + form).scaleb(power)
            whole = number == number.to_integral_value()
            shown = f"{number:.0f}" if power and whole else f"{number:f}"
            yield Value(
                int(number) if whole else float(number), shown, text[found.start() : end], "", found.start(), end
            )


def _scale_after(text: str, start: int, end: int) -> tuple[int, int]:
    """Returns the power of ten by which the words after the number at ``start..end`` multiply the number (such as 6 for
    "million"), and the position where these words end.
    """
    if found := _SCALE.match(text, end):
        return _SCALES[found[1]], found.end()
    if start and text[start - 1] in "€$£¥" and (letter := _LETTER_SCALE.match(text, end)):
        return _LETTERS[letter["letter"].lower()], letter.end()
    return 0, end


def _amounts(text: str) -> Iterator[Value]:
    from price_parser import Price

    for number in _numbers(text):
        around = text[max(0, number.start - 8) : number.end + 12]
        unit = _currency(Price.fromstring(around).currency or "", around)
        digits = f"{Decimal(number.shown):.2f}" if unit else number.shown
        yield Value(number.value, f"{digits} {unit}".strip(), number.printed, unit, number.start, number.end)


def _currency(symbol: str, around: str) -> str:
    word = _CURRENCY_WORD.search(around)
    name = symbol or (word[0] if word else "")
    return _CURRENCIES.get(name.lower(), name.upper())


def _dates(text: str, language: str, day_first: bool | None) -> Iterator[Value]:
    """Yields the dates in ``text``. Dates are searched for here and not by dateparser, whose search misses some."""
    from dateparser import parse

    languages = list(dict.fromkeys([language, "en"]))
    for found in _DATE.finditer(text):
        first = day_comes_first(found[0]) if day_first is None else day_first
        if first is None and _NUMERIC_DATE.search(found[0]):
            continue  # 03/04/2026 may be in March or in April
        settings = {**_WHOLE_DATES, "DATE_ORDER": "MDY" if first is False else "DMY"}
        if day := parse(_JOINED.sub(" ", found[0]), languages=languages, settings=settings):
            yield Value(day.date().isoformat(), day.date().isoformat(), found[0], "", *found.span())


def _chosen(text: str, choices: Sequence[str]) -> Iterator[Value]:
    for choice in sorted(choices, key=len, reverse=True):
        if found := re.search(rf"(?<!\w){re.escape(choice)}(?!\w)", text, re.IGNORECASE):
            yield Value(choice, choice, found[0])
            return
