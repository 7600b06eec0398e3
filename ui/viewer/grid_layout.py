"""Finds the cells of a sheet in its stored text, where a row is ``Name: value; Name: value``, and a header is the names
with tabs between them.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from localctx.document_parts import HEADER
from localctx.library.parsers.sheets.header import column_label
from localctx.library.tables.table import full_name, row_line
from localctx.store.documents import Span, StoredDocument
from localctx.ui.viewer.layout_range import SYNTAX, LayoutRange

_PARAGRAPH = re.compile(r"[^\n]+\n*")
_NUMBER = re.compile(r"[-+(\u2212]?[$€£¥]?\s?\d[\d.,'\s]*\)?\s?[%$€£¥]?")


@dataclass
class _Cell:
    """A cell that starts at ``start``: the name of its column, if any, and its value from ``value`` to ``end``.

    ``column`` counts from 1; 0 is a column without a name before the others. None is a cell as wide as the table.
    """

    column: int | None
    start: int
    value: int
    end: int


def grid_ranges(document: StoredDocument, start: int, end: int) -> Iterator[LayoutRange]:
    """Yields the ranges of the tables that have a row in the characters ``start..end``, and of the names of sheets."""
    heads = [s for s in document.spans if s.kind == HEADER]
    tops, sheets = {s.start for s in heads}, {s.start for s in document.spans if s.kind == "heading"}
    groups = list[list[Span]]()
    for row in (s for s in document.spans if s.kind == "row" and s.start < end and s.end > start):
        if not groups or row.start in sheets or (row.start in tops and groups[-1][-1].start not in tops):
            groups.append([])
        groups[-1].append(row)
    for group in groups:
        header = list(takewhile(lambda row: row.start in tops, group))
        sheet = max((at for at in sheets if at <= group[0].start), default=0)
        above = [s for s in heads if sheet <= s.start < group[0].start]
        yield from _SheetGrid(document.text, header, above[-1:]).ranges(group, sheets)


class _SheetGrid:
    """A table of ``text``. ``header`` are the rows of its header; if there are none, ``above`` has the last row of a
    header that an earlier section shows.
    """

    def __init__(self, text: str, header: Sequence[Span], above: Sequence[Span]) -> None:
        self._text, self._header = text, {row.start for row in header}
        line = row_line(text, (header or above)[-1])[1] if header or above else ""
        self._names = [column_label(name) for name in line.split("\t")] if "\t" in line else []

    def ranges(self, rows: Sequence[Span], sheets: set[int]) -> Iterator[LayoutRange]:
        """Yields the ranges of the rows. The first may have the name of its sheet before it, one of ``sheets``."""
        lines = list[tuple[bool, LayoutRange, list[_Cell]]]()
        for row in rows:
            own, line = row_line(self._text, row)
            is_header = row.start in self._header
            for paragraph in _PARAGRAPH.finditer(self._text, row.start, row.end):
                at, end = paragraph.span()
                if at == row.start and at in sheets and at != own:
                    yield LayoutRange(at, end, "h3")
                else:
                    wide = [_Cell(None, at, at, at + len(paragraph[0].rstrip()))]
                    cells = self._cells(own, line, is_header) if at == own else wide
                    lines.append((is_header, LayoutRange(at, end, "tr", row.label if at == own else ""), cells))
        if lines:
            yield from self._set(lines)

    def _set(self, lines: Sequence[tuple[bool, LayoutRange, list[_Cell]]]) -> Iterator[LayoutRange]:
        below = [cell for is_header, _, cells in lines if not is_header for cell in cells if cell.column is not None]
        first = min((cell.column or 0 for cell in below), default=1) and 1
        words = {cell.column for cell in below if not _NUMBER.fullmatch(self._text, cell.value, cell.end)}
        numbers = {cell.column for cell in below} - words
        named = [] if self._header else list(enumerate(self._shown_names(below)))[first:]
        names = [(name, column in numbers) for column, name in named]
        yield LayoutRange(lines[0][1].start, lines[-1][1].end, "table", names)
        for is_header, row, cells in lines:
            yield row
            for cell, end in zip(cells, [*(cell.start for cell in cells[1:]), row.end], strict=True):
                column = -1 if cell.column is None else cell.column - first
                yield LayoutRange(cell.start, end, "th" if is_header else "td", (column, cell.column in numbers))
                yield LayoutRange(cell.start, cell.value, "span", SYNTAX)
                yield LayoutRange(cell.end, end, "span", SYNTAX)

    def _shown_names(self, cells: Sequence[_Cell]) -> list[str]:
        """Returns the names of the columns from column 0, as the rows tell them: with the names of groups."""
        told = {cell.column: self._text[cell.start : cell.value].removesuffix(": ") for cell in cells}
        return [told.get(column) or name for column, name in enumerate(["", *self._names])] if self._names else []

    def _cells(self, start: int, line: str, is_header: bool) -> list[_Cell]:
        """Returns the cells of the row ``line``. Columns without a value are left out in a row, and stay in order."""
        if is_header and line.count("\t") != len(self._names) - 1:  # a title, or names of groups of columns
            return [_Cell(None, start, start, start + len(line))]
        if not self._names or is_header or "\t" in line:
            values = re.finditer(r"[^\t]+", line)
            return [_Cell(i, start + v.start(), start + v.start(), start + v.end()) for i, v in enumerate(values, 1)]
        found, at = list[_Cell](), start
        for piece in line.split("; "):
            column, name = self._column(piece, (found[-1].column or 0) if found else 0)
            if column or not found:
                found.append(_Cell(column, at, at + (len(name) + 2 if name else 0), at + len(piece)))
            else:  # the separator belongs to the value
                found[-1].end = at + len(piece)
            at += len(piece) + 2
        if len(found) == 1 and not found[0].column:
            found[0].column = None
        return found

    def _column(self, piece: str, after: int) -> tuple[int, str]:
        """Returns the column, after the column ``after``, whose name ``piece`` begins with, and this name; (0, "") if
        it begins with none.
        """
        named = ((i, full_name(piece, name)) for i, name in enumerate(self._names[after:], after + 1))
        return next(((i, name) for i, name in named if name), (0, ""))
