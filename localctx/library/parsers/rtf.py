"""Reads RTF with striprtf: paragraphs and tables, without footnotes and pictures. Runs in the child process."""

import re

from striprtf.striprtf import rtf_to_text

from localctx.errors import DocumentError
from localctx.library.parsers.text_builder import TextBuilder

_CODE_PAGE = re.compile(rb"\\ansicpg(\d{1,5})")
_CELL = re.compile(r"\\(?:nest)?cell(?![a-z])")
_BREAK = re.compile(r"\\line(?![a-z]) ?")  # within a paragraph
_PICTURE = re.compile(rb"[0-9a-fA-F\r\n]{512,}")  # written as hexadecimal numbers


def read(data: bytes) -> TextBuilder:
    """Returns the document's text. Raises DocumentError for a truncated file, which striprtf does not detect.

    Also raises striprtf's errors for other damage.
    """
    if not data.rstrip(b"\0\x1a \t\r\n").endswith(b"}"):
        raise DocumentError("is a damaged RTF file: its end is missing", "get it again, or save it anew")
    if rb"\bin" not in data:
        data = _PICTURE.sub(b"", data)  # pictures are most of a file, and striprtf spends most of its time on them
    marked = _BREAK.sub("\v", _CELL.sub(r"\\tab", _decoded(data)))
    text = rtf_to_text(marked, errors="replace")
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # \u writes an emoji as two surrogates
    builder = TextBuilder()
    for line in text.split("\n"):
        is_row = "\t" in line.rstrip()
        builder.line(1 if is_row else 2)
        builder.verbatim(line.strip().replace("\v", "\n"))
        builder.line(1 if is_row else 2)
    return builder


def _decoded(data: bytes) -> str:
    """Decode the unescaped bytes in the code page that the file declares."""
    page = _CODE_PAGE.search(data[:4096])
    try:
        return data.decode(f"cp{page.group(1).decode()}" if page else "cp1252", "replace")
    except LookupError:
        return data.decode("cp1252", "replace")
