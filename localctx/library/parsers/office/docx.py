"""Reads a Word document (.docx): text, tables, notes, comments, automatic numbers. Runs in the child process.

The XML is read here, with lxml. Other libraries were measured: python-docx loses notes, text boxes, insertions and
equations; mammoth loses equations, symbols and comments; docx2python reads boxes twice. None of them prints list
numbers, and all of them read hidden text.
"""

from collections.abc import Iterable, Iterator

from localctx.errors import DocumentError
from localctx.library.parsers.archive import Archive
from localctx.library.parsers.office.blocks import Block, printed_once, write_at_end, write_blocks
from localctx.library.parsers.office.docx_notes import DocxNotes
from localctx.library.parsers.office.docx_numbering import DocxNumbering
from localctx.library.parsers.office.docx_story import DocxStory
from localctx.library.parsers.office.docx_styles import DocxStyles
from localctx.library.parsers.office.package import REMEDY, Package
from localctx.library.parsers.office.xml_tree import Element, attribute, child, children, descendants, is_on
from localctx.library.parsers.text_builder import TextBuilder

_NOTES = ("footnote", "endnote", "comment")


def read(archive: Archive) -> TextBuilder:
    """Returns the document's text. Raises DocumentError if its main part is missing or cannot be read."""
    builder = TextBuilder()
    document = _Document(Package(archive, builder))
    write_blocks(builder, document.body())
    write_at_end(builder, [*document.uncalled_notes(), *printed_once(document.headers_and_footers())])
    document.note_the_rest()
    return builder


class _Document:
    """The parts of a Word document, with the styles, list counts and notes that the parts share."""

    def __init__(self, package: Package) -> None:
        self._package, self._main = package, package.main("word/document.xml")
        root = package.tree(self._main, "the text")
        if root is None:
            raise DocumentError("is damaged: its text is not XML", REMEDY)
        self._root = root
        self._styles = DocxStyles(self._tree("styles"))
        self._numbering = DocxNumbering(self._tree("numbering"), self._styles)
        self._settings = self._tree("settings")
        self._stories: list[DocxStory] = []
        settings = [] if self._settings is None else [self._settings]
        self._notes = DocxNotes([*settings, *descendants(root, "sectPr")])
        for kind in _NOTES:
            if (tree := self._tree(f"{kind}s")) is not None:
                self._notes.add(kind, tree, self._story(self._part(f"{kind}s")).blocks)

    def body(self) -> Iterator[Block]:
        """Yields the blocks of the body."""
        story = self._story(self._main)
        for body in descendants(self._root, "body"):
            yield from story.blocks(body)

    def uncalled_notes(self) -> Iterator[Block]:
        """Yields the blocks of notes that are not referenced anywhere in the text."""
        yield from self._notes.uncalled()

    def headers_and_footers(self) -> Iterator[tuple[str, Iterable[Block]]]:
        """Yields (``Header`` or ``Footer``, its blocks) for each header and footer that is printed."""
        for kind, part in dict.fromkeys(self._printed_parts()):
            if (root := self._package.tree(part, f"a {kind}")) is not None:
                yield kind.title(), self._story(part).blocks(root)

    def note_the_rest(self) -> None:
        """Note that pictures, hidden text and macros are not read, where there are any."""
        pictures = sum(story.drawings.pictures for story in self._stories)
        self._package.note_rest(f"{pictures} pictures" if pictures > 1 else "a picture" * pictures)
        if any(story.hidden for story in self._stories):
            self._package.builder.note_unread("hidden text")

    def _printed_parts(self) -> Iterator[tuple[str, str]]:
        relations, even = self._package.relations(self._main), child(self._settings, "evenAndOddHeaders")
        for section in descendants(self._root, "sectPr"):
            printed = {"default": True, "first": is_on(child(section, "titlePg")), "even": is_on(even)}
            for reference in children(section, "headerReference", "footerReference"):
                relation = relations.get(attribute(reference, "id"))
                if relation and printed.get(attribute(reference, "type", "default")):
                    yield relation.type, relation.part

    def _story(self, part: str) -> DocxStory:
        story = DocxStory(self._package, part, self._styles, self._numbering, self._notes)
        self._stories.append(story)
        return story

    def _part(self, kind: str) -> str:
        """Returns the path of a part such as ``styles``: the related one, else the usual one, else ""."""
        usual = f"{self._main.rpartition('/')[0]}/{kind}.xml"
        named = self._package.related(self._main, kind)
        return named[0] if named else usual if self._package.has(usual) else ""

    def _tree(self, kind: str) -> Element | None:
        part = self._part(kind)
        return self._package.tree(part, f"the {kind}") if part else None
