"""Decodes text files and the encoding that web pages declare. Finds Markdown headings."""

import re

from localctx.errors import DocumentError
from localctx.library.parsers.encodings import Decoded, decode_mostly
from localctx.library.parsers.text_builder import Mark

_DECLARED = re.compile(rb"""^\s*<[^\0]*?\b(?:charset|encoding)\s*=\s*["']?\s*([-\w]+)""")
_HEADING = re.compile(r"^#{1,6}[ \t](.*)$", re.MULTILINE)


def decode_text(data: bytes, source: str) -> Decoded:
    """Returns the text, with newlines as \\n. Raises DocumentError for data that is not text."""
    read = decode_mostly(data, declared_encoding(data))
    if data and not read.is_text:
        raise DocumentError(f"{source} is not text in any encoding known here", "give a text file, best in UTF-8")
    return read._replace(text=read.text.replace("\r\n", "\n").replace("\r", "\n"))


def declared_encoding(data: bytes) -> str:
    """Returns the encoding that a web page or an XML file declares, or ""."""
    match = _DECLARED.match(data[:1024])
    return match.group(1).decode() if match else ""


def headings(text: str) -> list[Mark]:
    """Returns the headings of a Markdown text, without those in fenced code."""
    matches = _HEADING.finditer(_blank_fences(text))
    return [(m.start(), "heading", m.group(1).strip(" \t#")) for m in matches]


def _blank_fences(text: str) -> str:
    return re.sub(r"^```.*?^```", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.MULTILINE | re.DOTALL)
