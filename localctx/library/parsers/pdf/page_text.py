"""Reads the text and word boxes of one PDF page in reading order, with tables row by row and filled form fields."""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice

import pypdfium2
import pypdfium2.raw as pdfium

from localctx.library.parsers.pdf.layout import Box, rows_of
from localctx.library.parsers.pdf.letters import DisplayMap, Edges, Letter, letters_of, map_of
from localctx.library.parsers.pdf.note_pieces import note_lines, with_notes
from localctx.library.parsers.pdf.notes import notes_of
from localctx.library.parsers.pdf.pieces import LINE_HYPHEN, LinePiece, pieces_of, shown, words_of
from localctx.library.parsers.pdf.reading_order import TextLine, columns, in_order
from localctx.library.parsers.pdf.table_layout import PageTable, find_tables
from localctx.library.parsers.word_boxes import WORD, WordBox, clamp

UNREADABLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ufffd]")
"""Matches letters whose font gives no Unicode for them."""

_MAX_WORDS = 5_000  # a page with this many words or more is not searched for tables
_MAX_OBJECTS = 20_000  # objects of a page that are searched for ruled lines
_MIN_RULES = 4  # ruled lines or frames of a page that may have a ruled table
_MIN_NUMBERS = 3  # numbers on a page that may have a table without ruled lines
_NUMBER = re.compile(r"\W?\d[\d.,%]*")


@dataclass(frozen=True)
class PageText:
    """The text and word boxes of a page, with its width and height in points.

    From position ``aside`` on, the text is not running text: comments, and text in another direction. ``letters`` is
    the number of letters in the text layer, ``unreadable`` the number of letters whose font gives no Unicode.
    ``unread`` describes annotations that could not be read.
    """

    text: str = ""
    boxes: list[WordBox] = field(default_factory=list)
    aside: int = 0
    letters: int = 0
    unreadable: int = 0
    unread: Sequence[str] = ()
    width: float = 0.0
    height: float = 0.0

    @property
    def is_usable(self) -> bool:
        """True if the text layer has letters, and at most 1 in 20 of them has no Unicode."""
        return self.letters > self.unreadable and self.unreadable <= self.letters // 20


def read_page(pdf: pypdfium2.PdfDocument, page: pypdfium2.PdfPage, with_tables: bool = True) -> PageText:
    """Returns the text layer of a page with its notes. If ``with_tables``, a row of a table becomes one line, with tabs
    between the cells.

    Tables are used only if the text keeps exactly the same words. Raises PdfiumError.
    """
    to_points = map_of(page)
    with closing(page.get_textpage()) as text_page:
        letters = [*letters_of(page, text_page, to_points)]
    notes, unread = notes_of(pdf, page, to_points)
    by_angle = defaultdict[int, list[LinePiece]](list)
    for piece in pieces_of(letters):
        by_angle[_angle(piece)].append(piece)
    main = max(by_angle, key=lambda angle: sum(len(piece.letters) for piece in by_angle[angle]), default=0)
    body = with_notes(by_angle.pop(main, []), [note for note in notes if note.kind != "comment"], main, to_points)
    text = _body(page, body, main, to_points, with_tables)
    aside = _Text()
    for pieces in by_angle.values():
        aside.add_rows(in_order(pieces))
    for note in notes:
        if note.kind == "comment":
            aside.add_rows([[line] for line in note_lines(note, 0, to_points, "Comment: ")])
    unreadable = sum(bool(UNREADABLE.match(letter.text)) and not letter.hyphen for letter in letters)
    count = sum(letter.text not in (" ", "\n") for letter in letters)
    start = len(text)
    text.add_text(aside)
    boxes = list(text.boxes(to_points))
    return PageText(str(text), boxes, start, count, unreadable, unread, to_points.width, to_points.height)


class _Text:
    """Builds a text. For each character of the text, it knows the letter on the page, or None."""

    def __init__(self) -> None:
        self._pieces, self._letters = list[str](), list[Letter | None]()

    def __len__(self) -> int:
        return len(self._letters)

    def __str__(self) -> str:
        return "".join(self._pieces)

    def add(self, text: str, letter: Letter | None = None) -> None:
        self._pieces.append(text)
        self._letters += [letter] * len(text)

    def add_piece(self, piece: LinePiece) -> None:
        for letter in piece.letters:
            self.add(shown(letter) if letter else " ", letter)

    def add_rows(self, rows: Sequence[TextLine]) -> None:
        """Append ``rows``, the lines of text of a page, each as a line of its own."""
        for row in rows:
            self.add("\n" * bool(self))
            for i, piece in enumerate(row):
                self.add(" " if i and piece.spaced else "")
                self.add_piece(piece)

    def add_text(self, other: "_Text", gap: str = "\n\n") -> None:
        """Append another text after ``gap``, by default as a new paragraph."""
        if len(other):
            self.add(gap if self else "")
            self._pieces += other._pieces
            self._letters += other._letters

    def boxes(self, to_points: DisplayMap) -> Iterator[WordBox]:
        """Yields the boxes of the text's words. A word on several lines has a box for each."""
        for match in WORD.finditer(str(self)):
            run: list[tuple[int, Letter]] = []
            for i in range(*match.span()):
                letter = self._letters[i]
                if letter and run and not letter.ink.is_beside(run[-1][1].ink):
                    yield _box(run, to_points)
                    run = []
                run += [(i, letter)] if letter else []
            if run:
                yield _box(run, to_points)


def _box(run: Sequence[tuple[int, Letter]], to_points: DisplayMap) -> WordBox:
    """Returns the box around a run of letters, which is as high as a line of the font, so that the boxes of a line
    align.
    """
    edges = run[0][1].line.union(run[-1][1].line)
    for _, letter in run:
        edges = edges.union(letter.ink)
    width, height = to_points.width, to_points.height
    across, down = (edges.left / width, edges.right / width), (edges.top / height, edges.bottom / height)
    return WordBox(run[0][0], run[-1][0] + 1, clamp(across[0]), clamp(down[0]), clamp(across[1]), clamp(down[1]))


def _angle(piece: LinePiece) -> int:
    return next(letter.angle for letter in piece.letters if letter)


def _body(
    page: pypdfium2.PdfPage, pieces: list[LinePiece], angle: int, to_points: DisplayMap, with_tables: bool
) -> _Text:
    """Returns the text of the pieces in the page's main direction, in which tables are read row by row if they stand in
    one column or outside of columns.
    """
    if not with_tables:
        return _rows_text(pieces)
    body = _Text()
    for column in columns(pieces):
        body.add_text(_with_tables(column, _tables(page, column, angle, to_points)), "\n")
    return body


def _with_tables(pieces: list[LinePiece], tables: Sequence[PageTable]) -> _Text:
    """Returns the text of tables, and the text between them."""
    arranged, end_above = _Text(), float("-inf")
    for top, bottom, rows in [*tables, PageTable(float("inf"), float("inf"), [])]:
        arranged.add_text(_rows_text([piece for piece in pieces if end_above < piece.middle < top]))
        words = [word for piece in pieces if top <= piece.middle <= bottom for word in words_of(piece)]
        if _count_words(rows) != _count_words(word.text for word in words):
            return _rows_text(pieces)
        arranged.add_text(_table_text(rows, words))
        end_above = bottom
    return arranged


def _rows_text(pieces: Sequence[LinePiece]) -> _Text:
    text = _Text()
    text.add_rows(in_order(pieces))
    return text


def _tables(page: pypdfium2.PdfPage, pieces: Sequence[LinePiece], angle: int, to_points: DisplayMap) -> list[PageTable]:
    words = [_as_box(word, word.text) for piece in pieces for word in words_of(piece)]
    if angle % 90 or len(words) >= _MAX_WORDS:
        return []
    rules = [_as_box(to_points.turned(rule, angle)) for rule in _rules(page, to_points)]
    if len(rules) < _MIN_RULES and sum(bool(_NUMBER.fullmatch(word.text)) for word in words) < _MIN_NUMBERS:
        return []
    return find_tables(words, rules)


def _as_box(edges: Edges | LinePiece, text: str = "") -> Box:
    return Box(edges.left, edges.top, edges.right, edges.bottom, text)


def _rules(page: pypdfium2.PdfPage, to_points: DisplayMap) -> Iterator[Edges]:
    """Yields the bounds of the lines and frames drawn on the page."""
    for thing in islice(page.get_objects(max_depth=1), _MAX_OBJECTS):
        if thing.type == pdfium.FPDF_PAGEOBJ_PATH:
            yield to_points.edges(*thing.get_bounds())


def _table_text(rows: Sequence[str], words: Sequence[LinePiece]) -> _Text:
    """Returns the text of a table's rows, with the letters of its words."""
    by_text, text = defaultdict[str, deque[LinePiece]](deque), _Text()
    by_box = {_as_box(word, word.text): word for word in words}
    for box in (box for row in rows_of(list(by_box)) for box in row):
        by_text[box.text].append(by_box[box])
    for token in re.findall(r"\s+|\S+", "\n".join(rows).strip()):
        parts = [token] if by_text[token] else re.split(f"(?<={LINE_HYPHEN})", token)
        for part in parts:
            if by_text[part]:
                text.add_piece(by_text[part].popleft())
            else:
                text.add(part)
    return text


def _count_words(texts: Iterable[str]) -> Counter[str]:
    return Counter(word for text in texts for word in text.replace(LINE_HYPHEN, " ").split())
