"""Reads one Word paragraph: the final text of its runs, fields and equations, and the blocks anchored in it."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from localctx.library.parsers.office import symbols
from localctx.library.parsers.office.blocks import Block, Paragraph
from localctx.library.parsers.office.docx_styles import DocxStyles
from localctx.library.parsers.office.drawing import Drawings
from localctx.library.parsers.office.equation import linear
from localctx.library.parsers.office.xml_tree import (
    Element,
    attribute,
    child,
    children,
    descendants,
    find,
    is_on,
    local,
    number,
)

SKIPPED = {
    *("del", "moveFrom", "pPr", "rPr", "sdtPr", "sdtEndPr", "rt", "rubyPr", "delText", "fldData", "tblPr", "tblGrid"),
    *("footnoteRef", "endnoteRef", "annotationRef", "separator", "continuationSeparator", "delInstrText", "smartTagPr"),
}
"""Elements whose text is not read: deleted or moved away, properties, ruby readings, and marks without text."""

_CHARACTERS = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_SPACES = re.compile(r"[ \r\f\v]+")
_SYMBOL_CODE = re.compile(r"SYMBOL\s+(0x[0-9a-f]{1,6}|\d{1,6})(?:.*?\\f\s+\"?([^\"\\]+))?", re.IGNORECASE)


class Story(Protocol):
    """The reader of the part of the document around a paragraph, such as its body or a footnote. It reads the blocks
    that are anchored in the paragraph.
    """

    styles: DocxStyles
    drawings: Drawings

    def blocks(self, parent: Element) -> Iterable[Block]:
        """Returns the blocks below an element, such as those of a text box."""

    def called(self, reference: Element) -> list[Block]:
        """Returns the blocks of the footnote, endnote or comment that ``reference`` refers to."""

    def skip(self, element: Element) -> None:
        """Mark the notes that ``element`` refers to. ``element`` is left out of the text, so its notes are left out,
        too.
        """


@dataclass
class _Field:
    """An open field: its form, its instruction, and the text that comes before the result of the field."""

    form: Element | None
    in_result: bool = False
    instruction: str = ""
    before: list[str] = field(default_factory=list)


class DocxInline:
    """Collects the content of one paragraph: ``text`` is its text, and ``after`` has the blocks of notes and drawings
    that are anchored in it.

    ``hidden`` becomes True if hidden text was left out.
    """

    def __init__(self, story: Story) -> None:
        self.after: list[Block] = []
        self.hidden = False  # True if words were left out because they are hidden
        self._pieces: list[str] = []
        self._fields: list[_Field] = []
        self._story, self._style, self._font = story, "", ""

    def read(self, paragraph: Element, style: str) -> None:
        """Add the content of the element ``paragraph``, whose paragraph style is ``style``."""
        self._style = style
        if local(paragraph).startswith("oMath"):  # an equation that stands alone
            self._equation(paragraph)
        else:
            self._all(paragraph)
        for unfinished in self._fields:  # a field that goes on in the next paragraph, or never ends
            self._pieces += unfinished.before
        self._fields.clear()

    @property
    def text(self) -> str:
        """The text collected so far, in which each run of spaces is one space."""
        return _SPACES.sub(" ", "".join(self._pieces))

    def _all(self, parent: Element) -> None:
        for one in parent:
            name = local(one)
            if name in SKIPPED:
                self._story.skip(one)
            elif name in _CHARACTERS:
                self._add(_CHARACTERS[name])
            elif name in self._readers:
                self._readers[name](self, one)
            else:
                self._all(one)

    def _add(self, text: str) -> None:
        hiding = next((one for one in self._fields if not one.in_result), None)
        (self._pieces if hiding is None else hiding.before).append(text)

    def _run(self, run: Element) -> None:
        properties = child(run, "rPr")
        if self._is_hidden(properties):
            self.hidden = self.hidden or any((t.text or "").strip() for t in descendants(run, "t", "sym"))
            self._story.skip(run)
            for mark in descendants(run, "fldChar"):
                self._field_mark(mark)
            return
        fonts = child(properties, "rFonts")
        self._font = attribute(fonts, "ascii") or attribute(fonts, "hAnsi")
        self._all(run)
        self._font = ""

    def _is_hidden(self, properties: Element | None) -> bool:
        own = child(properties, "vanish")
        if own is not None:
            return is_on(own)
        style = attribute(child(properties, "rStyle"), "val")
        return self._story.styles.is_hidden(self._style) or bool(style and self._story.styles.is_hidden(style))

    def _text(self, element: Element) -> None:
        text = (element.text or "").replace("\n", " ").replace("\t", " ").replace("\xad", "")
        text = symbols.in_unicode(self._font, text)
        if symbols.is_private(text):
            self._story.drawings.note(f"a symbol of the font {self._font[:40]}".removesuffix(" of the font "))
        self._add(text)

    def _symbol(self, element: Element) -> None:
        self._symbol_of(attribute(element, "font"), attribute(element, "char"), 16)

    def _symbol_of(self, font: str, code: str, base: int) -> None:
        try:
            value = int(code, base)
            found = symbols.letter(font, value) or ("" if 0xE000 <= value <= 0xF8FF else chr(value))
        except (ValueError, OverflowError):
            found = ""
        if found:
            self._add(found)
        else:
            self._story.drawings.note(f"the symbol {code[:8]} of the font {font[:40]}")

    def _equation(self, element: Element) -> None:
        self._add(f" {linear(element)} ")

    def _field_mark(self, mark: Element) -> None:
        match attribute(mark, "fldCharType"):
            case "begin":
                self._fields.append(_Field(child(mark, "ffData")))
            case "separate" if self._fields:
                self._fields[-1].in_result = True
            case "end" if self._fields:
                self._end_field(self._fields.pop())

    def _end_field(self, ended: _Field) -> None:
        """Append the text of a field that stores no result: a check box, the choice of a list, or a symbol."""
        if (box := child(ended.form, "checkBox")) is not None:
            state = child(box, "checked") if child(box, "checked") is not None else child(box, "default")
            self._add("[x]" if is_on(state) else "[ ]")
        elif (choices := child(ended.form, "ddList")) is not None and not ended.in_result:
            entries = [attribute(one, "val") for one in children(choices, "listEntry")]
            chosen = child(choices, "result") if child(choices, "result") is not None else child(choices, "default")
            self._add(dict(enumerate(entries)).get(number(attribute(chosen, "val")), ""))
        elif not ended.in_result and (code := _SYMBOL_CODE.match(ended.instruction.strip())):
            self._symbol_of((code.group(2) or "Symbol").strip(), code.group(1), 0)

    def _instruction(self, element: Element) -> None:
        if self._fields:
            self._fields[-1].instruction += element.text or ""

    def _called(self, element: Element) -> None:
        self.after += self._story.called(element)

    def _alternatives(self, element: Element) -> None:
        """Read the first alternative with content. The other alternatives repeat this content for older programs."""
        for one in children(element, "Choice", "Fallback"):
            before = len(self._pieces), len(self.after), self._story.drawings.pictures
            self._all(one)
            if before != (len(self._pieces), len(self.after), self._story.drawings.pictures):
                return

    def _drawing(self, element: Element) -> None:
        """Read a drawing (DrawingML), or a shape in the older format VML."""
        self.after += _drawing_blocks(element, find(element, "docPr"), self._story)

    _readers: ClassVar[dict[str, Callable[["DocxInline", Element], None]]] = {
        "r": _run,
        "t": _text,
        "sym": _symbol,
        "oMath": _equation,
        "fldChar": _field_mark,
        "instrText": _instruction,
        "footnoteReference": _called,
        "endnoteReference": _called,
        "commentReference": _called,
        "AlternateContent": _alternatives,
        "drawing": _drawing,
        "pict": _drawing,
        "object": _drawing,
    }


def _drawing_blocks(element: Element, properties: Element | None, story: Story) -> list[Block]:
    """Returns the blocks of a drawing: text boxes, WordArt, pictures, charts, SmartArt."""
    found: list[Block] = []
    for one in element:
        match local(one):
            case "txbxContent":
                found += story.blocks(one)
            case "textpath":
                found += [Paragraph(attribute(one, "string"))]
            case "pic":
                own = child(one, "nvPicPr", "cNvPr")
                found += story.drawings.picture(own if attribute(own, "descr") else properties)
            case "imagedata":
                found += [] if _is_preview(one) else story.drawings.picture(one.getparent())
            case "OLEObject":
                story.drawings.embedded(attribute(one, "ProgID"))
            case "chart" | "relIds" | "contentPart":
                found += story.drawings.graphic(one)
            case "AlternateContent":
                found += _first_alternative(one, properties, story)
            case _:
                found += _drawing_blocks(one, properties, story)
    return found


def _is_preview(image: Element) -> bool:
    """Returns True if a picture only shows the content of an embedded object."""
    return any(local(one) == "object" for one in image.iterancestors())


def _first_alternative(element: Element, properties: Element | None, story: Story) -> list[Block]:
    for one in children(element, "Choice", "Fallback"):
        if found := _drawing_blocks(one, properties, story):
            return found
    return []


def make_paragraph(text: str, number: str, is_heading: bool, after: list[Block]) -> Paragraph:
    """Returns a Paragraph with this ``text``, after removing spaces at both ends of its lines."""
    return Paragraph(re.sub(r" *\n *", "\n", text).strip(), number, is_heading, after)
