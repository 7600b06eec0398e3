"""Reads the text of one PDF page in PDFium's order, with tables row by row. Runs in the child process."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice

import pypdfium2
import pypdfium2.raw as pdfium

from localctx.library.parsers.layout import Box
from localctx.library.parsers.table_layout import PageTable, find_tables

_MAX_WORDS = 5_000  # a page with as many words is not searched for tables
_MAX_OBJECTS = 20_000  # objects of a page that are searched for ruled lines
_MIN_RULES = 4  # ruled lines or frames of a page that may have a ruled table
_MIN_NUMBERS = 3  # numbers on a page that may have a table without ruled lines
_NUMBER = re.compile(r"(?<!\S)\W?\d[\d.,%]*(?!\S)")
_HYPHEN = re.compile(r"[\x02\xad\ufffe]\s*")  # PDFium's marks for a hyphen at a line's end


def text_with_tables(page: pypdfium2.PdfPage, with_tables: bool = True) -> str:
    """Returns the text layer of a page. With ``with_tables``, a table row becomes a line with tabs between its cells.

    Uses the tables only if no word of the page is lost, duplicated or divided by them. Raises PdfiumError.
    """
    with closing(page.get_textpage()) as text:
        plain = _lines(text.get_text_bounded())
        tables = _tables(page, text, plain) if with_tables and not page.get_rotation() else []
        arranged = _arranged(page, text, tables) if tables else plain
    return arranged if _count_words(arranged) == _count_words(plain) else plain


def _tables(page: pypdfium2.PdfPage, text: pypdfium2.PdfTextPage, plain: str) -> list[PageTable]:
    rules = list(_rules(page))
    if len(rules) < _MIN_RULES and len(_NUMBER.findall(plain)) < _MIN_NUMBERS:
        return []  # most pages: finding each letter's box takes ten times as long as reading the page
    words = list(islice(_words(text, page.get_height()), _MAX_WORDS))
    return find_tables(words, rules) if len(words) < _MAX_WORDS else []


def _arranged(page: pypdfium2.PdfPage, text: pypdfium2.PdfTextPage, tables: Sequence[PageTable]) -> str:
    """Returns the text of the page: its tables, and the text above, between and below them."""
    height, pieces, end_above = page.get_height(), list[str](), None
    for table in tables:
        pieces += [_lines(text.get_text_bounded(bottom=height - table.top, top=end_above)), "\n".join(table.rows)]
        end_above = height - table.bottom
    pieces.append(_lines(text.get_text_bounded(top=end_above)))
    return "\n\n".join(filter(None, map(str.strip, pieces)))


def _words(text: pypdfium2.PdfTextPage, height: float) -> Iterator[Box]:
    """Yields the words of a page with their boxes, in points from the upper left corner."""
    word: Box | None = None
    for letter, box in _letter_boxes(text, height):
        if word and (letter.isspace() or not _continues(word, box)):
            yield word
            word = None
        if not letter.isspace():
            edges = (min(word.top, box.top), box.right, max(word.bottom, box.bottom)) if word else box[1:4]
            word = Box(word.left if word else box.left, *edges, (word.text if word else "") + letter)
    if word:
        yield word


def _letter_boxes(text: pypdfium2.PdfTextPage, height: float) -> Iterator[tuple[str, Box]]:
    box = pdfium.FS_RECTF()
    for i in range(text.count_chars()):
        letter = chr(pdfium.FPDFText_GetUnicode(text, i))
        if pdfium.FPDFText_GetLooseCharBox(text, i, box) or letter.isspace():
            yield letter, Box(box.left, height - box.top, box.right, height - box.bottom, "")


def _continues(word: Box, letter: Box) -> bool:
    """Returns True if a letter stands next to a word on the same line."""
    beside = abs(letter.left - word.right) < word.bottom - word.top
    return beside and word.top <= (letter.top + letter.bottom) / 2 <= word.bottom


def _rules(page: pypdfium2.PdfPage) -> Iterator[Box]:
    """Yields the bounds of the lines and frames drawn on the page."""
    height = page.get_height()
    for thing in islice(page.get_objects(max_depth=1), _MAX_OBJECTS):
        if thing.type == pdfium.FPDF_PAGEOBJ_PATH:
            left, bottom, right, top = thing.get_bounds()
            yield Box(left, height - top, right, height - bottom, "")


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n")


def _count_words(text: str) -> Counter[str]:
    return Counter(_HYPHEN.sub("", text).split())
