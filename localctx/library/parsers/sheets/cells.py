"""Defines the cells of a sheet: a value, and the text that shows the value. Standard library only."""

import datetime
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from localctx.library.parsers.list_numbers import alphabetic, in_a_row

_MAX_EXPONENT = 30  # a number of more digits would be noise


class SheetCell(NamedTuple):
    """A cell that is not empty: its value (text, number, truth value, day, time or duration), and the text that shows
    the value.
    """

    value: Any
    shown: str


SheetRow = dict[int, SheetCell]
"""The cells of a row that are not empty, by column from 0, in order."""

NumberedRow = tuple[int, SheetRow]
"""A row that is not empty, with its number from 1."""

Merged = tuple[tuple[int, int], tuple[int, int]]
"""A merged range of cells: ((first row, first column), (last row, last column))."""


class Comment(NamedTuple):
    """A comment on a cell: the cell's column (from 0), the author or "", and the text."""

    column: int
    author: str
    text: str


def cell(value: Any) -> SheetCell | None:
    """Returns the SheetCell for a value, or None if the value is shown as no text."""
    shown = show(value)
    return SheetCell(value, shown) if shown else None


def show(value: Any) -> str:
    """Returns a value as text on one line.

    Numbers have up to 15 digits and no exponent; a day is 2026-05-01, a duration of 36 hours is 36:00.
    """
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        return plain_number(value)
    if isinstance(value, datetime.timedelta):
        return _duration(value)
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        value = value.date()
    return " ".join(str(value).split())


def plain_number(value: float) -> str:
    """Returns a number with up to 15 significant digits. Only huge or tiny numbers have an exponent."""
    number = f"{value:.15g}"
    exponent = int(number.partition("e")[2] or 0)
    return format(Decimal(number), "f") if 0 < abs(exponent) <= _MAX_EXPONENT else number


def column_name(column: int) -> str:
    """Returns the letters of a column, counted from 0: A, B, ..., Z, AA."""
    return alphabetic(column + 1).upper()


def tell_ranges(numbers: Sequence[int]) -> str:
    """Returns ascending numbers as text, with consecutive numbers joined: ``3-7, 9``. After eight such ranges, the rest
    is given as a number.
    """
    told = [str(first) if first == last else f"{first}-{last}" for first, last in in_a_row(numbers)]
    return ", ".join(told[:8]) + (f" and {len(told) - 8} more" if len(told) > 8 else "")


def _duration(value: datetime.timedelta) -> str:
    seconds = round(value.total_seconds())
    hours, rest = divmod(abs(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    return f"{'-' * (seconds < 0)}{hours}:{minutes:02}" + (f":{rest:02}" if rest else "")
