"""Finds dates and days of the week in a text, in English, German and French. A date may lack its year."""

import re
from collections.abc import Iterator

_MONTH_NAMES = (
    "january januar janvier jan|february februar février feb fév|march märz mars mar mär|april avril apr avr|"
    "may mai|june juni juin jun|july juli juillet jul juil|august août aug|september septembre sep sept|"
    "october oktober octobre oct okt|november novembre nov|december dezember décembre dec dez déc"
)
_MONTHS = {name: i for i, names in enumerate(_MONTH_NAMES.split("|"), 1) for name in names.split()}
_WEEKDAYS = (
    "monday|tuesday|wednesday|thursday|friday|saturday|sunday|montag|dienstag|mittwoch|donnerstag|freitag|samstag|"
    "sonnabend|sonntag|lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche"
)
_BEFORE_MONTH = "in|im|en|since|until|by|before|after|each|every|seit|bis|ab|jeden|depuis|avant|après"
_MONTH = rf"(?P<{{}}>{'|'.join(sorted(_MONTHS, key=len, reverse=True))})\b\.?"
_DAY = r"(?<![\d.,])(?P<{}>\d{{1,2}})(?:\.|st|nd|rd|th|er)?"
_YEAR = r"(?P<{}>\d{{4}})(?!\d)"
_DATE = re.compile(
    r"(?<!\d)(?P<y1>\d{4})-(?P<m1>\d{1,2})-(?P<d1>\d{1,2})(?!\d)"
    r"|(?<![\d.,/])\d{1,2}(?P<point>[./-])\d{1,2}(?P=point)(?:\d{4}|\d\d)(?!\d)"
    rf"|{_DAY.format('d2')}\s*(?:(?:day\s+)?of\s+)?{_MONTH.format('m2')}(?:,?\s+{_YEAR.format('y2')})?"
    rf"|(?<!\w){_MONTH.format('m3')}\s+{_DAY.format('d3')}(?!\d)(?:,?\s+{_YEAR.format('y3')})?"
    rf"|(?<!\w){_MONTH.format('m4')}\s+{_YEAR.format('y4')}|(?<!\w)(?P<weekday>{_WEEKDAYS})s?\b"
    rf"|(?<!\w)(?:{_BEFORE_MONTH})\s+{_MONTH.format('m5')}",
    re.IGNORECASE,
)


def dates_in(text: str) -> Iterator[tuple[int, int, str]]:
    """Yields (start, end, form) of each date or day of the week in a text. Dates with equal forms are the same date.

    The form is ``2026-05-01`` if the month is written as a word, if the year comes first, or if the parts are separated
    by points, because then the day comes first. Otherwise the form is the date as written, because 3/4/2026 may be a
    day in March or in April.
    """
    for found in _DATE.finditer(text):
        yield found.start("m5" if found["m5"] else 0), found.end(), _form(found)


def _form(found: re.Match[str]) -> str:
    if found["point"]:
        day, month, year = found[0].split(found["point"])
        is_clear = found["point"] == "." and len(year) == 4
        return f"{year}-{int(month):02}-{int(day):02}" if is_clear else found[0]
    if found["weekday"]:
        return found["weekday"].casefold()
    parts = {name[0]: value for name, value in found.groupdict().items() if value}
    month = parts["m"].casefold()
    number = _MONTHS.get(month) or int(month)
    return f"{parts.get('y', '')}-{number:02}-{int(parts.get('d', 0)):02}"
