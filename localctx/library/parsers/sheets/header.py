"""Finds the header of a table: the row with the names of its columns, and rows with names of groups above it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from localctx.library.parsers.sheets.cells import Merged, NumberedRow, SheetRow

Names = dict[int, str]
"""Column names by column. In ``2023 / Price``, ``2023`` is the name of a group of columns."""

Across = Mapping[int, Sequence[tuple[int, int]]]
"""The ranges merged over several columns: (first column, last column) by the first row of the range."""

_SAMPLE = 20  # rows under a header that are examined
_MAX_GROUP_ROWS = 3


def columns_across(merged: Sequence[Merged]) -> Across:
    """Returns the merged cells that are several columns wide, by their first row."""
    across = dict[int, list[tuple[int, int]]]()
    for (row, first), (_, last) in merged:
        if last > first:
            across.setdefault(row, []).append((first, last))
    return across


def find_header(
    block: Sequence[NumberedRow], has_header: bool, across: Across, enough: int = 3
) -> tuple[int, Names] | None:
    """Find the header of a block of a sheet. Returns the number of the last header row and the names of the columns, or
    None if the block has no header.

    A block is a run of rows without an empty row; rows of one cell at its start are titles. Names of columns are text,
    or ascending years or days. A first row with a value that occurs again in its column is not a header. A block of
    fewer than ``enough`` columns may be a form, whose first row is an entry like the others. Such a block has a header
    only if a column has numbers or days throughout. The same holds if ``has_header``: then an earlier block of the
    sheet has a header, and this block may continue its columns.
    """
    first = next((i for i in range(len(block)) if len(block[i][1]) > 1 or _names_groups(block, i, across)), len(block))
    at = first
    while at - first < _MAX_GROUP_ROWS and _names_groups(block, at, across):
        at += 1
    below = [row for _, row in block[at + 1 : at + 1 + _SAMPLE]]
    if not below or not _are_names(block[at][1]) or _recurs(block[at][1], below):
        return None
    sure = len(block[at][1]) >= enough and not has_header
    if not sure and not any(_is_measured(column, below) for column in block[at][1]):
        return None
    return block[at][0], _joined([_by_column(block[i], block[at][1], across) for i in range(first, at)], block[at][1])


def _names_groups(block: Sequence[NumberedRow], at: int, across: Across) -> bool:
    """Returns True if row ``at`` names groups of the columns that the row below it names.

    The name of a group is in a cell that is merged over some of these columns, or it stands above the first of several
    columns that have the same name and numbers.
    """
    if at + 2 >= len(block):
        return False
    (number, row), (_, names) = block[at], block[at + 1]
    if len(names) < 3 or not _are_names(names) or not all(isinstance(c.value, str | float | int) for c in row.values()):
        return False
    wide = [span for span in across.get(number, ()) if span[0] in row]
    if any(1 < sum(first <= column <= last for column in names) < len(names) for first, last in wide):
        return True
    count = Counter(cell.shown for cell in names.values())
    below = [row for _, row in block[at + 2 : at + 2 + _SAMPLE]]
    repeated = [column for column, cell in names.items() if count[cell.shown] > 1]
    return 1 < len(row) < len(names) and set(row) <= set(names) and any(_is_measured(c, below) for c in repeated)


def _by_column(numbered: NumberedRow, names: SheetRow, across: Across) -> Names:
    """Returns for each column the name of its group in this row.

    That is the name merged over the column, else the last one to the left.
    """
    number, row = numbered
    if not (spans := across.get(number)):
        return {column: row[max(begun)].shown for column in names if (begun := [c for c in row if c <= column])}
    over = {c: row[first].shown for first, last in spans if first in row for c in names if first <= c <= last}
    return {column: cell.shown for column, cell in row.items()} | over


def _joined(groups: Sequence[Names], names: SheetRow) -> Names:
    """Returns the column names, each with the names of its groups before it."""
    levels = {c: [*(group.get(c, "") for group in groups), column_label(cell.shown)] for c, cell in names.items()}
    return {column: " / ".join(dict.fromkeys(filter(None, parts))) for column, parts in levels.items()}


def column_label(name: str) -> str:
    """Returns the name of a column as it is written in rows. Because rows separate values by ``; ``, these characters
    become ``, `` in a name.
    """
    return name.replace("; ", ", ")


def _are_names(row: SheetRow) -> bool:
    others: list[Any] = [cell.value for cell in row.values() if not isinstance(cell.value, str)]
    in_order = len(others) > 1 and len({type(v) for v in others}) == 1 and all(a < b for a, b in pairwise(others))
    return not others or (in_order and not any(isinstance(v, float) and not 1900 <= v <= 2100 for v in others))


def _recurs(row: SheetRow, below: Sequence[SheetRow]) -> bool:
    """Returns True if a column of ``row`` has the same value again below, in a row that is not equal to ``row``."""
    shown = {column: cell.shown for column, cell in row.items()}
    others = [other for other in below if {column: cell.shown for column, cell in other.items()} != shown]
    return any(column in other and other[column].shown == name for other in others for column, name in shown.items())


def _is_measured(column: int, rows: Sequence[SheetRow]) -> bool:
    """Returns True if the column has at least two values, all of the same type, which is not text."""
    types = [type(row[column].value) for row in rows if column in row]
    return len(types) > 1 and len(set(types)) == 1 and types[0] is not str
