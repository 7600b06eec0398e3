"""Reads the paragraphs and tables of one part of a Word document, such as its body, with all changes accepted."""

from collections.abc import Iterator

from localctx.library.parsers.office.blocks import Block, Cell, Paragraph, Table
from localctx.library.parsers.office.docx_notes import DocxNotes
from localctx.library.parsers.office.docx_numbering import DocxNumbering
from localctx.library.parsers.office.docx_paragraph import SKIPPED, DocxInline, make_paragraph
from localctx.library.parsers.office.docx_styles import DocxStyles
from localctx.library.parsers.office.drawing import Drawings
from localctx.library.parsers.office.package import Package
from localctx.library.parsers.office.xml_tree import Element, attribute, child, find, is_on, local, number

_WRAPPERS = {"sdt", "sdtContent", "customXml", "ins", "moveTo", "AlternateContent", "Choice", "smartTag"}
_PASSED_OVER = SKIPPED | {"Fallback"}  # repeats the content for older programs
_BLOCKS = {"p", "tbl", "altChunk", "oMath", "oMathPara", "sectPr"}


class DocxStory:
    """Reads the blocks of one part of a Word document, such as its body. ``hidden`` becomes True if hidden text was
    left out.
    """

    def __init__(
        self, package: Package, part: str, styles: DocxStyles, numbering: DocxNumbering, notes: DocxNotes
    ) -> None:
        self.styles, self.notes = styles, notes
        self.hidden = False
        self.drawings = Drawings(package, part, self._place)
        self._numbering = numbering
        self._heading = ""

    def blocks(self, parent: Element) -> Iterator[Block]:
        """Yields the paragraphs and tables below an element."""
        begun: DocxInline | None = None  # a paragraph whose end is deleted or hidden continues in the next one
        last: Paragraph | None = None
        for one in _unwrapped(parent, _BLOCKS):
            match local(one):
                case "p" | "oMath" | "oMathPara":
                    begun, last = self._paragraph(one, begun)
                    if last:
                        yield last
                case "tbl":
                    if begun:
                        yield make_paragraph(begun.text, "", False, begun.after)
                        begun = None
                    yield self._table(one)
                case "altChunk":
                    self.drawings.note("a file inserted as a whole")
        if begun:
            yield make_paragraph(begun.text, "", False, begun.after)

    def called(self, reference: Element) -> list[Block]:
        """Returns the blocks of the note or comment that ``reference`` refers to."""
        return self.notes.called(reference)

    def skip(self, element: Element) -> None:
        """Mark the notes that ``element`` refers to. ``element`` is left out of the text, so its notes are left out,
        too.
        """
        self.notes.skip(element)

    def _paragraph(self, element: Element, begun: DocxInline | None) -> tuple[DocxInline | None, Paragraph | None]:
        """Returns (None, the paragraph), or (the content so far, None) if the paragraph continues in the next one.

        ``begun`` is the content of a paragraph before it that continues in it, or None.
        """
        properties = child(element, "pPr")
        style = attribute(child(properties, "pStyle"), "val")
        inline = begun or DocxInline(self)
        joins, mark_is_hidden = _is_joined(properties), self._mark_is_hidden(properties)
        number = "" if joins or mark_is_hidden else self._numbering.next_number(style, properties)
        inline.read(element, style)
        self.hidden = self.hidden or inline.hidden
        if joins or (mark_is_hidden and not inline.text.strip()):
            return inline, None
        number = self._numbering.next_number(style, properties) if mark_is_hidden else number
        if child(properties, "sectPr") is not None:
            self.notes.begin_section()
        is_heading = self.styles.is_heading(style, properties)
        made = make_paragraph(inline.text, number, is_heading, inline.after)
        self._heading = made.line if is_heading and made.line else self._heading
        return None, made

    def _mark_is_hidden(self, properties: Element | None) -> bool:
        return is_on(child(properties, "rPr", "vanish"))

    def _table(self, table: Element) -> Table:
        return Table([self._row(row) for row in _unwrapped(table, {"tr"}) if self._is_shown(row)])

    def _is_shown(self, row: Element) -> bool:
        """Returns True if a row is neither deleted nor hidden."""
        properties = child(row, "trPr")
        hidden = is_on(child(properties, "hidden"))
        deleted = child(properties, "del") is not None
        self.hidden = self.hidden or hidden
        if hidden or deleted:
            self.skip(row)
        return not (hidden or deleted)

    def _row(self, row: Element) -> list[Cell]:
        before = number(attribute(child(row, "trPr", "gridBefore"), "val"))
        cells = [Cell([], before)] if before > 0 else []
        for cell in _unwrapped(row, {"tc"}):
            properties = child(cell, "tcPr")
            if child(properties, "cellDel") is not None:
                self.skip(cell)
                continue
            columns = number(attribute(child(properties, "gridSpan"), "val"), 1)
            covered = _covered(properties)
            cells.append(Cell([] if covered else list(self.blocks(cell)), columns, covered))
        return cells

    def _place(self) -> str:
        return f" under “{self._heading[:60]}”" if self._heading else ""


def _covered(properties: Element | None) -> str:
    for name, covered in (("vMerge", "above"), ("hMerge", "left")):
        merge = child(properties, name)
        if merge is not None and attribute(merge, "val", "continue") == "continue":
            return covered
    return ""


def _is_joined(properties: Element | None) -> bool:
    """Returns True if the end of a paragraph is deleted or moved away, so that the next paragraph continues it."""
    marks = child(properties, "rPr")
    return child(marks, "del") is not None or child(marks, "moveFrom") is not None


def _unwrapped(parent: Element, names: set[str]) -> Iterator[Element]:
    """Yields the elements with these names, also inside of content controls and other wrappers."""
    for one in parent:
        name = local(one)
        if name in names:
            yield one
        elif name in _WRAPPERS or (name not in _PASSED_OVER and find(one, "p") is not None):
            yield from _unwrapped(one, names)
