"""Reads OpenDocument texts and presentations (.odt, .odp). Runs in the child process.

The XML is read here, with lxml. odfpy (last changed in 2020) builds a tree ten times as large as the file, and loses
the text after elements, automatic numbers, hidden text and merged cells. No other library reads both formats.
"""

from collections.abc import Callable, Iterable, Iterator

from localctx.errors import DocumentError
from localctx.library.parsers.archive import Archive
from localctx.library.parsers.odf.story import OdfStoryReader
from localctx.library.parsers.odf.styles import OdfStyles
from localctx.library.parsers.office.blocks import (
    Block,
    Paragraph,
    labelled,
    plain_text,
    printed_once,
    write_at_end,
    write_blocks,
)
from localctx.library.parsers.office.package import REMEDY, Package
from localctx.library.parsers.office.xml_tree import Element, attribute, child, children, descendants, find, local
from localctx.library.parsers.text_builder import TextBuilder

_PRINTED = {f"{kind}{which}": kind.title() for kind in ("header", "footer") for which in ("", "-left", "-first")}


def read(archive: Archive, progress: Callable[[int, int], None]) -> TextBuilder:
    """Returns the document's text. Raises DocumentError if its main part is missing or cannot be read."""
    builder = TextBuilder()
    package = Package(archive, builder)
    root = package.tree("content.xml", "the text")
    if root is None:
        raise DocumentError("is damaged: its text is not XML", REMEDY)
    styled = package.tree("styles.xml", "the styles") if package.has("styles.xml") else None
    styles = OdfStyles([one for one in (styled, root) if one is not None])
    story = OdfStoryReader(package, styles, root)
    if (deck := find(root, "presentation")) is not None:
        _write_slides(builder, deck, story, progress)
    else:
        _write_text(builder, root, styled, story)
    if pictures := story.drawings.pictures:
        builder.note_unread(f"{pictures} pictures" if pictures > 1 else "a picture")
    return builder


def _write_text(builder: TextBuilder, root: Element, styled: Element | None, story: OdfStoryReader) -> None:
    for body in descendants(root, "body"):
        write_blocks(builder, story.blocks(body))
    write_at_end(builder, printed_once(_headers_and_footers(styled, story)))


def _headers_and_footers(styled: Element | None, story: OdfStoryReader) -> Iterator[tuple[str, Iterable[Block]]]:
    """Yields (``Header`` or ``Footer``, its blocks) for each header and footer that is printed."""
    for page in descendants(styled, "master-page"):
        for one in children(page, *_PRINTED):
            if attribute(one, "display") != "false":
                yield _PRINTED[local(one)], story.blocks(one)


def _write_slides(
    builder: TextBuilder, deck: Element, story: OdfStoryReader, progress: Callable[[int, int], None]
) -> None:
    slides = list(descendants(deck, "page"))
    footers = {attribute(one, "name"): "".join(one.itertext()).strip() for one in descendants(deck, "footer-decl")}
    for number, slide in enumerate(slides, 1):
        story.place = f" on slide {number}"
        if story.styles.is_hidden_slide(attribute(slide, "style-name")):
            builder.note_unread(f"the hidden slide {number}")
        else:
            builder.line(2)
            builder.mark("slide", str(number))
            _write_slide(builder, slide, story)
            footer = footers.pop(attribute(slide, "use-footer-name"), "")  # on every slide: read once
            write_blocks(builder, [Paragraph(footer)])
        progress(number, len(slides))


def _write_slide(builder: TextBuilder, slide: Element, story: OdfStoryReader) -> None:
    frames = list(children(slide, "frame"))
    title = next((one for one in frames if attribute(one, "class") == "title"), None)
    heading = plain_text([] if title is None else story.drawings.blocks(title))
    builder.mark("heading", "")
    write_blocks(builder, [Paragraph(heading, is_heading=True)])
    for one in slide:
        if one is title or local(one) in ("notes", "annotation"):
            continue
        builder.line(2)
        write_blocks(builder, story.drawings.blocks(one), 1)
    notes = child(slide, "notes")
    frames = [frame for frame in children(notes, "frame") if attribute(frame, "class", "notes") == "notes"]
    said = [block for frame in frames for block in story.drawings.blocks(frame)]
    builder.line(2)
    write_blocks(builder, labelled("Notes", said), 1)
    builder.line(2)
    for comment in children(slide, "annotation"):
        write_blocks(builder, story.anchored(comment))
