"""Reads a workbook sheet by sheet and row by row. Runs in the child process.

.xlsx is read by ``xlsx``; .xlsb, .xls and .ods are read by python-calamine. It is the fastest of the well-kept readers
and reads all three. It reports values, merged cells (.xls) and hidden sheets, but no formats, errors, comments or
hidden rows.
"""

import io
from collections.abc import Callable, Iterator

from python_calamine import CalamineError, CalamineSheet, CalamineWorkbook, PasswordError, SheetVisibleEnum

from localctx.errors import DocumentError
from localctx.library.parsers.archive import Archive
from localctx.library.parsers.sheets import xlsx
from localctx.library.parsers.sheets.cells import Merged, NumberedRow, cell
from localctx.library.parsers.sheets.sheet_text import Sheet, write_sheet
from localctx.library.parsers.text_builder import TextBuilder

_SheetsDone = Callable[[int, int], None]


def read_archive(archive: Archive, progress: _SheetsDone) -> TextBuilder:
    """Returns the text of a zipped workbook (.xlsx, .xlsb or .ods).

    Raises DocumentError for a workbook that is locked or damaged. Calls ``progress(sheets done, all sheets)``.
    """
    if any(name.endswith(".bin") and name.startswith("xl/workbook") for name in archive.names):
        return read(archive.repacked(_is_read), progress)
    if "content.xml" in archive.names:
        return read(archive.repacked(_is_read), progress)
    return xlsx.read(archive, progress)


def read(data: bytes, progress: _SheetsDone) -> TextBuilder:
    """Returns the text of all visible sheets of a workbook that python-calamine reads.

    A sheet's name is a heading; rows are marked with their numbers. Notes hidden sheets. Raises DocumentError for a
    workbook that is locked or damaged.
    """
    builder = TextBuilder()
    try:
        workbook = CalamineWorkbook.from_filelike(io.BytesIO(data))
        sheets = workbook.sheets_metadata
        for done, about in enumerate(sheets, 1):
            if about.visible == SheetVisibleEnum.Visible:
                sheet = workbook.get_sheet_by_name(about.name)
                write_sheet(Sheet(about.name, _rows(sheet), _merged(sheet)), builder)
            else:
                builder.note_unread(f"the hidden sheet {about.name}")
            progress(done, len(sheets))
    except PasswordError as e:
        raise DocumentError("is locked with a password", "save a copy without one") from e
    except CalamineError as e:
        raise DocumentError(f"is a damaged spreadsheet ({e})", "open it in its own program and save it again") from e
    return builder


def _is_read(member: str) -> bool:
    """Returns True if a member of a zipped workbook is needed. Pictures, drawings and embedded files are not."""
    return not member.startswith(("xl/media/", "xl/drawings/", "xl/embeddings/", "Pictures/", "Thumbnails/"))


def _rows(sheet: CalamineSheet) -> Iterator[NumberedRow]:
    for number, values in enumerate(sheet.iter_rows(), 1):
        cells = ((column, cell(value)) for column, value in enumerate(values))
        if row := {column: found for column, found in cells if found}:
            yield number, row


def _merged(sheet: CalamineSheet) -> list[Merged]:
    ranges = sheet.merged_cell_ranges or []
    return [((top + 1, left), (bottom + 1, right)) for (top, left), (bottom, right) in ranges]
