"""Reads a Word document's text: body, tables, text boxes, insertions, then notes. Runs in the child process.

Parses a stream of XML events, because python-docx loads every picture and leaves out insertions, content controls and
text boxes.
"""

from xml.etree import ElementTree

from localctx.errors import DocumentError
from localctx.library.parsers.archive import Archive, attribute, local
from localctx.library.parsers.text_builder import TextBuilder

_SKIPPED = {"Fallback", "tabs", "moveFrom", "del"}  # duplicate, not text, moved away, deleted
_CHARACTERS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}


def read(archive: Archive) -> TextBuilder:
    """Returns the document's text. Raises DocumentError if a part is missing or is not XML."""
    builder, main = TextBuilder(), _main(archive)
    folder = main.rpartition("/")[0]
    styles = _heading_styles(archive, f"{folder}/styles.xml")
    for part in (main, f"{folder}/footnotes.xml", f"{folder}/endnotes.xml"):
        if part == main or part in archive.names:
            _feed(archive.read(part), _Body(builder, styles))
            builder.line(2)
    return builder


def _main(archive: Archive) -> str:
    for relation in archive.xml("_rels/.rels"):
        if relation.get("Type", "").endswith("/officeDocument"):
            return relation.get("Target", "").lstrip("/")
    raise DocumentError("is damaged: it does not say where its text is", "open it in a word processor and save it anew")


def _feed(data: bytes, target: "_Body") -> None:
    parser = ElementTree.XMLParser(target=target)
    try:
        parser.feed(data)
        parser.close()
    except ElementTree.ParseError as e:
        problem = f"is damaged: its text is not XML ({e})"
        raise DocumentError(problem, "open it in a word processor and save it anew") from e


def _heading_styles(archive: Archive, part: str) -> set[str]:
    """Returns the ids of heading and title styles: by name, outline level, or the style they are based on."""
    if part not in archive.names:
        return set()
    found: set[str] = set()
    for style in (s for s in archive.xml(part) if local(s.tag) == "style"):
        values = {local(e.tag): attribute(e.attrib, "val") for e in style.iter()}
        name = values.get("name", "").lower()
        if name.startswith(("heading ", "title")) or "outlineLvl" in values or values.get("basedOn") in found:
            found.add(attribute(style.attrib, "styleId"))
    return found


class _Body:
    """The parser target: receives the XML events of a part and appends their text to a TextBuilder."""

    def __init__(self, builder: TextBuilder, heading_styles: set[str]) -> None:
        self._builder, self._styles = builder, heading_styles
        self._skip_depth = self._tables = 0
        self._in_text = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = local(tag)
        if self._skip_depth or name in _SKIPPED:
            self._skip_depth += 1
        elif name == "p" and not self._tables:
            self._builder.line(2)
        elif name == "tbl":
            self._tables += 1
        elif name == "pStyle" and attribute(attributes, "val") in self._styles and not self._tables:
            self._builder.begin_heading()
        self._in_text = name == "t"

    def doctype(self, *args: str | None) -> None:
        """Refuse a document type declaration: Word writes none, and entity bombs need one."""
        raise DocumentError("is no true Word document: it declares entities", "do not trust it")

    def data(self, text: str) -> None:
        if self._in_text and not self._skip_depth:
            self._builder.words(text)

    def end(self, tag: str) -> None:
        self._in_text = False
        if self._skip_depth:
            self._skip_depth -= 1
            return
        name = local(tag)
        if name in _CHARACTERS:
            self._builder.verbatim(_CHARACTERS[name])
        elif name == "p":
            self._paragraph()
        elif name == "tc":
            self._builder.cell()
        elif name == "tr":
            self._builder.line()
        elif name == "tbl":
            self._tables -= 1
            self._builder.line(2)

    def _paragraph(self) -> None:
        self._builder.end_heading()
        if self._tables:
            self._builder.words(" ")
        else:
            self._builder.line(2)
