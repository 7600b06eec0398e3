"""Writes the rows of a sheet as text, each marked with its number. A row under a header names its values.

A cell merged over several rows is repeated in each of them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from localctx.document_parts import HEADER
from localctx.library.parsers.sheets.cells import Comment, Merged, NumberedRow, SheetRow, column_name
from localctx.library.parsers.sheets.header import Names, columns_across, find_header
from localctx.library.parsers.text_builder import TextBuilder

_BLOCK = 1000  # rows of a block held in memory at a time


@dataclass(frozen=True)
class Sheet:
    """A sheet of a workbook: its name or "", its rows in order, its merged cells, and its comments by row number.

    ``may_be_form`` is True if a block of two columns may be an entry form, which has no header.
    """

    name: str
    rows: Iterable[NumberedRow]
    merged: Sequence[Merged] = ()
    comments: Mapping[int, Sequence[Comment]] = field(default_factory=dict)
    may_be_form: bool = True


def write_sheet(sheet: Sheet, builder: TextBuilder) -> None:
    """Append the rows of a sheet, each with its comments. The sheet's name becomes a heading before the first row.

    Rows up to the header are marked as HEADER, too. A sheet without rows and comments adds nothing.
    """
    across, waiting = columns_across(sheet.merged), dict(sheet.comments)
    begun, header_row, names, is_header = False, 0, Names(), False
    for is_new, block in _blocks(_with_merged(sheet.rows, sheet.merged)):
        if is_new and (found := find_header(block, bool(names), across, 3 if sheet.may_be_form else 2)):
            header_row, names = found
        for number, row in block:
            is_header, was_header = number <= header_row, is_header
            if is_header or was_header:
                builder.mark(HEADER, str(number) if is_header else "")
            _begin_row(number, "" if begun else sheet.name, builder)
            begun = True
            _line(row, names if number > header_row else {}, builder)
            _comments(number, waiting.pop(number, ()), builder)
    for number, comments in sorted(waiting.items()):  # on empty rows
        _begin_row(number, "" if begun else sheet.name, builder)
        begun = True
        _comments(number, comments, builder)


def _begin_row(number: int, heading: str, builder: TextBuilder) -> None:
    builder.mark("row", str(number))
    if heading:
        builder.begin_heading()
        builder.words(heading)
        builder.end_heading()


def _with_merged(rows: Iterable[NumberedRow], merged: Sequence[Merged]) -> Iterator[NumberedRow]:
    """Yields the rows. The value of a cell merged over several rows is repeated in each of them."""
    waiting = sorted((m for m in merged if m[1][0] > m[0][0]), reverse=True)
    if not waiting:
        yield from rows
        return
    open_ranges = list[tuple[int, SheetRow]]()  # last row, and the cell to repeat by its column
    for number, row in rows:
        open_ranges = [one for one in open_ranges if one[0] >= number]
        for _, repeated in open_ranges:
            row = repeated | row
        while waiting and waiting[-1][0][0] <= number:
            (first, column), (last, _) = waiting.pop()
            if first == number and column in row:
                open_ranges.append((last, {column: row[column]}))
        yield number, dict(sorted(row.items())) if open_ranges else row


def _blocks(rows: Iterable[NumberedRow]) -> Iterator[tuple[bool, list[NumberedRow]]]:
    """Yields (whether a new block begins, rows). A block is a run of rows with consecutive numbers.

    A block of more than _BLOCK rows comes in pieces.
    """
    block, is_new, last = list[NumberedRow](), True, 0
    for number, row in rows:
        is_separate = number != last + 1
        if block and (is_separate or len(block) == _BLOCK):
            yield is_new, block
            block, is_new = [], is_separate
        elif is_separate:
            is_new = True
        block.append((number, row))
        last = number
    if block:
        yield is_new, block


def _line(row: SheetRow, names: Names, builder: TextBuilder) -> None:
    """Append a row as a paragraph, so that the row can be cited by itself.

    Without a header, tabs separate the values.
    """
    if names and len(row) > 1:
        named = (f"{names[column]}: {cell.shown}" if column in names else cell.shown for column, cell in row.items())
        builder.words("; ".join(named))
    else:
        for cell in row.values():
            builder.words(cell.shown)
            builder.cell()
    builder.line(2)


def _comments(number: int, comments: Sequence[Comment], builder: TextBuilder) -> None:
    for comment in comments:
        by = f" by {comment.author}" if comment.author else ""
        builder.words(f"Comment on {column_name(comment.column)}{number}{by}: {comment.text}")
        builder.line(2)
