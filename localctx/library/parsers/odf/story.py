"""Reads the blocks of an OpenDocument file: paragraphs, headings, lists and tables."""

from collections.abc import Iterator

from localctx.library.parsers.odf.drawing import OdfDrawings
from localctx.library.parsers.odf.inline import DRAWN, OdfInline
from localctx.library.parsers.odf.lists import OdfLists
from localctx.library.parsers.odf.styles import OdfStyles
from localctx.library.parsers.office.blocks import Block, Cell, Paragraph, Table, comment_label, labelled
from localctx.library.parsers.office.package import Package
from localctx.library.parsers.office.xml_tree import (
    Element,
    attribute,
    child,
    children,
    descendants,
    find,
    local,
    number,
)

_SKIPPED = {
    *("tracked-changes", "forms", "sequence-decls", "user-field-decls", "variable-decls", "soft-page-break", "title"),
    *("desc", "event-listeners", "notes", "table-of-content-source", "number", "dde-connection-decls"),
}
_INDEX = "-source"  # the end of the name of an element with the template of an index
_MOST_REPEATED = 100  # the largest number of equal cells or rows that the file writes once


class OdfStoryReader:
    """Reads the blocks (paragraphs, headings, tables) of an OpenDocument file. ``place``, such as `` on slide 3``, is
    added to notes about unread parts.
    """

    def __init__(self, package: Package, styles: OdfStyles, root: Element) -> None:
        self.styles, self.place = styles, ""
        self.drawings = OdfDrawings(package, self)
        self._package, self._lists = package, OdfLists(styles)
        listed = (control for forms in descendants(root, "forms") for control in forms.iter())
        self._controls = {attribute(control, "id"): control for control in listed}

    def blocks(self, parent: Element) -> Iterator[Block]:
        """Yields the paragraphs, headings and tables below an element."""
        for one in parent:
            name = local(one)
            if name in _SKIPPED or name.endswith(_INDEX):
                continue
            if name in ("p", "h"):
                yield from self._paragraph(one)
            elif name in ("list", "numbered-paragraph"):
                yield from self._list(one)
            elif name == "table":
                yield self.table(one)
            elif name in DRAWN or name in ("note", "annotation"):
                yield from self.anchored(one)
            elif name == "section" and attribute(one, "display") == "none":
                self.note_hidden()
            else:
                yield from self.blocks(one)

    def anchored(self, element: Element) -> list[Block]:
        """Returns the paragraphs and tables of a note, comment or drawing that is anchored in a paragraph."""
        match local(element):
            case "note":
                kind, mark = attribute(element, "note-class", "footnote"), child(element, "note-citation")
                number_told = "" if mark is None else " " + "".join(mark.itertext()).strip()
                body = child(element, "note-body")
                return labelled(f"{kind.title()}{number_told}".strip(), () if body is None else self.blocks(body))
            case "annotation":
                author = child(element, "creator")
                by = "" if author is None else "".join(author.itertext())
                return labelled(comment_label(by), self._comment(element))
        return list(self.drawings.blocks(element))

    def table(self, table: Element) -> Table:
        """Returns the table in the element ``table``. Cells that are merged with the cell above are found by the number
        of rows that the upper cell spans.
        """
        spanning: dict[int, int] = {}  # for how many further rows the cell of a column is merged
        rows = list[list[Cell]]()
        for row in _rows(table):
            cells = self._row(row, spanning)
            times = min(number(attribute(row, "number-rows-repeated"), 1), _MOST_REPEATED)
            rows += [cells] * (times if any(cell.blocks for cell in cells) else 1)
        return Table(rows)

    def control(self, element: Element) -> str:
        """Returns the value of a form control such as a text field or check box; "" if it is unknown."""
        found = self._controls.get(attribute(element, "control"))
        return "" if found is None else _value(found)

    def note_hidden(self) -> None:
        """Note that hidden text is left out."""
        self._package.builder.note_unread("hidden text" + self.place)

    def _paragraph(self, element: Element, number_before: str = "") -> Iterator[Block]:
        inline, style = OdfInline(self, element), attribute(element, "style-name")
        is_heading = local(element) == "h"
        if is_heading and not number_before and local(element.getparent()) not in ("list-item", "list-header"):
            number_before = self._lists.heading_number(element)
        yield Paragraph(inline.text, number_before, is_heading or self.styles.is_title(style), inline.after)

    def _comment(self, element: Element) -> Iterator[Block]:
        for one in children(element, "p", "list"):
            yield from self._paragraph(one) if local(one) == "p" else self._list(one)

    def _list(self, element: Element) -> Iterator[Block]:
        first = find(element, "p")
        self._lists.enter(element, attribute(first, "style-name"))
        items = [element] if local(element) == "numbered-paragraph" else children(element, "list-item", "list-header")
        for item in items:
            yield from self._item(item)
        self._lists.leave()

    def _item(self, item: Element) -> Iterator[Block]:
        """Yields the blocks of a list item. The number of the item is printed before the first paragraph.

        An item that begins with a list has no number of its own.
        """
        counts = local(item) != "list-header"
        for one in item:
            if local(one) in ("p", "h"):
                own = self._lists.item_number(item) if counts else ""
                counts = False
                yield from self._paragraph(one, own)
            elif local(one) == "list":
                yield from self._list(one)
            elif local(one) not in _SKIPPED:
                yield from self.blocks(one)

    def _row(self, row: Element, spanning: dict[int, int]) -> list[Cell]:
        cells: list[Cell] = []
        column = 0
        for one in children(row, "table-cell", "covered-table-cell"):
            is_covered = local(one) == "covered-table-cell"
            cell = Cell([] if is_covered else list(self.blocks(one)))
            for _ in range(min(number(attribute(one, "number-columns-repeated"), 1), _MOST_REPEATED)):
                cells.append(_covered(column, spanning) if is_covered else cell)
                if not is_covered:
                    spanning[column] = number(attribute(one, "number-rows-spanned"), 1) - 1
                column += 1
        return cells


def _covered(column: int, spanning: dict[int, int]) -> Cell:
    """Returns a cell that is merged with the cell above it, if that spans more rows, or with the one to its left."""
    rows = spanning.get(column, 0)
    spanning[column] = max(rows - 1, 0)
    return Cell([], 1, "above" if rows else "left")


def _rows(parent: Element) -> Iterator[Element]:
    for one in parent:
        name = local(one)
        if name == "table-row":
            yield one
        elif name in ("table-header-rows", "table-rows", "table-row-group"):
            yield from _rows(one)


def _value(control: Element) -> str:
    match local(control):
        case "checkbox" | "radio":
            label = attribute(control, "label")
            state = attribute(control, "current-state") or attribute(control, "state")
            state = "checked" if attribute(control, "current-selected") == "true" else state
            return f"{'[x]' if state == 'checked' else '[ ]'} {label}".strip()
        case "listbox":
            chosen = (one for one in children(control, "option") if _is_chosen(one))
            return ", ".join(attribute(one, "label") for one in chosen)
        case "button" | "hidden" | "fixed-text":
            return attribute(control, "label")
    return attribute(control, "current-value") or attribute(control, "value")


def _is_chosen(option: Element) -> bool:
    return "true" in (attribute(option, "current-selected"), attribute(option, "selected"))
