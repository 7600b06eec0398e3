"""Collects the paragraphs and tables of one RTF text: the main text, a note, a header, a comment or a text box."""

from localctx.library.parsers.office.blocks import Block, Cell, Paragraph, Table
from localctx.library.parsers.rtf.tokens import joined_surrogates

_MERGES = {"clvmrg": "above", "clmrg": "left"}


class RtfStory:
    """Collects the blocks of one text, such as the main text or a footnote. ``kind`` is the RTF destination of the
    text, such as ``footnote``. ``is_hidden`` is True if the reference to this text is in hidden or deleted text.

    The reader sets ``number``, ``is_heading``, ``level`` and ``after`` for the open paragraph.
    """

    def __init__(self, kind: str, is_hidden: bool = False) -> None:
        self.kind, self.is_hidden = kind, is_hidden
        self.number = ""  # the number of the paragraph, as printed
        self.is_heading = False
        self.level = 0  # nesting level of the table that the paragraph is in; 0 is outside of tables
        self.after: list[Block] = []
        self._blocks: list[Block] = []
        self._pieces: list[str] = []
        self._levels: list[_TableRows] = []  # the open tables: a table in a cell is on the next level

    def add(self, text: str) -> None:
        """Append text to the open paragraph."""
        self._pieces.append(text)

    def end_paragraph(self) -> None:
        """End the open paragraph, which is in a table cell or outside of tables."""
        text = joined_surrogates("".join(self._pieces)).strip(" \t\n")
        is_heading = self.is_heading and not self.level
        made = Paragraph(text, self.number if text else "", is_heading, self.after)
        self._pieces, self.number, self.after, self.is_heading = [], "", [], False
        self._open(self.level)
        self._close(self.level)
        if text or made.after:
            (self._levels[-1].cell if self._levels else self._blocks).append(made)

    def end_cell(self, level: int) -> None:
        """End a cell of the table on nesting ``level`` (1 is the outermost table)."""
        self._open(level)
        self.end_paragraph()
        self._levels[-1].end_cell()

    def end_row(self, level: int, merges: list[str]) -> None:
        """End a row of the table on nesting ``level`` (1 is the outermost table).

        ``merges`` has, for each cell, the result of ``merge_of``.
        """
        self._open(level)
        self._close(level)
        self._levels[-1].end_row(merges)

    def finish(self) -> list[Block]:
        """End the last paragraph and all tables, and return the blocks."""
        self.end_paragraph()
        self._close(0)
        return self._blocks

    def _open(self, level: int) -> None:
        self.level = level
        while len(self._levels) < level:
            self._levels.append(_TableRows())

    def _close(self, level: int) -> None:
        """Put each table nested deeper than ``level`` into the cell that contains it."""
        while len(self._levels) > level:
            rows = self._levels.pop().finish()
            if rows:
                (self._levels[-1].cell if self._levels else self._blocks).append(Table(rows))


class _TableRows:
    """Collects the rows of a table while it is read."""

    def __init__(self) -> None:
        self.cell: list[Block] = []
        self._row: list[list[Block]] = []
        self._rows: list[list[Cell]] = []

    def end_cell(self) -> None:
        self._row.append(self.cell)
        self.cell = []

    def end_row(self, merges: list[str]) -> None:
        covered = [*merges, *[""] * len(self._row)]
        cells = [Cell([] if covered[i] else blocks, 1, covered[i]) for i, blocks in enumerate(self._row)]
        self._rows += [cells] if cells else []
        self._row = []

    def finish(self) -> list[list[Cell]]:
        if self.cell:
            self.end_cell()
        if self._row:
            self.end_row([])
        return self._rows


def merge_of(words: set[str]) -> str:
    """Returns how a cell is merged, according to its control words ``words``: ``above``, ``left``, or "" if the cell is
    not merged.
    """
    return next((merge for word, merge in _MERGES.items() if word in words), "")
