"""Finds the tables of a stored document in its text, so that a result can be cited by the text from which it was
computed.

The text of a row under a header is ``Name: value; Name: value``. The header itself is the line before the rows, in
which names are separated by tabs.
"""

import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath

from localctx.library.parsers.sheets.header import column_label
from localctx.library.parsers.sheets.values import Column, column_of
from localctx.store.documents import Span, StoredDocument, labels

_TOTALS = re.compile(
    r"(grand |sub-?)?totals?|sums?|(gesamt|zwischen)?summe|gesamt|insgesamt|somme|total général|totale|suma|totaal|"
    r"razem|łącznie|total geral|итого|всего|合计|总计|總計|合計|総計|小計|합계|총계",
    re.IGNORECASE,
)
_LABEL = "label"
"""The column name for the first values of rows, if the header has no name there."""


@dataclass(frozen=True)
class TableRow:
    """A row of a table: its number in the sheet, its characters ``start..end`` in the document's text, and the texts of
    its cells.

    ``texts`` maps the name of a column to the text of the cell.
    """

    number: str
    start: int
    end: int
    texts: dict[str, str]


@dataclass(frozen=True)
class DataTable:
    """A table of a document: the names of its ``sheet`` and ``file``, the names of its columns, and its rows.

    Rows that add up other rows are left out; ``totals`` are the numbers of these rows.
    """

    sheet: str
    names: tuple[str, ...]
    rows: tuple[TableRow, ...]
    totals: tuple[str, ...]
    file: str = ""

    @cached_property
    def columns(self) -> dict[str, Column]:
        """The Column for the name of each column. It has the column's kind (number, day or text), and a function that
        reads its values.
        """
        return {name: column_of([row.texts.get(name, "") for row in self.rows]) for name in self.names}

    @cached_property
    def values(self) -> dict[str, list[float | str | None]]:
        """The values of each column in the order of the rows, with None for a row without a value."""
        texts = {name: [row.texts.get(name, "") for row in self.rows] for name in self.names}
        return {
            name: [column.value(text) if text else None for text in texts[name]]
            for name, column in self.columns.items()
        }


def tables_of(document: StoredDocument) -> list[DataTable]:
    """Returns the tables of a document: one for each group of rows under a header."""
    sheet, found = labels(document.spans, "heading"), list[_Rows]()
    for span in (s for s in document.spans if s.kind == "row"):
        start, line = row_line(document.text, span)
        if "\t" in line:
            if not found or found[-1].rows:
                found.append(_Rows(sheet(start) or ""))
            found[-1].headers.append(list(map(column_label, line.split("\t"))))
        elif found:
            found[-1].add(TableRow(span.label, start, start + len(line), {}), line)
    file = PurePath(document.name).stem
    return [replace(table, file=file) for rows in found if (table := rows.table())]


class _Rows:
    """Collects the rows under a header while they are read."""

    def __init__(self, sheet: str) -> None:
        self._sheet = sheet
        self.headers, self.rows = list[list[str]](), list[TableRow]()
        self._names = dict[str, None]()

    def add(self, row: TableRow, line: str) -> None:
        """Add a row if it names its values. A row with a single value is a title and is left out."""
        texts, name = dict[str, str](), ""
        for piece in line.split("; "):
            if (found := self._name(piece)) and found not in texts:
                name = found
                texts[name] = piece[len(name) + 2 :]
            elif not texts:
                name = _LABEL
                texts[name] = piece
            else:  # the separator belongs to the value
                texts[name] += f"; {piece}"
        if len(texts) > 1:
            self.rows.append(replace(row, texts=texts))

    def table(self) -> DataTable | None:
        """Returns the table of the rows that were added, or None if there are none except totals."""
        if not self.rows:
            return None
        widest = max(self.rows, key=lambda row: len(row.texts)).texts
        names = dict.fromkeys([*widest, *(name for row in self.rows for name in row.texts)])
        totals = [row for row in self.rows if _TOTALS.fullmatch(next(iter(row.texts.values())).strip(" :"))]
        kept = tuple(row for row in self.rows if row not in totals) if totals else tuple(self.rows)
        return DataTable(self._sheet, tuple(names), kept, tuple(row.number for row in totals)) if kept else None

    def _name(self, piece: str) -> str:
        """Returns the column name that a piece of a row begins with, or ""."""
        if known := next((name for name in self._names if piece.startswith(f"{name}: ")), ""):
            return known
        for name in (name for line in reversed(self.headers) for name in line):
            if found := full_name(piece, name):
                self._names[found] = None
                return found
        return ""


def full_name(piece: str, name: str) -> str:
    """Returns the column name that a piece of a row begins with: ``name``, possibly with the name of a group before it.
    Returns "" if the piece begins with another name or with none.
    """
    if piece.startswith(f"{name}: "):
        return name
    at = piece.find(f" / {name}: ")
    return piece[: at + len(f" / {name}")] if at >= 0 else ""


def row_line(text: str, span: Span) -> tuple[int, str]:
    """Returns the start and the text of a row, without the name of the sheet before the row and without comments after
    it.
    """
    start = span.start
    lines = list[tuple[int, str]]()
    for part in text[span.start : span.end].rstrip().split("\n\n"):
        lines.append((start, part))
        start += len(part) + 2
    own = [(at, line) for at, line in lines if not line.startswith("Comment on ")]
    return (own or lines)[-1]
