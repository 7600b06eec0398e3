"""Reads the drawings of an OpenDocument file: text boxes, shapes, tables, charts, formulas, picture descriptions."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from localctx.library.parsers.office.blocks import Block, Paragraph, Table
from localctx.library.parsers.office.drawing import is_description
from localctx.library.parsers.office.package import Package
from localctx.library.parsers.office.xml_tree import Element, attribute, child, descendants, find, local

_OBJECTS = {
    "chart": "the chart",
    "math": "the formula",
    "spreadsheet": "the embedded table",
    "text": "the embedded text",
}


class OdfBlocks(Protocol):
    """The reader of the document around a drawing, which reads the blocks and tables inside the drawing.

    ``place``, such as `` on slide 3``, is added to notes about unread parts.
    """

    place: str

    def blocks(self, parent: Element) -> Iterable[Block]:
        """Returns the paragraphs, headings and tables below an element."""

    def table(self, table: Element) -> Table:
        """Returns the table in the element ``table``."""


class OdfDrawings:
    """Reads the drawings of an OpenDocument file. ``pictures`` is the number of pictures without a description so
    far.
    """

    def __init__(self, package: Package, story: OdfBlocks) -> None:
        self.pictures = 0
        self._package, self._story = package, story

    def blocks(self, element: Element) -> Iterator[Block]:
        """Yields the paragraphs and tables in a frame, shape or group of shapes."""
        if local(element) == "frame":
            yield from self._frame(element)
        elif local(element) in ("g", "a"):
            for one in element:
                yield from self.blocks(one)
        else:
            yield from self._story.blocks(element)

    def note(self, told: str) -> None:
        """Note that the part ``told``, such as ``the chart``, cannot be read, with its place in the document."""
        self._package.builder.note_unread(told + self._story.place)

    def _frame(self, frame: Element) -> Iterator[Block]:
        """Yields the blocks of a frame.

        The children of the frame hold the same content in several forms; the first form is the best.
        """
        for one in frame:
            match local(one):
                case "text-box":
                    yield from self._story.blocks(one)
                case "table":
                    yield self._story.table(one)
                    return
                case "object":
                    yield from self._object(one)
                    return
                case "object-ole":
                    self.note("the embedded object")
                    return
                case "plugin" | "applet" | "floating-frame":
                    self.note("the video or sound" if local(one) == "plugin" else "the embedded page")
                    return
                case "image":
                    yield from self._picture(frame)
                    return
        yield from ()

    def _picture(self, frame: Element) -> Iterator[Block]:
        told = [child(frame, "desc"), child(frame, "title")]
        described = next((text for one in told if one is not None and (text := "".join(one.itertext()).strip())), "")
        if is_description(described):
            yield Paragraph(f"Picture: {' '.join(described.split())}")
        else:
            self.pictures += 1

    def _object(self, element: Element) -> list[Block]:
        """Returns the blocks of an embedded object, which is in the element or in a folder of the file."""
        name = attribute(element, "href").removeprefix("./").strip("/")
        part = f"{name}/content.xml"
        if name and not self._package.has(part):
            self.note("the embedded object")
            return []
        root = self._package.tree(part, f"the embedded object{self._story.place}") if name else element
        kind = next((kind for kind in _OBJECTS if find(root, kind) is not None), "")
        blocks = self._read(kind, find(root, kind))
        if not any(isinstance(block, Table) or block.line for block in blocks):
            self.note(_OBJECTS.get(kind, "the embedded object"))
        return blocks

    def _read(self, kind: str, element: Element | None) -> list[Block]:
        if element is None:
            return []
        if kind == "math":
            return [Paragraph(_formula(element))]
        if kind != "chart":
            return list(self._story.blocks(element))
        titles = [one for one in descendants(element, "title", "subtitle") if find(one, "p") is not None]
        tables = list(descendants(element, "table"))
        return [b for t in titles for b in self._story.blocks(t)] + [self._story.table(table) for table in tables]


def _formula(element: Element) -> str:
    """Returns a formula as it was typed, or else the characters of its MathML in order."""
    typed = find(element, "annotation")
    text = "".join(element.itertext() if typed is None else typed.itertext())
    return " ".join(text.split())
