"""Reads the quantities in a sentence with their units: money and its period, dates, durations, other numbers.

Two quantities can be compared only if that is safe: a monthly rent is not compared with a yearly rent.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from localctx.library.wording.number_forms import amount_at, number_form
from localctx.library.wording.values import Value, day_comes_first, read_values
from localctx.library.wording.word_forms import form_of

QuantityKind = Literal["money", "date", "duration", "number"]

_DAYS = {"day": (1.0, 1.0), "week": (7.0, 7.0), "month": (28.0, 31.0), "year": (365.0, 366.0)}
"""The minimum and the maximum number of days of a unit of time. Multiplied, they also bound several such units."""

_LIKE = {"week": ("day", 7), "year": ("month", 12)}
_WORKING = (
    r"(?:working|business)[\s-]days?|(?:Werk|Arbeits)tage?n?|jours? ouvr(?:é|able)s?|días? (?:hábil|laborable)(?:es)?"
)
_TIMES = {
    "working day": rf"{_WORKING}|个?工作日",
    "day": r"(?:calendar )?days?|Tage?n?|jours?|días?|天|日(?=内|以内|前)",
    "week": r"weeks?|Wochen?|semaines?|semanas?|(?:个|個)?(?:星期|礼拜)|[周週]",
    "month": r"months?|Monate?n?|mois|mes(?:es)?|(?:个|個)月",
    "year": r"years?|Jahre?n?|années?|ans|(?<=un )an|años?|年",
}
_UNITS = {"%": r"%|per ?cent|Prozent|pour cent|por ciento", "m²": r"m²|m2|sqm|qm|sq\.? ?m|square met(?:er|re)s?"}
_UNITS["m²"] += r"|Quadratmetern?|mètres? carrés?|metros? cuadrados?|平方米"
MOST_YEARS = 200  # years of a duration, at most; 2024年 is a date
_AN_HOUR = r"(?<![£$€.,])\b\d"
_MONTHLY = rf"(?<!{_AN_HOUR})(?<!{_AN_HOUR} )(?<!{_AN_HOUR}\d)(?<!{_AN_HOUR}\d )p\.? ?m\."  # not 5 p.m.
_PERIODS = {
    "hour": r"(?:an|per|each) hour|hourly|/ ?h(?:our)?\b|pro Stunde|(?:de l'|par )heure|por hora|每小时",
    "day": r"(?:a|per|each|every) day|daily|/ ?day|pro Tag|täglich\w*|par jour|al día|por día|每[天日]",
    "week": r"(?:a|per|each|every) week|weekly|/ ?week|(?:pro|jede) Woche|in der Woche|wöchentlich\w*|par semaine|"
    r"hebdomadaires?|a la semana|por semana|semanal(?:es)?|每周|每星期",
    "month": rf"(?:a|per|each|every) (?:calendar )?month|monthly|/ ?mo(?:nth)?\b|{_MONTHLY}|(?:pro|im|jeden) Monat|"
    r"monatlich\w*|Monatsmiete|par mois|mensuel(?:le)?s?|al mes|por mes|mensual(?:es)?|cada mes|每(?:个)?月|月租金?",
    "quarter": r"(?:a|per|each|every) quarter|quarterly|(?:pro|im) Quartal|vierteljährlich\w*|trimestriel(?:le)?s?|"
    r"par trimestre|trimestral(?:es)?|每季度?",
    "year": r"(?:a|per|each|every) (?:year|annum)|annual(?:ly)?|yearly|/ ?year|p\.? ?a\.|(?:pro|im) Jahr|jährlich\w*|"
    r"Jahresmiete|par an(?:née)?|annuel(?:le)?s?|al año|por año|anual(?:es)?|cada año|每年|年租金?",
}
_LETTER = r"[^\W\d_\u3400-\u9fff]"
_PERIOD = re.compile(
    "|".join(rf"(?P<{unit}>(?<!{_LETTER})(?:{words})(?!{_LETTER}))" for unit, words in _PERIODS.items()), re.IGNORECASE
)
_NUMBER_WORDS = {
    **dict.fromkeys(("one", "ein", "eine", "einen", "einem", "einer", "un", "une", "uno", "una", "一"), 1),
    **dict.fromkeys(("two", "zwei", "deux", "dos", "二", "两", "兩"), 2),
    **dict.fromkeys(("three", "drei", "trois", "tres", "三"), 3),
    **dict.fromkeys(("four", "vier", "quatre", "cuatro", "四"), 4),
    **dict.fromkeys(("five", "fünf", "cinq", "cinco", "五"), 5),
    **dict.fromkeys(("six", "sechs", "seis", "六"), 6),
    **dict.fromkeys(("seven", "sieben", "sept", "siete", "七"), 7),
    **dict.fromkeys(("eight", "acht", "huit", "ocho", "八"), 8),
    **dict.fromkeys(("nine", "neun", "neuf", "nueve", "九"), 9),
    **dict.fromkeys(("ten", "zehn", "dix", "diez", "十"), 10),
    **dict.fromkeys(("twelve", "zwölf", "douze", "doce", "十二"), 12),
    **dict.fromkeys(("fourteen", "vierzehn", "quatorze", "catorce", "十四"), 14),
    **dict.fromkeys(("fifteen", "fünfzehn", "quinze", "quince", "十五"), 15),
    **dict.fromkeys(("eighteen", "achtzehn", "dix-huit", "dieciocho", "十八"), 18),
    **dict.fromkeys(("twenty", "zwanzig", "vingt", "veinte", "二十"), 20),
    **dict.fromkeys(("twenty-four", "vierundzwanzig", "vingt-quatre", "veinticuatro", "二十四"), 24),
    **dict.fromkeys(("thirty", "dreißig", "trente", "treinta", "三十"), 30),
    **dict.fromkeys(("sixty", "sechzig", "soixante", "sesenta", "六十"), 60),
    **dict.fromkeys(("ninety", "neunzig", "quatre-vingt-dix", "noventa", "九十"), 90),
}
_COUNT = "|".join(sorted(map(re.escape, _NUMBER_WORDS), key=len, reverse=True))
_HIGHER = r"hundred|hundert|cent|ciento|veinti|百"  # words that begin a number of several words
_TO = r"(?:to|or|bis|oder|à|ou|a|o|至|到|或|[-–~])"  # noqa: RUF001
_IN_BRACKETS = r"(?:\s?\(\s?[^()\d]{0,20}\d*\s?\))?"  # three (3) months
_TIME = "|".join(rf"(?P<{unit.replace(' ', '_')}>{words})" for unit, words in _TIMES.items())
_DURATION = re.compile(
    r"(?<![^\W\u3400-\u9fff])(?<![.,/一二两三四五六七八九十百])"
    rf"(?P<part>(?:{_HIGHER}|{_COUNT})[\s-](?:(?:and|und|et|y)[\s-])?)?"
    rf"(?:(?P<least>\d+|{_COUNT})\s?{_TO}\s?)?"
    rf"(?:(?P<digits>\d+(?:[.,]\d+)?)|(?P<word>{_COUNT}|an?(?=\s\w+['’]s)))"  # noqa: RUF001
    rf"{_IN_BRACKETS}[\s-]?(?:{_TIME})(?:(?<=[天日周週月年期拜])|(?![^\W\d_]))",
    re.IGNORECASE,
)
_UNIT = re.compile("|".join(rf"(?P<u{n}>\s?(?:{words}))" for n, words in enumerate(_UNITS.values())), re.IGNORECASE)
_COUNTRY = re.compile(r"(?<![A-Za-z])[A-Z]{1,3}$")  # the country of dollars: A$, CA$
_RANGE = re.compile(rf"\s?{_TO}\s?", re.IGNORECASE)
_UNIT_WORD = re.compile(r"\s?([\u3400-\u9fff]{1,4}|[^\W\d_]+)")


@dataclass(frozen=True)
class Quantity:
    """A quantity at characters ``start..end`` of a text: its ``kind``, ``number`` and ``unit``.

    The unit of money is its currency; ``period`` is ``month`` for an amount per month, ``""`` if no period is named,
    and None if several are named. The unit of a duration is a unit of time. The number of a date is the ordinal number
    of the day, and a date has no unit.
    """

    kind: QuantityKind
    number: float
    unit: str
    start: int
    end: int
    period: str | None = ""

    @property
    def value(self) -> float | str:
        """The number as JSON: a date as ``2026-03-01``."""
        return date.fromordinal(int(self.number)).isoformat() if self.kind == "date" else self.number

    def is_same(self, other: "Quantity") -> bool:
        """Returns True if both quantities state the same, whatever the period. A number without a unit may have any
        unit.
        """
        bare = (
            "number" in (self.kind, other.kind)
            and "" in (self.unit, other.unit)
            and "date" not in (self.kind, other.kind)
        )
        return self.number == other.number and (bare or (self.kind, self.unit) == (other.kind, other.unit))


def read_quantities(text: str, language: str, day_first: bool | None = None) -> list[Quantity]:
    """Returns the quantities in ``text``, in order. ``language`` is the ISO 639-1 code of the text's language.

    ``day_first`` says whether numeric dates name the day first (None: unknown).
    """
    day_first = day_comes_first(text) if day_first is None else day_first
    found = [_date(value) for value in read_values("date", text, language, day_first)]
    rest = _without(text, found)
    found += _durations(rest)
    found += _numbers(_without(rest, found))
    found.sort(key=lambda quantity: quantity.start)
    return _with_periods(text, found)


def compare(a: Quantity, b: Quantity) -> int | None:
    """Returns -1, 0 or 1 as ``a`` is less than, equal to or more than ``b``; None if they cannot be compared.

    Durations in different units are compared only where every length of a month and a year gives the same result.
    """
    if a.kind != b.kind:
        return None
    if a.kind == "duration":
        return _compare_durations(a, b)
    if a.unit != b.unit or a.period is None or a.period != b.period:
        return None
    return (a.number > b.number) - (a.number < b.number)


def _compare_durations(a: Quantity, b: Quantity) -> int | None:
    (unit, number), (other_unit, other) = _in_small_units(a), _in_small_units(b)
    if unit == other_unit:
        return (number > other) - (number < other)
    if a.unit not in _DAYS or b.unit not in _DAYS:
        return None
    (low, high), (other_low, other_high) = _DAYS[a.unit], _DAYS[b.unit]
    if a.number * high < b.number * other_low:
        return -1
    return 1 if a.number * low > b.number * other_high else None


def _in_small_units(duration: Quantity) -> tuple[str, float]:
    unit, factor = _LIKE.get(duration.unit, (duration.unit, 1))
    return unit, duration.number * factor


def _without(text: str, found: Sequence[Quantity]) -> str:
    """Returns ``text`` with blanks in place of the quantities found."""
    for one in found:
        text = text[: one.start] + " " * (one.end - one.start) + text[one.end :]
    return text


def _date(value: Value) -> Quantity:
    return Quantity("date", date.fromisoformat(value.value).toordinal(), "", value.start, value.end)


def _durations(text: str) -> Iterator[Quantity]:
    """Yields the durations in ``text``, and both ends of a range. A number of several words, such as "a hundred and
    twenty", is left out.
    """
    for found in _DURATION.finditer(text):
        unit = next(unit for unit in _TIMES if found[unit.replace(" ", "_")])
        numbers = [_count(found[group]) for group in ("least", "digits", "word") if found[group]]
        if not found["part"] and not (unit == "year" and max(numbers) > MOST_YEARS):
            yield from (Quantity("duration", number, unit, *found.span()) for number in numbers)


def _count(written: str) -> float:
    number = number_form(written, amount=True) if written[0].isdigit() else _NUMBER_WORDS.get(written.lower(), 1)
    return float(number)


def _numbers(text: str) -> Iterator[Quantity]:
    """Yields money and other numbers. A number is money if a currency stands beside it, or beside the end of its
    range.
    """
    numbers = read_values("number", text, "")
    for i, value in enumerate(numbers):
        following = numbers[i + 1] if i + 1 < len(numbers) else None
        if amount := _amount(text, value):
            yield amount
        elif following and _RANGE.fullmatch(text, value.end, following.start) and (most := _amount(text, following)):
            yield Quantity("money", float(value.value), most.unit, value.start, value.end)
        else:
            unit, end = _unit_after(text, value.end)
            yield Quantity("number", float(value.value), unit, value.start, end)


def _amount(text: str, number: Value) -> Quantity | None:
    """Returns ``number`` with the currency beside it as an amount of money; None if there is no currency."""
    start, end = amount_at(text, number.start, number.end)
    if (start, end) == (number.start, number.end) or _UNIT.match(text, number.end):
        return None
    if text[start] == "$" and (country := _COUNTRY.search(text[max(0, start - 3) : start])):
        start -= len(country[0])
    known = next((amount.unit for amount in read_values("money", text[start:end], "")), "")
    currency = known or text[start:end].replace(number.printed, "").strip(" -").casefold()
    return Quantity("money", float(number.value), currency, start, end)


def _unit_after(text: str, end: int) -> tuple[str, int]:
    """Returns the unit after a number that ends at ``end``, and the end of the unit. The unit is a known unit or the
    next word.
    """
    if found := _UNIT.match(text, end):
        return list(_UNITS)[int((found.lastgroup or "")[1:])], found.end()
    word = _UNIT_WORD.match(text, end)
    return (form_of(word[1].casefold()), word.end()) if word else ("", end)


def _with_periods(text: str, found: Sequence[Quantity]) -> list[Quantity]:
    """Returns the quantities. Amounts of money get their periods.

    A period stands right behind the amount (880 euros a month), or anywhere between the neighbouring amounts (a monthly
    rent of EUR 880). A period right behind an amount does not belong to the next amount.
    """
    periods, told, taken = list(_PERIOD.finditer(text)), list[Quantity](), 0
    money = [one for one in found if one.kind == "money"]
    for i, one in enumerate(money):
        until = money[i + 1].start if i + 1 < len(money) else len(text)
        behind = next((p for p in periods if p.start() >= one.end and not text[one.end : p.start()].strip(" ,(")), None)
        near = [behind] if behind else [p for p in periods if taken <= p.start() and p.end() <= until]
        units = {p.lastgroup or "" for p in near}
        taken = behind.end() if behind else one.end
        told.append(_of_period(one, next(iter(units), "") if len(units) < 2 else None))
    return sorted([*told, *(one for one in found if one.kind != "money")], key=lambda one: one.start)


def _of_period(money: Quantity, period: str | None) -> Quantity:
    return Quantity(money.kind, money.number, money.unit, money.start, money.end, period)


def has_other_period(question: str, answer: str, cited: str, language: str) -> bool:
    """Returns True if the amount of ``answer`` is for another period in ``cited`` than ``question`` asks for, such as a
    monthly rent where the yearly rent is asked for, and the answer does not name the period. ``language`` is that of
    both.
    """
    asked = {found.lastgroup for found in _PERIOD.finditer(question)}
    quoted = [q for q in read_quantities(cited, language) if q.kind == "money" and q.period]
    given = [q for q in read_quantities(answer, language) if q.kind == "money"]
    said = [q for q in quoted if any(q.number == one.number and not one.period for one in given)]
    return len(asked) == 1 and bool(said) and all(q.period not in asked for q in said)
