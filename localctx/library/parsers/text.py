"""Decodes text files and the encoding that web pages declare. Finds Markdown headings."""

import re

from localctx.errors import DocumentError
from localctx.library.parsers.encodings import Decoded, declared_encoding, decode_mostly
from localctx.library.parsers.text_builder import Mark, clean

_HEADING = re.compile(r"^#{1,6}[ \t](.*)$", re.MULTILINE)


def decode_text(data: bytes, source: str) -> Decoded:
    """Returns the text as ``clean`` does. Raises DocumentError for data that is not text."""
    read = decode_mostly(data, declared_encoding(data))
    if data and not read.is_text:
        raise DocumentError(f"{source} is not text in any encoding known here", "give a text file, best in UTF-8")
    return read._replace(text=clean(read.text))


def headings(text: str) -> list[Mark]:
    """Returns the headings of a Markdown text, without those in fenced code."""
    matches = _HEADING.finditer(_blank_fences(text))
    return [(m.start(), "heading", m.group(1).strip(" \t#")) for m in matches]


def _blank_fences(text: str) -> str:
    return re.sub(r"^```.*?^```", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.MULTILINE | re.DOTALL)
