"""Text as it is put together: pieces, line breaks, and marks where a page or a heading begins. No library is needed."""

import re

Mark = tuple[int, str, str]
"""Where a part begins, in characters; its kind (page, heading); its label. It reaches to the next of its kind."""

OPTICAL = "pdf, read optically"
"""The format of a PDF all of whose text was read optically."""

_MAX_LABEL = 200
_UNWANTED = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\ufffe\uffff\ud800-\udfff]")
"""Control characters, soft hyphens (PDFium writes U+FFFE for one), and halves of characters."""


class TextBuilder:
    """A text in the making. Runs of white space become one space; lines and blocks are kept apart by ``line``."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._marks: list[Mark] = []
        self._heading: tuple[int, int] | None = None  # its first character and piece
        self._gap = ""  # owed before the next word: a space, or a tab between cells
        self._newlines = 2  # at the end of what is there
        self.length = 0

    def words(self, text: str) -> None:
        """Append running text."""
        body = text.strip(" \t\n\r\f")
        if text[:1].isspace() and not self._newlines:
            self._gap = self._gap or " "
        if body:
            self.verbatim(self._gap + re.sub(r"[ \t\n\r\f]+", " ", body))
            self._gap = " " if text[-1:].isspace() else ""

    def verbatim(self, text: str) -> str:
        """Append text with its white space, newlines as \\n and nothing unwanted; what was appended."""
        text = _UNWANTED.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
        if text:
            self._pieces.append(text)
            self.length += len(text)
            self._newlines = min(2, len(text) - len(text.rstrip("\n")))
            self._gap = ""
        return text

    def line(self, newlines: int = 1) -> None:
        """What follows begins a line; with 2, after a blank one. Nothing at the beginning of the text."""
        self._gap = ""
        if self.length and self._newlines < newlines:
            self.verbatim("\n" * (newlines - self._newlines))
            self._newlines = newlines

    def cell(self) -> None:
        """What follows is the next cell of a table's row."""
        self._gap = "" if self._newlines else "\t"

    def mark(self, kind: str, label: str, start: int | None = None) -> None:
        """A part begins at ``start``, or here."""
        label = " ".join(_UNWANTED.sub("", label).split())[:_MAX_LABEL]
        self._marks.append((self.length if start is None else start, kind, label))

    def begin_heading(self) -> None:
        """What follows, up to ``end_heading``, is a heading; it stands apart from what is before and after."""
        self.line(2)
        self._heading = self.length, len(self._pieces)

    def end_heading(self) -> None:
        """The heading is complete. Without a word it is none."""
        if self._heading and (label := "".join(self._pieces[self._heading[1] :]).strip()):
            self.mark("heading", label, self._heading[0])
            self.line(2)
        self._heading = None

    def done(self) -> tuple[str, list[Mark]]:
        """The text and its marks in order."""
        text = "".join(self._pieces).rstrip()
        marks = ((min(start, len(text)), kind, label) for start, kind, label in self._marks)
        return text, sorted(marks, key=lambda mark: mark[0])
