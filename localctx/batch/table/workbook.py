"""Writes a table as an Excel workbook: a sheet of values, and a sheet of their sources. Uses xlsxwriter (BSD-2)."""

import io
from collections.abc import Sequence
from datetime import date
from typing import Any

from localctx.batch.table.cells import AnswerCell, AnswerRow, is_number
from localctx.batch.table.columns import TableColumn
from localctx.document_parts import tell_part

_SOURCES = ("document", "column", "state", "value", "as printed", "place", "quotation", "confidence", "path")
_WIDTH = 22  # characters of a column
_MAX_TEXT = 32_000  # characters of a cell; Excel takes 32,767


def workbook(columns: Sequence[TableColumn], rows: Sequence[AnswerRow]) -> bytes:
    """Returns the table as an .xlsx file. Each value has its quotation as a note; texts are never formulas or links."""
    import xlsxwriter

    content = io.BytesIO()
    plain = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
    with xlsxwriter.Workbook(content, plain) as book:
        _Sheets(book).fill(columns, rows)
    return content.getvalue()


class _Sheets:
    """The two sheets of a workbook."""

    def __init__(self, book: Any) -> None:
        self._book, self._values, self._sources = book, book.add_worksheet("Table"), book.add_worksheet("Sources")
        self._head = book.add_format({"bold": True, "bottom": 1})
        self._unsure = book.add_format({"bg_color": "#fff4cc"})

    def fill(self, columns: Sequence[TableColumn], rows: Sequence[AnswerRow]) -> None:
        """Write the heads, the values and the sources."""
        for sheet, heads in ((self._values, ["document", *(c.name for c in columns)]), (self._sources, _SOURCES)):
            sheet.write_row(0, 0, heads, self._head)
            sheet.set_column(0, len(heads) - 1, _WIDTH)
            sheet.freeze_panes(1, 1)
        self._values.autofilter(0, 0, len(rows), len(columns))
        line = 1
        for at, row in enumerate(rows, 1):
            self._values.write_string(at, 0, row.name)
            if row.why:
                self._values.write_comment(at, 0, row.why)
            for place, cell in enumerate(row.cells, 1):
                self._write(at, place, cell)
                self._sources.write_row(line, 0, _source(row, cell))
                line += 1

    def _write(self, at: int, place: int, cell: AnswerCell) -> None:
        if cell.state in ("unsure", "missing"):
            if cell.state == "unsure":
                self._values.write_blank(at, place, None, self._unsure)
                self._values.write_comment(at, place, f"Unsure: {cell.printed}"[:_MAX_TEXT])
            return
        if is_number(cell.value):
            self._values.write_number(at, place, cell.value, self._number(cell))
        elif day := _day(cell):
            self._values.write_datetime(at, place, day, self._book.add_format({"num_format": "yyyy-mm-dd"}))
        else:
            self._values.write_string(at, place, cell.shown[:_MAX_TEXT])
        if cell.quote:
            where = f" ({tell_part(cell.page)})" if cell.page else ""
            self._values.write_comment(at, place, f"“{cell.quote}”{where}"[:_MAX_TEXT])

    def _number(self, cell: AnswerCell) -> Any:
        return self._book.add_format({"num_format": f'#,##0.00 "{cell.unit}"'}) if cell.unit else None


def _day(cell: AnswerCell) -> date | None:
    try:
        return date.fromisoformat(cell.value)
    except (TypeError, ValueError):
        return None


def _source(row: AnswerRow, cell: AnswerCell) -> list[Any]:
    place, confidence = tell_part(cell.page) if cell.page else "", "" if cell.confidence is None else cell.confidence
    texts = [row.name, cell.column, cell.state, cell.shown, cell.printed, place, cell.quote]
    return [*(text[:_MAX_TEXT] for text in texts), confidence, row.path]
