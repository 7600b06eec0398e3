"""Reads a workbook row by row (.xlsx, .xlsb, .xls, .ods). Runs in the child process.

A row under a header becomes a line that names each value, ``Item: Rent; Amount: 1200``, so that it can be understood
alone. Values are the stored ones: 5 % is 0.05, and a formula is its last result. Hidden sheets are left out.
"""

import datetime
import io
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from python_calamine import CalamineError, CalamineSheet, CalamineWorkbook, PasswordError, SheetVisibleEnum

from localctx.errors import DocumentError
from localctx.library.parsers.text_builder import TextBuilder

_Row = list[tuple[int, Any]]  # (column, value) of a row's non-empty cells
_BLOCK = 1000  # rows of a block held in memory at a time
_SAMPLE = 20  # rows under a header that are examined


def read(data: bytes, progress: Callable[[int, int], None]) -> TextBuilder:
    """Returns the text of all visible sheets. A sheet's name is a heading; rows are marked with their numbers.

    Raises DocumentError for a workbook that is locked or damaged.
    """
    builder = TextBuilder()
    try:
        workbook = CalamineWorkbook.from_filelike(io.BytesIO(data))
        shown = [sheet.name for sheet in workbook.sheets_metadata if sheet.visible == SheetVisibleEnum.Visible]
        for done, name in enumerate(shown, 1):
            _sheet(name, workbook.get_sheet_by_name(name), builder)
            progress(done, len(shown))
    except PasswordError as e:
        raise DocumentError("is locked with a password", "save a copy without one") from e
    except CalamineError as e:
        raise DocumentError(f"is a damaged spreadsheet ({e})", "open it in its own program and save it anew") from e
    return builder


def is_read(member: str) -> bool:
    """Returns True if this member of a zipped workbook is needed: pictures, drawings and embeddings are not."""
    return not member.startswith(("xl/media/", "xl/drawings/", "xl/embeddings/", "Pictures/", "Thumbnails/"))


def _sheet(name: str, sheet: CalamineSheet, builder: TextBuilder) -> None:
    header_row, header = 0, dict[int, str]()
    begun = False
    for is_new, block in _blocks(sheet):
        if not begun:  # the sheet's name belongs to its first row
            builder.mark("row", str(block[0][0]))
            builder.begin_heading()
            builder.words(name)
            builder.end_heading()
        if is_new and (found := _header(block, bool(header))):
            header_row, header = found[0], {column: _shown(value) for column, value in found[1]}
        for number, row in block:
            if begun:
                builder.mark("row", str(number))
            begun = True
            _line(row, header if number > header_row else {}, builder)


def _blocks(sheet: CalamineSheet) -> Iterator[tuple[bool, list[tuple[int, _Row]]]]:
    """Yields (begins a block, rows with their numbers from 1). Empty rows separate blocks.

    A block of more than _BLOCK rows comes in several pieces.
    """
    block, is_new = list[tuple[int, _Row]](), True
    for number, cells in enumerate(sheet.iter_rows(), 1):
        row = [(column, value) for column, value in enumerate(cells) if str(value).strip()]
        if row:
            block.append((number, row))
        if block and (not row or len(block) == _BLOCK):
            yield is_new, block
            block = []
        is_new = not row or (is_new and bool(block))
    if block:
        yield is_new, block


def _header(block: Sequence[tuple[int, _Row]], has_header: bool) -> tuple[int, _Row] | None:
    """Returns the header row of a block and its number, or None. Rows of one cell are titles.

    Column names are text, or ascending years or days. Two columns have a header only if one of them has numbers or days
    throughout; otherwise they may be a form whose first row is an entry too. The same holds for a later block of a
    sheet, which otherwise has the columns of the block before.
    """
    at = next((i for i, (_, row) in enumerate(block) if len(row) > 1), len(block))
    below = [dict(row) for _, row in block[at + 1 : at + 1 + _SAMPLE]]
    if not below or not _are_names([value for _, value in block[at][1]]):
        return None
    sure = len(block[at][1]) > 2 and not has_header
    return block[at] if sure or any(_is_measured(column, below) for column, _ in block[at][1]) else None


def _are_names(values: Sequence[Any]) -> bool:
    others = [value for value in values if not isinstance(value, str)]
    in_order = len(others) > 1 and len({type(v) for v in others}) == 1 and all(a < b for a, b in pairwise(others))
    return not others or (in_order and not any(isinstance(v, float) and not 1900 <= v <= 2100 for v in others))


def _is_measured(column: int, rows: Sequence[dict[int, Any]]) -> bool:
    """Returns True if the column has at least two values, all of one type other than text."""
    types = [type(row[column]) for row in rows if column in row]
    return len(types) > 1 and len(set(types)) == 1 and types[0] is not str


def _line(row: _Row, header: dict[int, str], builder: TextBuilder) -> None:
    """Append a row as a paragraph, so that it is cited by itself. Without a header, tabs separate its values."""
    if header and len(row) > 1:
        named = (f"{header[column]}: {_shown(value)}" if column in header else _shown(value) for column, value in row)
        builder.words("; ".join(named))
    else:
        for _, value in row:
            builder.words(_shown(value))
            builder.cell()
    builder.line(2)


def _shown(value: Any) -> str:
    """Returns a value as text: numbers with up to 15 digits, days as 2026-05-01."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        value = value.date()
    return " ".join(str(value).split())
