"""Reads one OpenDocument paragraph: its visible text, and the notes, comments and drawings anchored in it."""

import re
from collections.abc import Iterable
from typing import Protocol

from localctx.library.parsers.odf.styles import OdfStyles
from localctx.library.parsers.office.blocks import Block
from localctx.library.parsers.office.xml_tree import Element, attribute, local, number

_SKIPPED = {
    *("annotation-end", "ruby-text", "tracked-changes", "event-listeners", "desc", "title", "number"),
    *("list-level-style-number", "note-citation", "script", "forms", "label"),
}  # elements that print no text of the paragraph
DRAWN = {
    *("frame", "custom-shape", "rect", "ellipse", "circle", "polygon", "polyline", "regular-polygon", "path", "line"),
    *("connector", "caption", "measure", "g", "enhanced-geometry", "control"),
}
_MOST_SPACES = 100
_SPACES = re.compile(r"[ \t\r\n\x00]+")
# White space of XML counts as one space. Elements stand for what is printed, until the whole paragraph is known:
_SPACE, _TAB, _BREAK = "\x01", "\x02", "\x03"
_PRINTED = str.maketrans({_SPACE: " ", _TAB: "\t", _BREAK: "\n", "\xad": None})


class OdfStory(Protocol):
    """The reader of the document around a paragraph. It reads the elements that are anchored in the paragraph, and has
    the document's styles.
    """

    styles: OdfStyles

    def anchored(self, element: Element) -> Iterable[Block]:
        """Returns the paragraphs and tables of a note, comment or drawing that is anchored in the paragraph."""

    def control(self, element: Element) -> str:
        """Returns the value of a form control, such as a text field."""

    def note_hidden(self) -> None:
        """Note that hidden text is left out."""


class OdfInline:
    """Collects the content of one paragraph: ``text`` is its text, and ``after`` has the paragraphs and tables of notes
    and drawings that are anchored in it.
    """

    def __init__(self, story: OdfStory, paragraph: Element) -> None:
        self.after: list[Block] = []
        self._pieces: list[str] = []
        self._story = story
        self._is_hidden = story.styles.is_hidden("paragraph", attribute(paragraph, "style-name"))
        self._all(paragraph)

    @property
    def text(self) -> str:
        """The text of the paragraph as it is printed."""
        text = "" if self._is_hidden else _SPACES.sub(" ", "".join(self._pieces)).strip()
        return re.sub(r" *\n *", "\n", text.translate(_PRINTED))

    def _all(self, parent: Element) -> None:
        self._add(parent.text)
        for one in parent:
            self._element(one)
            self._add(one.tail)

    def _add(self, text: str | None) -> None:
        if text and self._is_hidden and text.strip():
            self._story.note_hidden()
        self._pieces.append(text or "")

    def _element(self, element: Element) -> None:
        name = local(element)
        if name in ("note", "annotation") or (name in DRAWN and name != "control"):
            self.after += [] if self._is_hidden else self._story.anchored(element)
        elif name == "s":
            self._pieces.append(_SPACE * min(number(attribute(element, "c"), 1), _MOST_SPACES))
        elif name in ("tab", "line-break"):
            self._pieces.append(_TAB if name == "tab" else _BREAK)
        elif name == "control":
            self._pieces.append(self._story.control(element))
        elif name == "hidden-paragraph":
            self._hide_paragraph(element)
        elif name == "hidden-text" or (name == "span" and self._hides(element)):
            self._story.note_hidden()
        elif name not in _SKIPPED:
            self._all(element)

    def _hides(self, span: Element) -> bool:
        return self._story.styles.is_hidden("text", attribute(span, "style-name")) and any(
            text.strip() for text in span.itertext()
        )

    def _hide_paragraph(self, element: Element) -> None:
        if attribute(element, "is-hidden", "true") == "true":
            self._is_hidden = True
            self._story.note_hidden()
