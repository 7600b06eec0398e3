"""Defines the paragraphs and tables that the office parsers produce, and writes them into a TextBuilder.

These rules hold for all formats. Notes, comments and text boxes follow their paragraph. A row is one line. A cell
merged over several rows is repeated in each of them. Line breaks in cells and headings become spaces.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from localctx.library.parsers.text_builder import TextBuilder


@dataclass
class Paragraph:
    """A paragraph of a document: its text, with \\n for line breaks, and ``after``, the blocks that follow it in the
    text, such as its footnotes.

    ``number`` is its automatic number as printed, with a space after it, or "".
    """

    text: str
    number: str = ""
    is_heading: bool = False
    after: list["Block"] = field(default_factory=list)

    @property
    def line(self) -> str:
        """The number and the text of the paragraph in one line."""
        return " ".join((self.number + self.text).split())


@dataclass
class Cell:
    """A table cell, which is ``columns`` columns wide.

    ``covered`` is ``above`` or ``left`` if the cell is merged with the cell above it or to its left, else "".
    """

    blocks: list["Block"]
    columns: int = 1
    covered: str = ""


@dataclass
class Table:
    """A table, given by its rows. A row may have fewer cells than other rows."""

    rows: list[list[Cell]]


Block = Paragraph | Table


def labelled(label: str, blocks: Iterable[Block]) -> list[Block]:
    """Returns those ``blocks`` that have text, with ``label`` and a colon before the first one; [] if none has text."""
    kept = [block for block in blocks if isinstance(block, Table) or block.line or block.after]
    if kept and isinstance(first := kept[0], Paragraph):
        kept[0] = Paragraph(f"{label}: {first.number}{first.text.lstrip()}", "", False, first.after)
        return kept
    return [Paragraph(f"{label}:"), *kept] if kept else []


def comment_label(author: str) -> str:
    """Returns the label of a comment; ``author`` may be empty."""
    return f"Comment by {' '.join(author.split())}" if author.strip() else "Comment"


def plain_text(blocks: Iterable[Block]) -> str:
    """Returns the text of blocks in one line, without the notes and boxes that follow their paragraphs."""
    parts = []
    for block in blocks:
        if isinstance(block, Paragraph):
            parts.append(block.line)
        else:
            parts += [plain_text(cell.blocks) for row in block.rows for cell in row if not cell.covered]
    return " ".join(filter(None, parts))


def write_blocks(builder: TextBuilder, blocks: Iterable[Block], newlines: int = 2) -> None:
    """Append blocks to ``builder``. ``newlines`` is the number of line breaks between paragraphs: 1 inside a shape of a
    slide, else 2.
    """
    for block in blocks:
        if isinstance(block, Table):
            _table(builder, block)
        else:
            _paragraph(builder, block, newlines)


def printed_once(parts: Iterable[tuple[str, Iterable[Block]]]) -> list[Block]:
    """Returns the blocks of headers and footers that have a letter. A text that occurs in several headers or footers is
    returned once.

    ``parts`` are pairs of ``Header`` or ``Footer`` and its blocks.
    """
    told, found = set[tuple[str, str]](), list[Block]()
    for kind, blocks in parts:
        kept = list(blocks)
        text = plain_text(kept)
        if (kind, text) not in told and any(map(str.isalpha, text)):
            told.add((kind, text))
            found += labelled(kind, kept)
    return found


def write_at_end(builder: TextBuilder, blocks: list[Block]) -> None:
    """Append blocks at the end of the text, without a heading above them."""
    if blocks:
        builder.line(2)
        builder.mark("heading", "")
        write_blocks(builder, blocks)


def _paragraph(builder: TextBuilder, paragraph: Paragraph, newlines: int) -> None:
    if paragraph.is_heading and paragraph.line:
        builder.begin_heading()
        builder.words(paragraph.line)
        builder.end_heading()
    elif text := paragraph.text.strip():
        builder.line(newlines)
        builder.verbatim(paragraph.number + text)
        builder.line(newlines)
    write_blocks(builder, paragraph.after)


def _table(builder: TextBuilder, table: Table) -> None:
    builder.line(2)
    after: list[Block] = []
    above: dict[int, str] = {}  # by column: the text of the last cell
    is_frame = len(table.rows) == 1 and len(table.rows[0]) == 1  # a box around paragraphs
    for row in table.rows:
        if is_frame or any(isinstance(block, Table) for cell in row for block in cell.blocks):
            write_blocks(builder, (block for cell in row for block in cell.blocks))
            builder.line(2)
        else:
            _row(builder, _texts(row, above))
            after += [b for c in row for p in c.blocks if isinstance(p, Paragraph) for b in p.after]
    builder.line(2)
    write_blocks(builder, after)


def _texts(row: list[Cell], above: dict[int, str]) -> list[str]:
    """Returns a text for each column of a row.

    ``above`` maps a column to the text of its last cell; it is updated to this row.
    """
    texts: list[str] = []
    for cell in row:
        text = above.get(len(texts), "") if cell.covered == "above" else plain_text(cell.blocks)
        above[len(texts)] = text
        texts += [text] + [""] * (min(cell.columns, _MOST_COLUMNS) - 1)
    return texts


_MOST_COLUMNS = 100  # that one cell spans: a larger number is forged


def _row(builder: TextBuilder, texts: list[str]) -> None:
    while texts and not texts[-1]:
        texts.pop()
    if texts:
        builder.line()
        for i, text in enumerate(texts):
            builder.verbatim("\t" * (i > 0) + text)
        builder.line()
