"""Splits RTF into tokens, and finds Python's codecs for the code pages of its fonts."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from localctx.library.parsers.encodings import codec_name

_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,40})(-?\d+)? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|[\r\n]+|([^\\{}\r\n]+)|\\", re.DOTALL
)
_CHARSETS = {
    **{0: 1252, 77: 10000, 128: 932, 129: 949, 134: 936, 136: 950, 161: 1253, 162: 1254, 163: 1258, 177: 1255},
    **{178: 1256, 186: 1257, 204: 1251, 222: 874, 238: 1250, 254: 437, 255: 850},
}
"""Windows code pages by the numbers of RTF's character sets of fonts."""

_SYMBOLS = 42  # the code page of symbol fonts: its bytes are places in the font
_OTHER_NAMES = {
    **{10000: "mac-roman", 10006: "mac-greek", 10007: "mac-cyrillic", 10029: "mac-latin2", 10081: "mac-turkish"},
    **{20866: "koi8-r", 21866: "koi8-u", 54936: "gb18030"},
    **{28590 + part: f"iso-8859-{part}" for part in range(1, 17)},
}
"""Code pages that Python does not know by their numbers."""

LARGEST = 1 << 31
"""The largest number of a control word. Larger ones, which are forged, are reduced to it."""


class RtfToken(NamedTuple):
    """A token of RTF: a brace, a control word with its number, a control symbol, or bytes of text."""

    kind: str  # "{", "}", "word", "symbol" or "bytes"
    name: str = ""
    value: int | None = None
    data: bytes = b""


def tokens(data: bytes) -> Iterator[RtfToken]:
    """Yields the tokens of an RTF file. Skips binary data."""
    at = 0
    while found := _TOKEN.match(data, at):
        at = found.end()
        word, value, code, symbol, brace, text = found.groups()
        if word == b"bin":
            at += max(0, _number(value) or 0)
        elif word:
            yield RtfToken("word", word.decode(), _number(value))
        elif code:
            yield RtfToken("bytes", "code", None, bytes([int(code, 16)]))
        elif symbol:
            yield RtfToken("symbol", symbol.decode("latin-1"))
        elif brace:
            yield RtfToken(brace.decode())
        elif text:
            yield RtfToken("bytes", "", None, text)


def _number(digits: bytes | None) -> int | None:
    """Returns the number of a control word, at most LARGEST; None if it has no number."""
    return None if digits is None else max(-LARGEST, min(LARGEST, int(digits[:12])))


def codec_of(code_page: int) -> str:
    """Returns the name of Python's codec for a Windows code page; cp1252 if the code page is unknown."""
    if code_page == _SYMBOLS:
        return "latin-1"
    return codec_name(_OTHER_NAMES.get(code_page, f"cp{code_page}")) or "cp1252"


def codec_of_charset(charset: int, default: str) -> str:
    """Returns the codec for the number of a font's character set; ``default`` if the number is unknown."""
    page = _CHARSETS.get(charset)
    return codec_of(page) if page else default


def joined_surrogates(text: str) -> str:
    """Returns ``text`` with each pair of surrogates (the two halves of a character such as an emoji) joined to one
    character.
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
