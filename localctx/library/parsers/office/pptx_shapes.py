"""Reads the shapes of a slide: text boxes, tables, groups, charts, SmartArt, picture descriptions."""

from collections.abc import Iterator

from localctx.library.parsers.list_numbers import formatted
from localctx.library.parsers.office import symbols
from localctx.library.parsers.office.blocks import Block, Cell, Paragraph, Table
from localctx.library.parsers.office.drawing import Drawings
from localctx.library.parsers.office.equation import linear
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

_SHAPES = ("sp", "cxnSp", "pic", "graphicFrame", "contentPart")
_FORMS = {"arabic": "decimal", "alphaLc": "lowerLetter", "alphaUc": "upperLetter", "romanLc": "lowerRoman"}
_FORMS |= {"romanUc": "upperRoman", "circleNum": "decimalEnclosedCircle", "ea1Chs": "chineseCounting"}
_FORMS |= {"ea1Cht": "taiwaneseCounting", "ea1Jpn": "japaneseCounting", "hebrew2": "hebrew1", "arabicDb": "decimal"}


class ShapeReader:
    """Reads the shapes of a slide, or of its speaker notes. ``place``, such as `` on slide 3``, is added to notes about
    unread parts.
    """

    def __init__(self, package: Package, part: str, place: str) -> None:
        self.drawings = Drawings(package, part, lambda: place)

    def shapes(self, tree: Element | None) -> Iterator[Element]:
        """Yields the visible shapes in order. A group is replaced by its shapes.

        Some programs write alternatives of one shape; the first alternative with shapes is taken.
        """
        for one in () if tree is None else tree:
            name = local(one)
            if name in _SHAPES or name == "grpSp":
                if attribute(_properties(one), "hidden") in ("1", "true"):
                    self.drawings.note("a hidden shape")
                elif name == "grpSp":
                    yield from self.shapes(one)
                else:
                    yield one
            elif name == "AlternateContent":
                yield from self._alternative(one)

    def blocks(self, shape: Element) -> list[Block]:
        """Returns the paragraphs and tables of one shape."""
        match local(shape):
            case "pic":
                return self._picture(shape)
            case "graphicFrame":
                table = find(shape, "tbl")
                return self.drawings.graphic(shape) if table is None else [self._table(table)]
            case "contentPart":
                self.drawings.note("the handwriting")
                return []
        return self.paragraphs(child(shape, "txBody"))

    def paragraphs(self, body: Element | None) -> list[Block]:
        """Returns the paragraphs of a text body, with their automatic numbers."""
        counts: dict[int, tuple[str, int]] = {}  # by level: the kind of number, and the last number
        return [self._paragraph(p, counts) for p in children(body, "p")]

    def _alternative(self, element: Element) -> Iterator[Element]:
        for one in children(element, "Choice", "Fallback"):
            if found := list(self.shapes(one)):
                yield from found
                return

    def _picture(self, shape: Element) -> list[Block]:
        for kind, told in (("videoFile", "the video"), ("audioFile", "the sound")):
            if find(child(shape, "nvPicPr"), kind) is not None:
                self.drawings.note(told)
                return []
        return self.drawings.picture(_properties(shape))

    def _paragraph(self, element: Element, counts: dict[int, tuple[str, int]]) -> Paragraph:
        text = "".join(map(self._inline, element)).strip()
        return Paragraph(text, _counted(child(element, "pPr"), counts) if text else "")

    def _inline(self, element: Element) -> str:
        match local(element):
            case "r":
                return symbols.in_unicode(_font(element), _plain(child(element, "t")))
            case "br":
                return "\n"
            case "fld":
                return "" if attribute(element, "type") == "slidenum" else _plain(child(element, "t"))
            case "AlternateContent":
                choice = child(element, "Choice")
                return "".join(map(self._inline, element if choice is None else choice))
            case "pPr" | "endParaRPr":
                return ""
        return "".join(f" {linear(one)} " for one in descendants(element, "oMath"))

    def _table(self, table: Element) -> Table:
        return Table([[self._cell(cell) for cell in children(row, "tc")] for row in children(table, "tr")])

    def _cell(self, cell: Element) -> Cell:
        for name, covered in (("hMerge", "left"), ("vMerge", "above")):
            if attribute(cell, name) in ("1", "true"):
                return Cell([], 1, covered)
        return Cell(self.paragraphs(child(cell, "txBody")))


def placeholder(shape: Element) -> str:
    """Returns the purpose of a shape that is a placeholder, such as ``title`` or ``ftr`` (a footer); "" for any other
    shape.
    """
    found = find(next(iter(shape), None), "ph")
    return "" if found is None else attribute(found, "type", "obj")


def _properties(shape: Element) -> Element | None:
    return child(next(iter(shape), None), "cNvPr")


def _plain(element: Element | None) -> str:
    """Returns the text of a run. PowerPoint writes a line break as a vertical tab, too."""
    text = "" if element is None else element.text or ""
    return text.replace("_x000D_", "\n").replace("\v", "\n").replace("\xad", "")


def _font(run: Element) -> str:
    properties = child(run, "rPr")
    return attribute(child(properties, "sym"), "typeface") or attribute(child(properties, "latin"), "typeface")


def _counted(properties: Element | None, counts: dict[int, tuple[str, int]]) -> str:
    """Count a paragraph, and return its automatic number with a space. If the kind of number changes, counting starts
    again.
    """
    level, numbering = number(attribute(properties, "lvl")), child(properties, "buAutoNum")
    for deeper in [one for one in counts if one > level or (one == level and numbering is None)]:
        del counts[deeper]
    if numbering is None:
        return ""
    kind, start = attribute(numbering, "type"), number(attribute(numbering, "startAt"), 1)
    last_kind, last = counts.get(level, ("", 0))
    value = last + 1 if last_kind == f"{kind} {start}" else start
    counts[level] = f"{kind} {start}", value
    return f"{_printed(kind, value)} "


def _printed(kind: str, value: int) -> str:
    for form, known in _FORMS.items():
        if kind.startswith(form):
            text = formatted(value, known)
            break
    else:
        text = str(value)
    if kind.endswith("ParenBoth"):
        return f"({text})"
    return text + (")" if kind.endswith("ParenR") else "." if kind.endswith("Period") else "")
