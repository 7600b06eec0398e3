"""Reads from a Word document's styles whether a paragraph is a heading, hidden, or in a numbered list."""

from typing import NamedTuple

from localctx.library.parsers.office.xml_tree import Element, attribute, child, children, is_on, number

_NO_LEVEL = 9  # the outline level of text that is no heading
_HEADINGS = ("heading ", "title")


class Numbered(NamedTuple):
    """The list that a paragraph belongs to: the list's id, and the paragraph's level from 0.

    None means that the properties do not say. The id "0" means that the paragraph is in no list.
    """

    list: str | None
    level: int | None


class DocxStyles:
    """The styles of a Word document. A style inherits from the style that it is based on."""

    def __init__(self, root: Element | None) -> None:
        styles = list(children(root, "style"))
        self._styles = {attribute(style, "styleId"): style for style in styles}
        self._default = next((attribute(s, "styleId") for s in styles if _is_default_paragraph(s)), "")
        self._chains: dict[str, list[Element]] = {}

    def is_heading(self, style: str, properties: Element | None) -> bool:
        """Returns True if a paragraph is a heading or title, by its own ``properties`` or else by its style."""
        for one in (properties, *(child(s, "pPr") for s in self._chain(style))):
            if (level := child(one, "outlineLvl")) is not None:
                return number(attribute(level, "val"), _NO_LEVEL) < _NO_LEVEL
        return any(attribute(child(s, "name"), "val").lower().startswith(_HEADINGS) for s in self._chain(style))

    def is_hidden(self, style: str) -> bool:
        """Returns True if a paragraph style or character style hides text."""
        for one in self._chain(style):
            if (hidden := child(one, "rPr", "vanish")) is not None:
                return is_on(hidden)
        return False

    def list_of(self, style: str) -> str | None:
        """Returns the id of the list that a paragraph style uses. If the style names none, a style that it is based on
        may name one. Returns None if none does.
        """
        named = (list_of(child(one, "pPr")).list for one in self._chain(style))
        return next((name for name in named if name is not None), None)

    def levels(self, style: str) -> list[tuple[str, int | None]]:
        """Returns (id of the style, list level or None) of a style and of each style that it is based on, nearest
        first.
        """
        return [(attribute(one, "styleId"), list_of(child(one, "pPr")).level) for one in self._chain(style)]

    def list_of_style(self, style: str) -> str | None:
        """Returns the id of the list that the numbering style ``style`` stands for, or None."""
        return list_of(child(self._styles.get(style), "pPr")).list

    def _chain(self, style: str) -> list[Element]:
        style = style or self._default
        if style not in self._chains:
            chain: list[Element] = []
            one = self._styles.get(style)
            while one is not None and one not in chain:  # styles of a forged file may go in circles
                chain.append(one)
                one = self._styles.get(attribute(child(one, "basedOn"), "val"))
            self._chains[style] = chain
        return self._chains[style]


def list_of(properties: Element | None) -> Numbered:
    """Returns the list and level that a paragraph's properties name."""
    listed = child(properties, "numPr")
    name, level = child(listed, "numId"), child(listed, "ilvl")
    return Numbered(
        attribute(name, "val") if name is not None else None,
        number(attribute(level, "val")) if level is not None else None,
    )


def _is_default_paragraph(style: Element) -> bool:
    return attribute(style, "type") == "paragraph" and attribute(style, "default") in ("1", "true", "on")
