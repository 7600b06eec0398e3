"""Collects a document's text while it is parsed, with marks of its pages and headings. Standard library only."""

import re
from collections.abc import Sequence

from localctx.library.parsers.word_boxes import WordBox, pack

Mark = tuple[int, str, str]
"""The start of a part of the text: (position in characters, kind, label), such as (0, "page", "12").

The kind is ``heading``, ``page``, ``slide``, ``row``, ``header``, ``message``, ``cell`` or ``subtitle``. A part ends
where the next mark of its kind begins. A mark with the label "" only ends the part before it.
"""

OPTICAL = "pdf, read optically"
"""The format of a PDF whose whole text comes from OCR."""

MAX_LABEL = 200
_BREAKS = re.compile("\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_WITHOUT_SPACES = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u1aaf\ua980-\ua9ff\uaa60-\uaadf"
_ZERO_WIDTH = f"[\u2060\ufeff]|(?<![{_WITHOUT_SPACES}])\u200b|\u200b(?![{_WITHOUT_SPACES}])"
_UNWANTED = re.compile(f"[\0-\x08\x0e-\x1b\x7f\x81\x8d\x8f\x90\x9d\xad\ufffe\uffff\ud800-\udfff]|{_ZERO_WIDTH}")
_ODD = re.compile("[\0-\x08\v-\x1f\x7f-\x9f\xad\u200b\u2028\u2029\u2060\ufeff\ufffe\uffff\ud800-\udfff]")
_SAME_PLACE = {0x1F: " ", **{byte: bytes([byte]).decode("cp1252", "ignore") or None for byte in range(0x80, 0xA0)}}


def clean(text: str) -> str:
    """Returns ``text`` with \\n for each kind of line break, and without invisible characters.

    Control characters, soft hyphens (PDFium writes U+FFFE for one), lone surrogates and zero-width spaces are removed.
    Zero-width spaces stay between letters of scripts without spaces, where they separate words. Joiners stay, because
    Persian and emoji need them. Separators of tables become line breaks and spaces. C1 control characters become
    letters of cp1252, which are nearly always meant.
    """
    if not _ODD.search(text):
        return text
    return _UNWANTED.sub("", _BREAKS.sub("\n", text)).translate(_SAME_PLACE)


class TextBuilder:
    """Builds the text of a document piece by piece.

    ``length`` is the number of characters so far. ``boxes`` and ``unread`` have the items that ``add_boxes`` and
    ``note_unread`` added.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._marks: list[Mark] = []
        self._heading: tuple[int, int] | None = None  # the start of the open heading, in characters and in pieces
        self._gap = ""  # white space to write before the next word: a space, or a tab between cells
        self._newlines = 2  # newlines at the end of the text so far
        self.length = 0
        self.boxes: list[tuple[int, float, float, bytes]] = []
        self.unread: list[str] = []

    def words(self, text: str) -> None:
        """Append running text. Each run of white space becomes one space."""
        text = clean(text)
        body = text.strip(" \t\n")
        if text[:1].isspace() and not self._newlines:
            self._gap = self._gap or " "
        if body:
            self.verbatim(self._gap + re.sub(r"[ \t\n]+", " ", body))
            self._gap = " " if text[-1:].isspace() else ""

    def verbatim(self, text: str) -> str:
        """Append text with its white space, cleaned by ``clean``. Returns the text that was appended."""
        text = clean(text)
        if text:
            self._pieces.append(text)
            self.length += len(text)
            self._newlines = min(2, len(text) - len(text.rstrip("\n")))
            self._gap = ""
        return text

    def line(self, newlines: int = 1) -> None:
        """End the line; with 2 newlines, also leave a blank line. Does nothing at the beginning of the text."""
        self._gap = ""
        if self.length and self._newlines < newlines:
            self.verbatim("\n" * (newlines - self._newlines))
            self._newlines = newlines

    def cell(self) -> None:
        """End a table cell: a tab comes before the next word."""
        self._gap = "" if self._newlines else "\t"

    def mark(self, kind: str, label: str, start: int | None = None) -> None:
        """Mark the start of a part of this ``kind``, such as a page or heading, at position ``start`` (None: at the end
        of the text so far). ``label`` is the name of the part.

        A part ends at the next mark of its ``kind``. A mark with the label "" only ends the part before.
        """
        label = " ".join(clean(label).split())[:MAX_LABEL]
        self._marks.append((self.length if start is None else start, kind, label))

    def begin_heading(self) -> None:
        """Begin a heading, as a paragraph of its own; ``end_heading`` ends it."""
        self.line(2)
        self._heading = self.length, len(self._pieces)

    def end_heading(self) -> None:
        """End the heading, and mark it unless it is empty."""
        if self._heading and (label := "".join(self._pieces[self._heading[1] :]).strip()):
            self.mark("heading", label, self._heading[0])
            self.line(2)
        self._heading = None

    def add_boxes(self, page: int, width: float, height: float, words: Sequence[WordBox]) -> None:
        """Add to ``boxes`` the word boxes of page ``page`` (from 0), with the page's width and height in points.

        The positions in ``words`` count from the start of the page's text.
        """
        self.boxes.append((page, width, height, pack(words)))

    def note_unread(self, line: str) -> None:
        """Note in one line a part of the document that could not be read, such as ``the chart on slide 3``."""
        if line not in self.unread:
            self.unread.append(line)

    def done(self) -> tuple[str, list[Mark]]:
        """Returns the text and its marks in order."""
        text = "".join(self._pieces).rstrip()
        marks = ((min(start, len(text)), kind, label) for start, kind, label in self._marks)
        return text, sorted(marks, key=lambda mark: mark[0])
