"""Reads RTF: paragraphs, headings, tables, notes, comments, list numbers, text boxes. Runs in the child process.

The file is read here. striprtf was measured: it reads hidden and deleted text, and loses notes, text boxes, headings,
merged cells and the lines of nested tables.
"""

from localctx.library.parsers.office.blocks import printed_once, write_at_end, write_blocks
from localctx.library.parsers.rtf.reader import RtfReader
from localctx.library.parsers.text_builder import TextBuilder


def read(data: bytes) -> TextBuilder:
    """Returns the document's text. If the file is truncated, notes that its end is missing."""
    builder, reader = TextBuilder(), RtfReader()
    reader.read(data)
    write_blocks(builder, reader.finish())
    write_at_end(builder, printed_once(reader.headers_and_footers))
    for line in reader.unread():
        builder.note_unread(line)
    return builder
