"""Reads a CSV file with any separator, and writes its rows as the rows of a sheet.

The rows are read by Python's csv module. Its Sniffer is not used: on real files it takes letters for separators, and
needs quadratic time. The separator is the one with which most rows have the same number of columns.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterator
from typing import Any

from localctx.library.parsers.sheets.cells import NumberedRow, SheetCell, SheetRow
from localctx.library.parsers.sheets.sheet_text import Sheet, write_sheet
from localctx.library.parsers.sheets.values import value_of
from localctx.library.parsers.text_builder import TextBuilder

SUFFIXES = (".csv", ".tsv", ".tab", ".psv")
"""Suffixes of file names that mark CSV files."""

_SEPARATORS = ",;\t|"
_SAMPLE = 200  # rows that are examined
_MAX_LINES = 100  # lines of one value; a longer value comes from a quotation mark that is not closed
csv.field_size_limit(1 << 30)


class _TextCell(SheetCell):
    """A cell whose value is computed on access, because the search for a header needs only the first values."""

    __slots__ = ()

    @property
    def value(self) -> Any:
        return value_of(self.shown)


def read_csv(text: str) -> TextBuilder | None:
    """Returns the rows of a CSV file as text, or None if the text is not a table.

    A text is a table if more than half of the first rows have the same number of columns, and this number is greater
    than one.
    """
    stated = text[4:5] if text[:4].lower() == "sep=" and text[5:6] == "\n" else ""  # Excel's own first line
    separator = stated or _separator(text)
    if not separator:
        return None
    rows = _rows(text, separator, skipped=1 if stated else 0)
    write_sheet(Sheet("", rows, may_be_form=False), builder := TextBuilder())
    return builder


def _rows(text: str, separator: str, skipped: int) -> Iterator[NumberedRow]:
    for number, values in enumerate(_records(text, separator), 1):
        shown = ((column, " ".join(value.split())) for column, value in enumerate(values))
        row: SheetRow = {column: _TextCell(value, value) for column, value in shown if value}
        if row and number > skipped:
            yield number, row


def _records(text: str, separator: str) -> Iterator[list[str]]:
    """Yields the rows. If a quotation mark is never closed, quotation marks have no meaning in the file."""
    quoted = csv.reader(io.StringIO(text), delimiter=separator)
    if all(value.count("\n") < _MAX_LINES for values in quoted for value in values):
        yield from csv.reader(io.StringIO(text), delimiter=separator)
    else:
        yield from csv.reader(io.StringIO(text), delimiter=separator, quoting=csv.QUOTE_NONE)


def _separator(text: str) -> str:
    """Returns the character that divides most of the first rows into the same number of columns, or ""."""
    shares = {separator: _share_of_even_rows(text, separator) for separator in _SEPARATORS}
    best = max(_SEPARATORS, key=lambda separator: shares[separator])
    return best if shares[best][0] > 0.5 else ""


def _share_of_even_rows(text: str, separator: str) -> tuple[float, int]:
    """Returns (share of rows with the commonest number of columns, this number); (0, 0) if the number is 1."""
    rows = csv.reader(io.StringIO(text[: 1 << 20]), delimiter=separator)
    lengths = [len(values) for values, _ in zip(rows, range(_SAMPLE), strict=False) if values]
    columns, count = Counter(lengths).most_common(1)[0] if lengths else (1, 0)
    return (round(count / len(lengths), 1), columns) if columns > 1 else (0.0, 0)
