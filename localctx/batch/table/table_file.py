"""Keeps the rows of a table, and writes them to a file: CSV, Excel, a web page or JSON lines, by the file's suffix."""

import csv
import io
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from localctx.batch.jobs import DocumentJob
from localctx.batch.outputs import ResultEntry, json_line
from localctx.batch.run_batch import Outcome
from localctx.batch.table.cells import AnswerCell, AnswerRow, cells_of, is_number
from localctx.batch.table.columns import TableColumn
from localctx.batch.table.table_page import table_page
from localctx.batch.table.workbook import workbook
from localctx.errors import UsageError
from localctx.settings import write_atomically

PAUSE = 5.0  # seconds between two writings of the file
BYTE_ORDER_MARK = "\ufeff"
"""The mark at the start of a CSV file by which spreadsheets know UTF-8."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet runs a text that begins so

Corrections = Callable[[], Mapping[str, Mapping[str, str]]]


class AnswerTable:
    """Collects the rows of a table as an output of a batch, one row for each document.

    ``corrections`` is a function that returns the values that persons set: for each document's id, by column.
    """

    def __init__(self, columns: Sequence[TableColumn], corrections: Corrections) -> None:
        self.columns, self._corrections = columns, corrections
        self._rows = dict[str, AnswerRow]()

    def has(self, entry: ResultEntry) -> bool:
        """Always returns False, because rows of earlier runs are made again from stored answers."""
        return False

    def write(self, entry: ResultEntry) -> None:
        """Add the row of a document."""
        self.put(AnswerRow(entry["path"], entry["name"], entry["document"], tuple(cells_of(self.columns, entry))))

    def fail(self, job: DocumentJob, why: str) -> None:
        """Add the row of a document that cannot be read, for the reason ``why``."""
        self.put(AnswerRow(job.path, Path(job.path).name, "", why=why))

    def note_failures(self, outcomes: Iterable[Outcome]) -> None:
        """Add a row for each document among ``outcomes`` that cannot be read."""
        for outcome in outcomes:
            if outcome.status == "failed":
                self.fail(outcome.job, outcome.why)

    def put(self, row: AnswerRow) -> None:
        """Add a row, in place of an earlier row with the same path."""
        self._rows[row.path] = row

    def remove(self, path: str) -> None:
        """Remove the row of the document at ``path``."""
        del self._rows[path]

    def document(self, path: str) -> str:
        """Returns the id of the document at ``path``, or "" if the document could not be read."""
        return self._rows[path].document

    def is_output(self, path: Path) -> bool:
        """Returns False, because rows in memory have no file."""
        return False

    def in_order(self, paths: Iterable[str]) -> list[AnswerRow]:
        """Returns the rows of those documents at ``paths`` that are done, in the order of ``paths``."""
        return self._corrected([path for path in paths if path in self._rows])

    def all(self) -> list[AnswerRow]:
        """Returns all rows in the order of their paths."""
        return self._corrected(sorted(self._rows))

    def _corrected(self, paths: Sequence[str]) -> list[AnswerRow]:
        corrections = self._corrections()
        return [_corrected(self._rows[path], corrections.get(self._rows[path].document, {})) for path in paths]


class TableFile(AnswerTable):
    """A table that is also written to ``file``: at the end and, if the file is new, every few seconds.

    The attribute ``file`` is its absolute path, in a folder without links. A table of an earlier run is replaced only
    by a complete one. Raises UsageError for a suffix that no format has, or a folder that does not exist.
    """

    def __init__(self, file: Path, columns: Sequence[TableColumn], corrections: Corrections) -> None:
        super().__init__(columns, corrections)
        self.file = file.absolute().parent.resolve() / file.name
        self._saved, self._is_new = time.monotonic(), not file.exists()
        if file.suffix.lower() not in FORMATS:
            raise UsageError(f"no table is written as {file.name}", f"name a file of {', '.join(FORMATS)}")
        if not file.absolute().parent.is_dir():
            raise UsageError(f"there is no folder {file.parent}", "make it, or choose another with -o")

    def write(self, entry: ResultEntry) -> None:
        """Add the row of a document. Raises OSError if the file cannot be written."""
        super().write(entry)
        if self._is_new and time.monotonic() - self._saved >= PAUSE:
            self.save(self.all(), complete=False)

    def save(self, rows: Sequence[AnswerRow], complete: bool) -> None:
        """Write these rows to the file. If they are not ``complete``, or if writing fails, a table of an earlier run
        stays as it was. Raises OSError.
        """
        if not (complete or self._is_new):
            return
        write_atomically(self.file, FORMATS[self.file.suffix.lower()](self.columns, rows))
        self._saved, self._is_new = time.monotonic(), self._is_new and not complete

    def is_output(self, path: Path) -> bool:
        """Returns True for the file itself, which is no document of the table."""
        return path in (self.file, self.file.resolve())


def csv_text(columns: Sequence[TableColumn], rows: Sequence[AnswerRow]) -> str:
    """Returns the table as CSV, with a line feed after each row. Cells are changed where a spreadsheet would take them
    for a formula.
    """
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow([safe_cell(name) for name in ("document", *(column.name for column in columns))])
    for row in rows:
        shown = {cell.column: cell.shown if is_number(cell.value) else safe_cell(cell.shown) for cell in row.cells}
        writer.writerow([safe_cell(row.name), *(shown.get(column.name, "") for column in columns)])
    return written.getvalue()


def _csv_file(columns: Sequence[TableColumn], rows: Sequence[AnswerRow]) -> str:
    return BYTE_ORDER_MARK + csv_text(columns, rows)


def _json_lines(columns: Sequence[TableColumn], rows: Sequence[AnswerRow]) -> str:
    return "".join(json_line(row.to_json()) for row in rows)


FORMATS: dict[str, Callable[[Sequence[TableColumn], Sequence[AnswerRow]], str | bytes]] = {
    ".csv": _csv_file,
    ".xlsx": workbook,
    ".html": table_page,
    ".jsonl": _json_lines,
}
"""The writers of the table by the suffix of their files."""


def safe_cell(text: str) -> str:
    """Returns ``text``, changed if a spreadsheet would take it for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _corrected(row: AnswerRow, values: Mapping[str, str]) -> AnswerRow:
    """Returns the row with the ``values`` that persons set, by column."""

    def corrected(cell: AnswerCell) -> AnswerCell:
        shown = values.get(cell.column)
        return cell if shown is None else AnswerCell(cell.column, "corrected", shown, shown)

    return replace(row, cells=tuple(map(corrected, row.cells)))
