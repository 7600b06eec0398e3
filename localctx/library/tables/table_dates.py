"""Finds the conditions that a question sets for a table's rows by the days, months and years in it."""

import re
from collections.abc import Iterator, Sequence
from datetime import date as calendar_day

from localctx.library.tables.question_words import comparisons
from localctx.library.tables.table_question import TableQuestion, holds_years, quoted

MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
SIGNS_OF_KINDS = {"over or equal": ">=", "under or equal": "<=", "over": ">", "under": "<"}
"""The SQL comparisons that kinds of computations mean. "At least" is tested before "more than"."""

_YEAR = r"(?<![\d.,])(?:19|20)\d\d(?!\d|%|[.,]\d)"
_DATE = re.compile(
    rf"(?P<day>\d{{4}}-\d\d-\d\d)|\b(?P<month>{'|'.join(MONTHS)})\b(?:,?\s+(?:of\s+)?(?P<of>{_YEAR}))?|(?P<year>{_YEAR})",
    re.IGNORECASE,
)
_ANY_MONTH = f"(?:{'|'.join(MONTHS)})"
_WRITTEN_DAYS = (  # 1 March 2025 or the 1st of March 2025; March 1, 2025; 1.3.2025
    rf"\b(?P<day>\d\d?)(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<month>{_ANY_MONTH}),?\s+(?P<year>{_YEAR})",
    rf"\b(?P<month>{_ANY_MONTH})\s+(?:the\s+)?(?P<day>\d\d?)(?:st|nd|rd|th)?,?\s+(?P<year>{_YEAR})",
    r"(?<![\d.,])(?P<day>\d\d?)\.(?P<month>\d\d?)\.(?P<year>(?:19|20)\d\d)(?!\d|[.,]\d)",
)
_OTHER_DATE = re.compile(  # days written otherwise, such as 1 March and 1/3/2025, and months such as 3/2025
    r"(?<![\d.,])\d{1,2}(?:st|nd|rd|th|\.)?\s+(?:of\s+)?MONTH\b|\bMONTH\s+(?:the\s+)?\d{1,2}(?:st|nd|rd|th)?\b|"
    r"\b\d{1,2}([./-])\d{1,2}\1\d{2,4}\b|\b\d{4}([./])\d{1,2}\2\d{1,2}\b|\b\d{1,2}[/.-](?:19|20)\d\d\b|"
    r"\b(?:19|20)\d\d-\d\d?\b(?!-\d)".replace("MONTH", _ANY_MONTH),
    re.IGNORECASE,
)
_OF_TIME = re.compile(r"after|since|before|(?:earlier|later|newer|younger) than|(?:nach|vor) dem")
"""Words that compare a year. After others, such as "over", 2000 may be an amount."""
_FILLER = r"\s*(?:(?:the|year|month|of|dem|den|jahr|l['’]année|l['’]an|el|año|en|de|à)\s+)*"  # noqa: RUF001
_UNCLEAR = re.compile(  # words that may or may not include the date itself, or that are no comparison in English
    r"\b(?:until|till?|through|by|prior to|past|as of|older than|nach|vor|bis|seit|ab|depuis|dès|avant|après|"
    r"jusqu['’](?:en|au|à)|desde|hasta|antes|después|a partir|dopo|prima|fino a\w*|dal?|sinds|voor|vanaf|na|tot|od|do|"  # noqa: RUF001
    rf"po|przed|до|после|с|från|före|efter){_FILLER}$",  # noqa: RUF001
    re.IGNORECASE,
)


def with_iso_days(question: str) -> str:
    """Returns the question with days such as 1 March 2025, March 1, 2025 and 1.3.2025 written as 2025-03-01."""
    for days in _WRITTEN_DAYS:
        question = re.sub(days, _iso_day, question, flags=re.IGNORECASE)
    return question


def _iso_day(found: re.Match[str]) -> str:
    name = found["month"]
    month = int(name) if name.isdigit() else MONTHS.index(name.casefold()) + 1
    try:
        return calendar_day(int(found["year"]), month, int(found["day"])).isoformat()
    except ValueError:  # no such day
        return found.group()


def conditions_by_dates(asked: TableQuestion) -> Iterator[list[str]]:
    """Yields a list of alternative conditions for the days, months and years of the question, by day column.

    If the table has no day columns, a year is compared with columns of years. The list is empty if the question sets a
    condition that no query states exactly, such as "until March", or has a day in a form that ``with_iso_days`` leaves.
    """
    names, dates = asked.columns("day"), list(_DATE.finditer(asked.question))
    if _OTHER_DATE.search(asked.question) and any(column.kind == "day" for column in asked.table.columns.values()):
        yield []
    elif names and dates:
        yield [f"{quoted(name)} {told}" for name in names if (told := _told(asked.question, dates))]
    elif years := [date for date in dates if not date["day"] and _year(date)]:
        numbers = [name for name in asked.table.names if holds_years(asked.table, name)]
        sign = _sign_before(asked.question, years[0])
        if numbers:
            yield [f"{quoted(name)} {sign} {_year(years[0])}" for name in numbers if sign]


def without_dates(asked: TableQuestion) -> str:
    """Returns the question with spaces for its dates, and for the words before them such as "after", if the table has
    days or years to compare them with.
    """
    text, table = asked.question, asked.table
    if not any(table.columns[name].kind == "day" or holds_years(table, name) for name in table.names):
        return text
    for date in _DATE.finditer(asked.question):
        found = _comparison_before(asked.question, date)
        start = found[1][0] if found else date.start()
        text = f"{text[:start]}{' ' * (date.end() - start)}{text[date.end() :]}"
    return text


def _told(question: str, dates: Sequence[re.Match[str]]) -> str:
    """Returns the comparison of a day with ``dates``, as SQL; "" if it is not clear."""
    signs, date = [_sign_before(question, date) for date in dates], dates[0]
    if len(dates) > 1 and (set(signs) != {"="} or any(date["day"] for date in dates)):
        return ""
    if signs[0] == "=" and not date["day"]:
        year = next(filter(None, map(_year, dates)), "%")
        month = next((f"{_month(date):02}-%" for date in dates if date["month"]), "%")
        return f"LIKE '{year}-{month}'"
    if not signs[0] or not (date["day"] or _year(date)):
        return ""
    first, last = _edges(date)
    return f"{signs[0]} '{last if signs[0] in {'>', '<='} else first}'"


def _sign_before(question: str, date: re.Match[str]) -> str:
    """Returns the SQL comparison that the words before a date mean, ``=`` if none is there, or "" if it is unclear."""
    if _UNCLEAR.search(question[: date.start()]) or re.match(r"\W+on\b", question[date.end() :]):
        return ""
    found = _comparison_before(question, date)
    if not found:
        return "="
    kind, span = found
    words = question[slice(*span)].casefold()
    if date["year"] and not _OF_TIME.fullmatch(words):
        return ""
    return ">=" if words == "since" else SIGNS_OF_KINDS[kind]


def _comparison_before(question: str, date: re.Match[str]) -> tuple[str, tuple[int, int]] | None:
    """Returns the kind and the place of the words such as "after" that stand directly before a date."""
    found = (one for one in comparisons(question) if one[1][1] <= date.start())
    return next(
        (one for one in found if re.fullmatch(_FILLER, question[one[1][1] : date.start()], re.IGNORECASE)), None
    )


def _edges(date: re.Match[str]) -> tuple[str, str]:
    """Returns the first and the last day of a day, a month with its year, or a year; each month as if it had 31."""
    if date["day"]:
        return date["day"], date["day"]
    first, last = (f"{_month(date):02}",) * 2 if date["month"] else ("01", "12")
    return f"{_year(date)}-{first}-01", f"{_year(date)}-{last}-31"


def _year(date: re.Match[str]) -> str:
    return date["year"] or date["of"] or ""


def _month(date: re.Match[str]) -> int:
    return MONTHS.index(date["month"].casefold()) + 1
