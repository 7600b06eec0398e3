"""Reads the drawings of Word and PowerPoint: charts, SmartArt, embedded objects, picture descriptions.

A drawing that cannot be read is noted, and does not affect the others.
"""

import re
from collections.abc import Callable

from localctx.library.parsers.office.blocks import Block, Paragraph
from localctx.library.parsers.office.chart import chart_blocks
from localctx.library.parsers.office.package import Package
from localctx.library.parsers.office.smart_art import smart_art_blocks
from localctx.library.parsers.office.xml_tree import Element, attribute, find

_FILE_NAME = re.compile(r"\S+\.(png|jpe?g|gif|bmp|emf|wmf|tiff?|svg|webp)", re.IGNORECASE)


def is_description(text: str) -> bool:
    """Returns True if the text really describes a picture. Programs often put the name of the picture's file there."""
    return bool(text.strip()) and not _FILE_NAME.fullmatch(text.strip())


class Drawings:
    """Reads the drawings of one part of a file. ``place()``, such as `` on slide 3``, is added to notes about unread
    parts.

    ``pictures`` is the number of pictures without a description so far.
    """

    def __init__(self, package: Package, part: str, place: Callable[[], str]) -> None:
        self.pictures = 0  # without a description
        self._package, self._part, self._place = package, part, place

    def graphic(self, data: Element) -> list[Block]:
        """Returns the blocks of a chart or a SmartArt graphic, which the element ``data`` refers to. Notes any other
        object as unread.
        """
        if (chart := find(data, "chart")) is not None:
            return self._referenced(attribute(chart, "id"), chart_blocks, "the chart")
        if (art := find(data, "relIds")) is not None:
            return self._referenced(attribute(art, "dm"), smart_art_blocks, "the SmartArt graphic")
        if (found := find(data, "oleObj")) is not None:
            self.embedded(attribute(found, "progId"))
        elif find(data, "contentPart") is not None:
            self.note("the handwriting")
        return []

    def embedded(self, program: str) -> None:
        """Note as unread an object of another ``program``, such as ``Excel.Sheet.12``, which is stored in that
        program's format.
        """
        if program.startswith("Equation"):
            self.note("an equation of an old equation editor")
        else:
            self.note(f"the embedded object{f' ({program})' if program else ''}")

    def picture(self, properties: Element | None) -> list[Block]:
        """Returns the description of a picture as a block.

        A picture without a description is counted in ``pictures``, unless it is marked as decoration.
        """
        described = attribute(properties, "descr") or attribute(properties, "alt") or attribute(properties, "title")
        if is_description(described):
            return [Paragraph(f"Picture: {' '.join(described.split())}")]
        decorative = find(properties, "decorative")
        self.pictures += decorative is None or attribute(decorative, "val") not in ("1", "true")
        return []

    def note(self, told: str) -> None:
        """Note that the part ``told``, such as ``the chart``, cannot be read, with its place in the document."""
        self._package.builder.note_unread(told + self._place())

    def _referenced(self, name: str, read: Callable[[Element], list[Block]], told: str) -> list[Block]:
        relation = self._package.relations(self._part).get(name)
        root = self._package.tree(relation.part, told + self._place()) if relation else None
        blocks = [] if root is None else read(root)
        if not blocks:
            self.note(told)
        return blocks
