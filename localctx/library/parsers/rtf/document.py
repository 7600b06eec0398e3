"""Reads RTF: paragraphs, headings, tables, notes, comments, list numbers, text boxes. Runs in the child process.

Measured: striprtf reads hidden and deleted text, and loses notes, text boxes, headings, merged cells and the lines of
nested tables. So the file is read here.
"""

from localctx.library.parsers.office.blocks import labelled, plain_text, write_blocks
from localctx.library.parsers.rtf.reader import RtfReader
from localctx.library.parsers.text_builder import TextBuilder


def read(data: bytes) -> TextBuilder:
    """Returns the document's text. What is missing at the end of a truncated file is noted."""
    builder, reader = TextBuilder(), RtfReader()
    reader.read(data)
    write_blocks(builder, reader.finish())
    told = set()
    printed = []
    for kind, blocks in reader.headers_and_footers:
        text = plain_text(blocks)
        if (kind, text) not in told and any(map(str.isalpha, text)):
            told.add((kind, text))
            printed += labelled(kind, blocks)
    if printed:
        builder.line(2)
        builder.mark("heading", "")
        write_blocks(builder, printed)
    for line in reader.unread():
        builder.note_unread(line)
    return builder
