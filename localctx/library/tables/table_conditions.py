"""Finds the conditions that a question sets for a table's rows, by the values, numbers and dates in the question."""

import re
from collections.abc import Iterator
from itertools import product, takewhile

from localctx.library.parsers.sheets.cells import plain_number
from localctx.library.parsers.sheets.values import column_of
from localctx.library.tables.question_words import wanted
from localctx.library.tables.table import DataTable
from localctx.library.tables.table_dates import SIGNS_OF_KINDS, conditions_by_dates, without_dates
from localctx.library.tables.table_letters import places_of_letters
from localctx.library.tables.table_question import (
    TableQuestion,
    counts_rows,
    identifies_rows,
    is_one_of,
    mentions,
    quoted,
    values_of,
)
from localctx.library.tables.yes_no_columns import is_yes_no, named_conditions

_MAX_DISTINCT = 20_000  # values of a column that are looked for in a question
_NUMBER = re.compile(r"(?<![\w.,])[-\u2212]?\d[\d.,'\u2019\u00a0]*(?!\w)")
_ISO_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_ADJECTIVE_END = re.compile(r"(?:(?:eg|v)?[ie]?an?|n|u?ese|ish|ic|ch|er|i)?s?|isch(?:e[nrms]?)?")  # Norw-egian


def conditions(asked: TableQuestion) -> list[str]:
    """Returns the SQL ``WHERE`` clauses that may select the rows that the question means; ``""`` selects all rows.

    They are all combinations of the values (``named_values``), numbers (``_compared``) and days that are
    found in the question, with the conditions that it sets by names of columns.
    """
    named = [[condition.condition] for condition in named_conditions(asked)]
    parts = [*named_values(asked), *named, *_compared(asked), *conditions_by_dates(asked)]
    chosen = (" AND ".join(filter(None, one)) for one in product(*parts))
    return [f" WHERE {condition}" if condition else "" for condition in dict.fromkeys(chosen)]


def named_values(asked: TableQuestion) -> Iterator[list[str]]:
    """Yields, for each value of a text column that the question names, a list of alternative SQL conditions, of which
    one is meant.

    A value that occurs in several columns gives several alternatives, unless the word before it names one of them, as
    in "to Oslo". The values yes and no are left to ``named_conditions``.
    """
    found = dict[str, dict[str, list[str]]]()  # by the value's words: by column, the values
    named = [name for name in asked.table.names if asked.table.columns[name].kind == "text"]
    for name in (name for name in named if not is_yes_no(asked.table, name)):
        distinct = dict.fromkeys(value for value in asked.table.values[name] if isinstance(value, str))
        for value in list(distinct)[:_MAX_DISTINCT]:
            if place_of_value(asked, value):
                found.setdefault(value.casefold(), {}).setdefault(name, []).append(value)
    longest = [key for key in found if not any(key != other and key in other for other in found)]
    columns = dict[str, list[str]]()
    for key in longest:
        if len(found[key]) == 1:
            ((name, values),) = found[key].items()
            columns.setdefault(name, []).extend(values)
        else:
            meant = _named_before(asked, found[key]) or found[key]
            yield [is_one_of(name, values) for name, values in meant.items()]
    for name in named:
        if letters := places_of_letters(asked, name):
            columns.setdefault(name, []).extend(letters)
    for name, values in columns.items():
        yield [is_one_of(name, values)]


def _named_before(asked: TableQuestion, found: dict[str, list[str]]) -> dict[str, list[str]]:
    """Returns those of the columns ``found`` whose name is the word before the value in the question."""
    (value, *_), *_ = found.values()
    place = place_of_value(asked, value)
    before = asked.question[: place[0]].casefold().split() if place else []
    return {name: values for name, values in found.items() if before[-1:] == [name.casefold()]}


def _compared(asked: TableQuestion) -> Iterator[list[str]]:
    """Yields a list of alternative conditions for the numbers of the question.

    With words such as "more than", columns are compared with the number. Otherwise a named column must have the number
    as a value. The list is empty if the question compares a number of rows, as in "more than 3 invoices".
    """
    rest = without_dates(asked)
    kinds, numbers = wanted(rest).kinds, numbers_in(rest)
    if not kinds & {*SIGNS_OF_KINDS, "between"}:
        yield from ([] if kinds & {"max", "min"} else filter(None, (_equal(asked, number) for number in numbers)))
        return
    if not numbers:
        return
    after = re.split(r"\d[\d.,]*", rest)[-1]
    if _is_number_of_rows(asked, numbers[-1], after):
        yield []
        return
    names = [n for n in asked.measures if after.strip(" ?.") and mentions(after, n)] or asked.measures
    names = [n for n in names if any(_divides(asked.table, n, number) for number in numbers)] or names
    if "between" in kinds and len(numbers) > 1:
        low, high = sorted(numbers[:2], key=float)
        yield [f"{quoted(name)} BETWEEN {low} AND {high}" for name in names]
    else:
        yield [f"{quoted(name)} {_sign(kinds)} {numbers[0]}" for name in names]


def _is_number_of_rows(asked: TableQuestion, number: str, after: str) -> bool:
    """Returns True if a word directly ``after`` the number names a column, and no such column has amounts to compare
    with it.
    """
    unit = re.match(r"[^\W\d_]+", after.strip())
    named = [name for name in asked.table.names if unit and mentions(unit.group(), name)]
    return bool(named) and not any(_has_amounts(asked.table, name, number) for name in named)


def _has_amounts(table: DataTable, name: str, number: str) -> bool:
    if table.columns[name].kind != "number" or counts_rows(table, name):
        return False
    return not identifies_rows(table, name) or _divides(table, name, number)


def _equal(asked: TableQuestion, number: str) -> list[str]:
    """Returns the conditions that a column equals ``number``, for each named column that has this value."""
    named = [name for name in asked.table.names if mentions(asked.question, name)]
    return [f"{quoted(name)} = {number}" for name in named if float(number) in values_of(asked.table, name)]


def _divides(table: DataTable, name: str, number: str) -> bool:
    """Returns True if ``number`` is within the range of a column's values.

    Otherwise a comparison would select all rows or none, which a question rarely asks for.
    """
    values = values_of(table, name)
    return bool(values) and min(values) <= float(number) <= max(values)


def _sign(kinds: frozenset[str]) -> str:
    """Returns the SQL comparison that the kinds of a computation mean, or ``=``."""
    return next((sign for kind, sign in SIGNS_OF_KINDS.items() if kind in kinds), "=")


def numbers_in(question: str) -> list[str]:
    """Returns the numbers in a question, as written in SQL. Days such as 2026-05-01 are left out."""
    texts = [m.group().rstrip(".,") for m in _NUMBER.finditer(_ISO_DAY.sub(" ", question))]
    values = (column_of([text]).value(text) for text in texts)
    return [plain_number(value) for value in values if isinstance(value, float)]


def place_of_value(asked: TableQuestion, value: str) -> tuple[int, int] | None:
    """Returns the characters of the question that name a value, or None if it does not.

    Words that say what to compute, such as "total", do not count, nor do values of one letter (``places_of_letters``).
    """
    words = re.findall(r"\w+", value.casefold())
    if len("".join(words)) < 2 or value.casefold() in asked.wanted.words.casefold().split():
        return None
    if not value.isascii() and " " not in value and re.search(r"[\u3040-\u9fff\uac00-\ud7af]", value):
        found = re.search(re.escape(value), asked.question)
    else:
        whole = r"\b" + r"\W+".join(map(re.escape, words)) + r"(?:e?s)?\b"
        found = re.search(whole, asked.question, re.IGNORECASE)
    derived = (word for word in asked.names_used if value.isalpha() and _derives_from(word, value))
    if not found and (word := next(derived, None)):
        found = re.search(re.escape(word), asked.question)
    return found.span() if found else None


def _derives_from(word: str, value: str) -> bool:
    """Returns True if a word is an adjective of a value, as Norwegian is of Norway: it begins like the value and has a
    known ending. Australia is no adjective of Austria.
    """
    pairs = zip(word.casefold(), value.casefold(), strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return same >= max(4, 0.6 * len(value)) and bool(_ADJECTIVE_END.fullmatch(word.casefold(), same))
