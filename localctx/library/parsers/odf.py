"""Reads OpenDocument texts and presentations (.odt, .odp): body, tables, text boxes, notes. Runs in the child process.

Parses a stream of XML events, as for Word. odfpy (last changed in 2020) builds a tree of Python objects ten times as
large as the file, and callers must still extract the text from it.
"""

from xml.etree import ElementTree

from localctx.errors import DocumentError
from localctx.library.parsers.archive import Archive, attribute, local
from localctx.library.parsers.text_builder import TextBuilder

_SKIPPED = {
    *("tracked-changes", "annotation", "note-citation", "ruby-text", "title", "desc", "binary-data"),
    *("styles", "automatic-styles", "scripts", "forms", "date-time-decl", "header-decl", "footer-decl"),
}  # deleted text, comments, descriptions, and elements that are not text
_MAX_SPACES = 100
_REMEDY = "open it in its own program and save it anew"


def read(archive: Archive) -> TextBuilder:
    """Returns the document's text. Raises DocumentError for a damaged file."""
    content = _Content(builder := TextBuilder())
    parser = ElementTree.XMLParser(target=content)
    try:
        parser.feed(archive.read("content.xml"))
        parser.close()
    except ElementTree.ParseError as e:
        raise DocumentError(f"is damaged: its text is not XML ({e})", _REMEDY) from e
    for note in content.notes:
        builder.line(2)
        builder.words(note)
    return builder


class _Content:
    """The parser target: receives the XML events of a document and appends its text to a TextBuilder."""

    def __init__(self, builder: TextBuilder) -> None:
        self.notes: list[str] = []  # footnotes and endnotes, which follow the text
        self._builder = builder
        self._skip_depth = self._tables = self._slides = 0
        self._paragraphs = 0  # number of open paragraphs; character data outside of them is not text
        self._in_note = False
        self._prefix = ""  # before the next words
        self._headings: list[bool] = []  # whether each open paragraph or frame is a heading

    def doctype(self, *args: str | None) -> None:
        """Refuse a document type declaration: office programs write none, and entity bombs need one."""
        raise DocumentError("is no true OpenDocument file: it declares entities", "do not trust it")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = local(tag)
        if self._skip_depth or name in _SKIPPED:
            self._skip_depth += 1
        elif name == "note-body":
            self._in_note = True
            self.notes.append("")
        elif name == "page":
            self._slide()
        elif name == "notes":
            self._prefix = "Notes: "
        elif name == "table":
            self._tables += 1
        elif name in ("p", "h", "frame"):
            self._begin(name, attribute(attributes, "class") == "title")
        else:
            self._characters(name, attribute(attributes, "c"))

    def data(self, text: str) -> None:
        if self._skip_depth or not self._paragraphs:
            return
        if self._in_note:
            self.notes[-1] += text
        elif text:
            self._builder.words(self._prefix + text)
            self._prefix = ""

    def end(self, tag: str) -> None:
        name = local(tag)
        if self._skip_depth:
            self._skip_depth -= 1
        elif name == "note-body":
            self._in_note = False
        elif name == "notes":
            self._prefix = ""
        elif name in ("p", "h", "frame"):
            self._end(name)
        elif name.endswith("table-cell"):
            self._builder.cell()
        elif name == "table-row":
            self._builder.line()
        elif name == "table":
            self._tables -= 1
            self._builder.line(2)

    def _slide(self) -> None:
        self._slides += 1
        self._builder.line(2)
        self._builder.mark("slide", str(self._slides))
        self._builder.mark("heading", "")

    def _begin(self, name: str, is_title: bool) -> None:
        """Begin a paragraph, heading or frame. A heading in a table, note or heading is treated as a paragraph."""
        is_heading = (name == "h" or is_title) and not (self._tables or self._in_note or any(self._headings))
        self._headings.append(is_heading)
        self._paragraphs += name != "frame"
        if is_heading:
            self._builder.begin_heading()
        elif not (self._tables or self._in_note):
            self._builder.line(1 if self._slides and name == "p" else 2)

    def _end(self, name: str) -> None:
        self._paragraphs -= name != "frame"
        if self._headings.pop():
            self._builder.end_heading()
        elif self._in_note:
            self.notes[-1] += " "
        elif self._tables:
            self._builder.words(" ")
        else:
            self._builder.line(1 if self._slides and name == "p" else 2)

    def _characters(self, name: str, count: str) -> None:
        """Append the white space that an element represents."""
        if not self._paragraphs or name not in ("s", "tab", "line-break"):
            return
        if self._in_note:
            self.notes[-1] += " "
        elif name == "s":
            self._builder.verbatim(" " * min(int(count) if count.isdecimal() else 1, _MAX_SPACES))
        else:
            self._builder.verbatim("\t" if name == "tab" else "\n")
