"""Normalizes numbers, so that two texts can be compared: amounts are compared by their values, numbers of versions and
clauses as they are printed.
"""

import re
import unicodedata

_SPACES = "\u00a0\u2009\u202f"  # special spaces that separate groups of digits
_ALONE = r"(?<!\d[.,])"  # not in a list such as 1,2,3
_END = r"(?![.,]?\d)"
_DECIMALS = r"(?:[.,]\d+)?"
_GROUPED = (
    rf"{_ALONE}(?:\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?|\d{{1,3}}(?:\.\d{{3}})+(?:,\d+)?"
    rf"|\d{{1,3}}(?:(?:['’]\d{{3}})+|(?:[{_SPACES}]\d{{3}})+){_DECIMALS}"  # noqa: RUF001
    rf"|(?<!\d )(?:\d{{1,2}}(?: \d{{3}})+|\d{{3}} \d{{3}}){_DECIMALS}(?! \d)){_END}"
)
NUMBER = rf"{_GROUPED}|\d+(?:\.\d+)+|{_ALONE}\d+,\d+{_END}|\d+"
"""The pattern of a number: 1,2,3 and 600 700 800 are three numbers each, 1 500 is one."""

_GROUPS = re.compile(_GROUPED)
_CURRENCY = (
    "EUR|USD|GBP|CHF|JPY|CNY|RMB|SEK|NOK|DKK|CZK|PLN|INR|CAD|AUD|NZD|euros?|cents?|dollars?|pounds?|crowns?|francs?|"
    r"Franken|Kronen|Rappen|yuan|yen|percent|per cent|prozent|pour cent|por ciento"
)
_BEFORE = re.compile(rf"(?:[$€£¥￥₹₽₩]|(?<![^\W\d_])(?:{_CURRENCY}))\s?$", re.IGNORECASE)
_AFTER = re.compile(rf"[\s-]?(?:[$€£¥￥₹₽₩%％‰元円]|(?:{_CURRENCY})(?![^\W\d_]))", re.IGNORECASE)  # noqa: RUF001
_NEAR = 12  # characters before and after a number that may name a currency


def number_at(text: str, start: int, end: int) -> str:
    """Returns the normalized form of the number at characters ``start..end`` of ``text``, a match of NUMBER."""
    return number_form(text[start:end], amount_at(text, start, end) != (start, end))


def amount_at(text: str, start: int, end: int) -> tuple[int, int]:
    """Returns the characters of the number at ``start..end`` of ``text`` with the currency, or the percent sign, that
    stands right beside it.
    """
    first = max(0, start - _NEAR)
    before, after = _BEFORE.search(text[first:start]), _AFTER.match(text[end : end + _NEAR])
    return first + before.start() if before else start, end + after.end() if after else end


def number_form(number: str, amount: bool = False) -> str:
    """Returns the normalized form of a printed number. Two numbers are equal if their forms are equal.

    1,500.00, 1.500,00 and 1 500 become 1500. A number with one dot may be a version or a clause (3.1 is not 3.10), so
    it stays as printed, unless it is an ``amount`` of money or too large for a version. A number with several dots also
    stays as printed, unless the dots separate groups of three digits.
    """
    separators = re.findall(r"\D", number)
    if _GROUPS.fullmatch(number):
        has_decimals = separators[-1] != separators[0]
        return _value(*number.rsplit(separators[-1], 1)) if has_decimals else _value(number)
    if separators == [","] or (separators == ["."] and (amount or _is_large(*number.split(".")))):
        return _value(*re.split("[.,]", number))
    return unicodedata.normalize("NFKC", number)


def _value(whole: str, decimals: str = "") -> str:
    digits = unicodedata.normalize("NFKC", re.sub(r"\D", "", whole))
    return f"{digits}.{unicodedata.normalize('NFKC', decimals).rstrip('0')}".rstrip(".")


def _is_large(whole: str, decimals: str) -> bool:
    """Returns True for numbers such as 600.00 and 1500.5, which are too large for a version; 2024.10 may be one."""
    is_year = len(whole) == 4 and whole[:2] in ("19", "20")
    return (len(whole) >= 3 and set(decimals) == {"0"} and len(decimals) > 1) or (len(whole) > 3 and not is_year)
