"""Compares two versions of a table: rows that were added, removed or renamed, and cells with other values."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from localctx.batch.table.cells import AnswerCell, AnswerRow, is_number
from localctx.document_parts import tell_part

RowNews = Literal["added", "changed", "failed", "renamed", "removed"]
NOTHING = "nothing"


@dataclass(frozen=True)
class RowChange:
    """A change of the row of the document at ``path``; ``news`` says which kind.

    ``added``: the row is new, with these ``cells``. ``changed``: the cell of a column has another value than
    ``before``; each changed cell is a change of its own. ``failed``: the document cannot be read, for the reason
    ``why``. ``renamed``: ``why`` is the earlier path of the document. ``removed``: the file is gone.
    """

    path: str
    news: RowNews
    document: str = ""
    why: str = ""
    before: AnswerCell | None = None
    cells: tuple[AnswerCell, ...] = ()

    def line(self, folder: str) -> str:
        """Returns the change as one line of text, which names the file by its path relative to ``folder`` ("": by its
        whole path).
        """
        named = f"{_relative(self.path, folder)}: "
        match self.news:
            case "added":
                found = [f"{cell.column} {_told(cell)}" for cell in self.cells if cell.shown]
                return named + ", ".join(["added", *(found or ["nothing found"])])
            case "changed":
                assert self.before
                (cell,) = self.cells
                return f"{named}{cell.column} {_told(self.before)} -> {_told(cell)}{_place(cell)}"
            case "failed":
                return f"{named}cannot be read: {self.why}"
            case "renamed":
                return f"{named}renamed from {_relative(self.why, folder)}"
        return f"{named}removed"

    def to_json(self) -> dict[str, Any]:
        """Returns the change as JSON."""
        return asdict(self)


def row_changes(before: Mapping[str, AnswerRow], after: Sequence[AnswerRow]) -> Iterator[RowChange]:
    """Yields the changes that lead from the rows ``before``, by their paths, to the rows ``after``."""
    gone = dict(before)
    for row in after:
        gone.pop(row.path, None)
    for row in after:
        if old := before.get(row.path):
            yield from _changes(old, row)
        elif moved := next((path for path, old in gone.items() if row.document and old.document == row.document), None):
            yield RowChange(row.path, "renamed", row.document, moved)
            yield from _changes(gone.pop(moved), row)
        elif row.why:
            yield RowChange(row.path, "failed", why=row.why)
        else:
            yield RowChange(row.path, "added", row.document, cells=row.cells)
    yield from (RowChange(path, "removed", row.document) for path, row in gone.items())


def _changes(old: AnswerRow, new: AnswerRow) -> Iterator[RowChange]:
    """Yields the changes between two versions of a row: a failure, or its cells with other values."""
    if new.why:
        if new.why != old.why:
            yield RowChange(new.path, "failed", why=new.why)
        return
    cells = {cell.column: cell for cell in old.cells}
    for cell in new.cells:
        before = cells.get(cell.column, AnswerCell(cell.column, "missing"))
        if (before.shown, before.state) != (cell.shown, cell.state):
            yield RowChange(new.path, "changed", new.document, before=before, cells=(cell,))


def _relative(path: str, folder: str) -> str:
    return os.path.relpath(path, folder) if folder else path


def _told(cell: AnswerCell) -> str:
    """Returns the value of a cell for people: numbers with commas, and why a cell is empty."""
    if not cell.shown:
        return f"{NOTHING} (unsure: {cell.printed})" if cell.state == "unsure" else NOTHING
    if is_number(cell.value):
        number = f"{cell.value:,.2f}".removesuffix(".00") if cell.unit else f"{cell.value:,}"
        return f"{number} {cell.unit}".rstrip()
    return cell.shown


def _place(cell: AnswerCell) -> str:
    if cell.state == "corrected":
        return " (corrected)"
    return f" ({tell_part(cell.page)})" if cell.page else ""
