"""Reads a presentation (.pptx) slide by slide: text, tables, charts, notes, comments. Runs in the child process.

The XML is read here, with lxml. python-pptx was measured: it refuses a file for one missing part or chart type that it
does not know, and reads no SmartArt, equations, comments or charts of Office 2016.
"""

from collections.abc import Callable, Iterator

from localctx.errors import DocumentError
from localctx.library.parsers.archive import Archive
from localctx.library.parsers.office.blocks import Block, Paragraph, labelled, write_blocks
from localctx.library.parsers.office.package import REMEDY, Package
from localctx.library.parsers.office.pptx_comments import SlideComments
from localctx.library.parsers.office.pptx_shapes import ShapeReader, placeholder
from localctx.library.parsers.office.xml_tree import Element, attribute, descendants, find, local
from localctx.library.parsers.text_builder import TextBuilder

_TITLES = ("title", "ctrTitle")
_RUNNING = ("ftr", "dt", "hdr")  # on every slide: read once


def read(archive: Archive, progress: Callable[[int, int], None]) -> TextBuilder:
    """Returns the presentation's text. Raises DocumentError if its list of slides is missing or cannot be read."""
    builder = TextBuilder()
    package = Package(archive, builder)
    main = package.main("ppt/presentation.xml")
    root = package.tree(main, "the list of slides")
    if root is None:
        raise DocumentError("is damaged: its list of slides is not XML", REMEDY)
    slides, pictures, running = list(descendants(root, "sldId")), list[int](), set[str]()
    comments = SlideComments(package, main)
    for number, slide in enumerate(slides, 1):
        relation = package.relations(main).get(_relation_of(slide))
        if relation is None:
            builder.note_unread(f"slide {number}, which is missing")
        elif _Slide(package, relation.part, number, comments, running).write():
            pictures.append(number)
        progress(number, len(slides))
    where = f"{'s' if len(pictures) > 1 else ''} {', '.join(map(str, pictures))}"
    package.note_rest(f"pictures on slide{where}" if pictures else "")
    return builder


def _relation_of(slide: Element) -> str:
    """Returns the relation id of the slide's part. (A slide has another id, which is a number.)"""
    return next((value for key, value in slide.items() if key.endswith("}id")), "")


class _Slide:
    """Reads one slide, which is in the part ``part`` of the file.

    ``running`` collects the texts of footers and dates. All slides share it, so that each text is read once.
    """

    def __init__(self, package: Package, part: str, number: int, comments: SlideComments, running: set[str]) -> None:
        self._package, self._part, self._number = package, part, number
        self._comments, self._running = comments, running
        self._builder = package.builder

    def write(self) -> int:
        """Append the slide's text. Returns the number of its pictures without a description."""
        root = self._package.tree(self._part, f"slide {self._number}")
        if root is None:
            return 0
        if attribute(root, "show") in ("0", "false"):
            self._builder.note_unread(f"the hidden slide {self._number}")
            return 0
        self._builder.mark("slide", str(self._number))
        shapes = ShapeReader(self._package, self._part, f" on slide {self._number}")
        self._shapes(list(shapes.shapes(find(root, "spTree"))), shapes)
        write_blocks(self._builder, self._notes(), 1)
        self._builder.line(2)
        write_blocks(self._builder, self._comments.on(self._part, self._number))
        self._builder.line(2)
        return shapes.drawings.pictures

    def _shapes(self, listed: list[Element], shapes: ShapeReader) -> None:
        title = next((one for one in listed if placeholder(one) in _TITLES), None)
        heading = [] if title is None else shapes.blocks(title)
        text = " ".join(p.line for p in heading if isinstance(p, Paragraph)).strip()
        if text:
            write_blocks(self._builder, [Paragraph(text, is_heading=True)])
            write_blocks(self._builder, (block for p in heading if isinstance(p, Paragraph) for block in p.after))
        else:
            self._builder.mark("heading", "")
        for one in listed:
            if one is not title and self._is_new(one, blocks := shapes.blocks(one)):
                self._builder.line(2)
                write_blocks(self._builder, blocks, 1)
                self._builder.line(2)

    def _is_new(self, shape: Element, blocks: list[Block]) -> bool:
        """Returns True if a shape is to be read. Slide numbers are never read, footers and dates only once."""
        kind = placeholder(shape)
        if kind not in _RUNNING:
            return kind != "sldNum"
        text = " ".join(block.line for block in blocks if isinstance(block, Paragraph))
        is_new = text not in self._running
        self._running.add(text)
        return is_new

    def _notes(self) -> Iterator[Block]:
        for part in self._package.related(self._part, "notesSlide"):
            root = self._package.tree(part, f"the notes of slide {self._number}")
            shapes = ShapeReader(self._package, part, f" in the notes of slide {self._number}")
            listed = shapes.shapes(find(root, "spTree")) if root is not None else ()
            said = [one for one in listed if local(one) == "sp" and placeholder(one) in ("body", "")]
            yield from labelled("Notes", (block for one in said for block in shapes.blocks(one)))
