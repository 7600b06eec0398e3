"""Keeps a table in a file up to date while the files of its folders change, and reports each change."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from localctx.batch.jobs import DocumentJob
from localctx.batch.run_batch import Outcome
from localctx.batch.table.cells import AnswerCell, AnswerRow
from localctx.batch.table.row_changes import RowChange, row_changes
from localctx.batch.table.table_file import TableFile
from localctx.batch.table.table_folders import TableFolders
from localctx.file_names import stored_path
from localctx.library.folders.folder_scan import SETTLE
from localctx.store.store import Store, store_errors


class StandingTable:
    """A table of the documents below ``folders`` that stays up to date. ``rows`` keeps the rows of the table and writes
    its file.

    The rows whose changes were reported are recorded in ``store``, so that a later process reports only later changes.
    All methods raise StoreError.
    """

    def __init__(self, rows: TableFile, folders: Sequence[str], store: Store, settle: float = SETTLE) -> None:
        self._rows, self._store, self._name = rows, store, stored_path(rows.file)
        self._folders = TableFolders(folders, self._is_output, settle)
        self._reported = self._recorded()
        self._saved: list[AnswerRow] | None = None
        self._tables = set[str]()  # the files of all standing tables
        for row in self._reported.values():  # stays until its file is read, or is gone
            self._rows.put(_with_columns(row, [column.name for column in rows.columns]))
            self._folders.assume(row.path)

    @property
    def folders(self) -> TableFolders:
        """The folders of the documents."""
        return self._folders

    @property
    def is_complete(self) -> bool:
        """True once the whole table was written."""
        return self._saved is not None

    def scan(self, now: float) -> list[DocumentJob]:
        """Returns the documents that must be read at the time ``now``: new and changed files that no program is writing
        any more.
        """
        with store_errors(self._store.home):
            self._tables = self._store.results.tables()
        return self._folders.scan(now)

    def note(self, outcomes: Iterable[Outcome]) -> None:
        """Record ``outcomes``: their documents were read, or could not be read."""
        for outcome in outcomes:
            path = outcome.job.path
            if outcome.status == "failed":
                if not self._folders.is_unchanged(path):  # it changed or went while it was read
                    continue
                self._rows.fail(outcome.job, outcome.why)
            self._folders.note_read(path)

    def update(self) -> Iterator[RowChange]:
        """Write the table if it has changed, and yield the changes. They count as reported when the caller has taken
        all of them.

        Nothing is written before the files that the first scan found had time to settle. Raises OSError if the file
        cannot be written; the next call then tries again.
        """
        if self._folders.is_beginning:
            return
        for path in {*self._folders.gone, *self._moved()}:
            self._folders.forget(path)
            self._rows.remove(path)
        rows = self._rows.in_order(self._folders.in_order())
        if rows == self._saved:
            return
        self._rows.save(rows, complete=True)
        yield from row_changes(self._reported, rows)
        self._record(rows)
        self._saved = rows

    def _moved(self) -> list[str]:
        """Returns the paths of missing documents that moved: a new file has the same text."""
        there = [path for path in self._folders.in_order() if path not in self._folders.missing]
        new = {self._rows.document(path) for path in there if path not in self._reported} - {""}
        return [path for path in self._folders.missing if self._rows.document(path) in new]

    def _record(self, rows: Sequence[AnswerRow]) -> None:
        now = {row.path: row for row in rows}
        changed = [row.to_json() for row in rows if self._reported.get(row.path) != row]
        with store_errors(self._store.home):
            self._store.results.note_rows(self._name, changed, self._reported.keys() - now.keys())
        self._reported = now

    def _is_output(self, path: Path) -> bool:
        """Returns True for this table and other standing tables. Two tables that read each other as documents would
        change each other.
        """
        return self._rows.is_output(path) or stored_path(path) in self._tables

    def _recorded(self) -> dict[str, AnswerRow]:
        """Returns the rows that were recorded, by path. Returns no rows if the record is damaged, or of another
        version.
        """
        with store_errors(self._store.home), suppress(ValueError, TypeError, KeyError):
            recorded = self._store.results.written_rows(self._name)
            return {path: AnswerRow.from_json(row) for path, row in recorded.items()}
        return {}


def common_folder(folders: Sequence[str]) -> str:
    """Returns the deepest folder that contains all of ``folders``, or the only one of them. Returns "" if there is
    none.
    """
    try:
        return os.path.commonpath([os.path.abspath(folder) for folder in folders])  # noqa: PTH100
    except ValueError:  # on several drives
        return ""


def _with_columns(row: AnswerRow, columns: Sequence[str]) -> AnswerRow:
    """Returns a row with exactly these columns. Missing cells are added as empty cells, but a row without cells gets
    none.
    """
    cells = {cell.column: cell for cell in row.cells}
    return replace(row, cells=tuple(cells.get(name, AnswerCell(name, "missing")) for name in columns) if cells else ())
