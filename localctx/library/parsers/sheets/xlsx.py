"""Reads the sheets of an .xlsx file, row by row. Runs in the child process.

No library is used, for two reasons. python-calamine, which reads the other workbooks, leaves out formats, errors,
formulas without a value, hidden rows and comments, and fills memory up to the farthest cell. openpyxl leaves out merged
cells, hidden rows and comments when it reads row by row, and otherwise needs 50 times the file's size of memory.
"""

import datetime
import re
import zlib
from collections.abc import Callable, Iterator
from xml.etree import ElementTree
from zipfile import BadZipFile

from localctx.errors import DocumentError
from localctx.library.parsers.archive import Archive, local
from localctx.library.parsers.sheets.cells import (
    Comment,
    Merged,
    NumberedRow,
    SheetCell,
    SheetRow,
    cell,
    column_name,
    tell_ranges,
)
from localctx.library.parsers.sheets.number_format import shown_cell
from localctx.library.parsers.sheets.sheet_text import Sheet, write_sheet
from localctx.library.parsers.sheets.workbook import Workbook, elements, read_workbook, relations, text_of, unescaped
from localctx.library.parsers.text_builder import TextBuilder

_DAMAGE = (ElementTree.ParseError, BadZipFile, zlib.error, EOFError)
_REFERENCE = re.compile(r"([A-Z]{1,3})(\d{1,7})")
_MERGED = re.compile(rb"""<(?:\w+:)?mergeCell\s[^>]*?ref\s*=\s*["']([A-Z]{1,3}\d{1,7}):([A-Z]{1,3}\d{1,7})["']""")
_YES = ("1", "true")
_THREAD = "[Threaded comment]"  # begins a copy of a newer comment for older programs


def read(archive: Archive, progress: Callable[[int, int], None]) -> TextBuilder:
    """Returns the text of all visible sheets. Notes sheets, rows and columns that are hidden, and damaged parts.

    Raises DocumentError if no sheet can be read.
    """
    builder = TextBuilder()
    try:
        book = read_workbook(archive)
        for done, sheet in enumerate(book.sheets, 1):
            if sheet.hidden or sheet.is_chart:
                builder.note_unread(f"the {'hidden sheet' if sheet.hidden else 'chart'} {sheet.name}")
            else:
                _read_sheet(archive, book, sheet.name, sheet.part, builder)
            progress(done, len(book.sheets))
    except _DAMAGE as e:
        raise DocumentError(f"is a damaged spreadsheet ({e})", "open it in its own program and save it again") from e
    if not builder.length and builder.unread:
        told = f"has nothing that can be read: {builder.unread[0]} is left out"
        raise DocumentError(told, "show hidden sheets, or open it in its own program and save it again")
    return builder


def _read_sheet(archive: Archive, book: Workbook, name: str, part: str, builder: TextBuilder) -> None:
    """Append one sheet. If the sheet is damaged, append the rows before the damage."""
    if part not in archive.names:
        builder.note_unread(f"the sheet {name}, which is missing in the file")
        return
    reader, comments = _SheetReader(book, name), dict[int, list[Comment]]()
    try:
        comments = _comments(archive, part)
    except (*_DAMAGE, DocumentError):
        builder.note_unread(f"the comments of the sheet {name}, which are damaged")
    try:
        data = archive.read(part)
    except _DAMAGE:
        builder.note_unread(f"the sheet {name}, which is damaged")
    else:
        write_sheet(Sheet(name, reader.rows(data), _merged(data), comments), builder)
        reader.note_unread(builder)


class _SheetReader:
    """Reads the rows of one sheet, and remembers which rows, columns and formulas it leaves out."""

    def __init__(self, book: Workbook, name: str) -> None:
        self._book, self._name = book, name
        self._hidden_ranges = list[range]()
        self._hidden_rows, self._hidden_columns = list[int](), set[int]()
        self._formulas = list[str]()  # cells with a formula and no value
        self._missing = 0  # cells whose shared text is not in the file
        self.row, self._damaged = 0, False  # the last row read, and whether the rest is damaged

    def rows(self, data: bytes) -> Iterator[NumberedRow]:
        """Yields the visible rows with their numbers, without empty cells and hidden columns.

        Ends at the first damage.
        """
        try:
            for element in elements(data, ("col", "row")):
                if local(element.tag) == "col":
                    self._note_hidden_columns(element)
                elif (row := self._row(element)) and element.get("hidden") in _YES:
                    self._hidden_rows.append(self.row)
                elif row:
                    yield self.row, row
        except (ElementTree.ParseError, ValueError):
            self._damaged = True

    def note_unread(self, builder: TextBuilder) -> None:
        """Note damage, hidden rows and columns, formulas without a value, and missing texts."""
        if self._damaged:
            builder.note_unread(f"the sheet {self._name} after row {self.row}, because it is damaged")
        if rows := self._hidden_rows:
            builder.note_unread(f"the hidden row{'s' * (len(rows) > 1)} {tell_ranges(rows)} of {self._name}")
        if columns := [column_name(column) for column in sorted(self._hidden_columns)]:
            told = ", ".join(columns[:8]) + (f" and {len(columns) - 8} more" if len(columns) > 8 else "")
            builder.note_unread(f"the hidden column{'s' * (len(columns) > 1)} {told} of {self._name}")
        if self._missing:
            builder.note_unread(f"the texts of {self._missing:,} cells of {self._name}, which are not in the file")
        if count := len(self._formulas):
            several = f"{count:,} formulas without a stored value, first" if count > 1 else "a formula without a value,"
            builder.note_unread(f"{several} in {self._name}!{self._formulas[0]}")

    def _note_hidden_columns(self, element: ElementTree.Element) -> None:
        if element.get("hidden") in _YES:
            self._hidden_ranges.append(range(int(element.get("min", 1)) - 1, int(element.get("max", 0))))

    def _row(self, element: ElementTree.Element) -> SheetRow:
        self.row = int(element.get("r") or self.row + 1)
        row, column = SheetRow(), -1
        for child in element:
            if local(child.tag) != "c":
                continue
            place = _REFERENCE.fullmatch(child.get("r", ""))
            column = _column(place[1]) if place else column + 1
            if found := self._cell(child, column):
                if any(column in hidden for hidden in self._hidden_ranges):
                    self._hidden_columns.add(column)
                else:
                    row[column] = found
        return row

    def _cell(self, element: ElementTree.Element, column: int) -> SheetCell | None:
        parts = {local(part.tag): part for part in element}
        kind = element.get("t", "n")
        if "is" in parts:
            return cell(text_of(parts["is"]))
        value = (parts["v"].text or "") if "v" in parts else ""
        if "f" in parts and not value and kind != "str":
            self._formulas.append(f"{column_name(column)}{self.row}")
            return SheetCell(None, f"={' '.join((parts['f'].text or '...').split())}")
        return self._valued(kind, value, element.get("s", "0")) if value else None

    def _valued(self, kind: str, value: str, style: str) -> SheetCell | None:
        try:
            match kind:
                case "s":
                    return self._shared(value)
                case "b":
                    return cell(value in _YES)
                case "e":
                    return SheetCell(None, value)
                case "d":
                    return cell(datetime.datetime.fromisoformat(value))
                case "n":
                    formats, at = self._book.formats, int(style)
                    code = formats[at] if at < len(formats) else "General"
                    return shown_cell(float(value), code, self._book.from_1904)
        except (ValueError, IndexError):  # a damaged cell is read as the text that it has
            pass
        return cell(unescaped(value))

    def _shared(self, index: str) -> SheetCell | None:
        """Returns the cell of a shared text. If the text is missing, counts it as missing and returns None."""
        try:
            return cell(self._book.strings[int(index)])
        except (ValueError, IndexError):
            self._missing += 1
            return None


def _merged(data: bytes) -> list[Merged]:
    """Returns the merged ranges of a sheet, given its XML."""
    after = data[max(0, data.rfind(b"sheetData>")) :]
    places = ([_REFERENCE.fullmatch(corner.decode()) for corner in found] for found in _MERGED.findall(after))
    return [
        ((int(first[2]), _column(first[1])), (int(last[2]), _column(last[1])))
        for first, last in places
        if first and last
    ]


def _comments(archive: Archive, part: str) -> dict[int, list[Comment]]:
    """Returns the comments of a sheet by row number. Raises DocumentError, or an error of _DAMAGE."""
    found = dict[int, list[Comment]]()
    for kind, target in relations(archive, part):
        if kind in ("comments", "threadedComment") and target in archive.names:
            for reference, author, text in _comments_in(archive.xml(target)):
                place = _REFERENCE.fullmatch(reference)
                if place and text and not text.startswith(_THREAD):
                    comment = Comment(_column(place[1]), author, text.removeprefix(f"{author}:").strip())
                    found.setdefault(int(place[2]), []).append(comment)
    return found


def _comments_in(root: ElementTree.Element) -> Iterator[tuple[str, str, str]]:
    """Yields the cell, the author and the text of each comment in a part of comments."""
    authors = [e.text or "" for e in root.iter() if local(e.tag) == "author"]
    for element in root.iter():
        if local(element.tag) in ("comment", "threadedComment"):
            text = next((e for e in element if local(e.tag) == "text"), None)
            said = "" if text is None else (text.text or "").strip() or text_of(text)
            at = int(element.get("authorId", -1))
            yield element.get("ref", ""), authors[at] if 0 <= at < len(authors) else "", said.strip()


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number - 1
