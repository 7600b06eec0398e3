"""TextBuilder: parsers append text, line breaks, and marks where a page or a heading begins. Standard library only."""

import re
from collections.abc import Sequence

from localctx.library.parsers.word_boxes import WordBox, pack

Mark = tuple[int, str, str]
"""The start of a page or heading: position in characters, kind (``heading``, ``page``, ``slide``, ``row`` or
``message``), label. It ends where the next mark of its kind begins; one without a label only ends the one before."""

OPTICAL = "pdf, read optically"
"""The format of a PDF whose whole text comes from OCR."""

_MAX_LABEL = 200
_UNWANTED = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\ufffe\uffff\ud800-\udfff]")
"""Control characters, soft hyphens (PDFium writes U+FFFE for one), and lone surrogates."""


class TextBuilder:
    """Builds a text. ``words`` collapses white space; ``line`` starts a new line or paragraph."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._marks: list[Mark] = []
        self._heading: tuple[int, int] | None = None  # the open heading's position in characters and in pieces
        self._gap = ""  # white space to write before the next word: a space, or a tab between cells
        self._newlines = 2  # at the end of the text so far
        self.length = 0
        self.boxes: list[tuple[int, float, float, bytes]] = []

    def words(self, text: str) -> None:
        """Appends running text; runs of white space become one space."""
        body = text.strip(" \t\n\r\f")
        if text[:1].isspace() and not self._newlines:
            self._gap = self._gap or " "
        if body:
            self.verbatim(self._gap + re.sub(r"[ \t\n\r\f]+", " ", body))
            self._gap = " " if text[-1:].isspace() else ""

    def verbatim(self, text: str) -> str:
        """Appends text with its white space, newlines as \\n, without control characters; returns what was appended."""
        text = _UNWANTED.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
        if text:
            self._pieces.append(text)
            self.length += len(text)
            self._newlines = min(2, len(text) - len(text.rstrip("\n")))
            self._gap = ""
        return text

    def line(self, newlines: int = 1) -> None:
        """Ends the line; with 2 newlines, also leaves a blank line. Does nothing at the beginning of the text."""
        self._gap = ""
        if self.length and self._newlines < newlines:
            self.verbatim("\n" * (newlines - self._newlines))
            self._newlines = newlines

    def cell(self) -> None:
        """Ends a cell of a table's row: a tab comes before the next word."""
        self._gap = "" if self._newlines else "\t"

    def mark(self, kind: str, label: str, start: int | None = None) -> None:
        """Marks the start of a page or heading, at ``start`` or at the end of the text so far."""
        label = " ".join(_UNWANTED.sub("", label).split())[:_MAX_LABEL]
        self._marks.append((self.length if start is None else start, kind, label))

    def begin_heading(self) -> None:
        """Starts a heading as a paragraph of its own; it ends at ``end_heading``."""
        self.line(2)
        self._heading = self.length, len(self._pieces)

    def end_heading(self) -> None:
        """Ends the heading, and marks it unless it is empty."""
        if self._heading and (label := "".join(self._pieces[self._heading[1] :]).strip()):
            self.mark("heading", label, self._heading[0])
            self.line(2)
        self._heading = None

    def add_boxes(self, page: int, width: float, height: float, words: Sequence[WordBox]) -> None:
        """Keeps the boxes of a page's words in ``boxes``: the page's number from 0, its size in points, and ``words``
        as ``word_boxes.pack`` packs them; their starts count from the page's start.
        """
        self.boxes.append((page, width, height, pack(words)))

    def done(self) -> tuple[str, list[Mark]]:
        """Returns the text and its marks in order."""
        text = "".join(self._pieces).rstrip()
        marks = ((min(start, len(text)), kind, label) for start, kind, label in self._marks)
        return text, sorted(marks, key=lambda mark: mark[0])
