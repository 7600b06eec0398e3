"""Decodes text files, or refuses what is no text."""

from localctx.errors import DocumentError
from localctx.library.parsers.encodings import Decoded, declared_encoding, decode_mostly
from localctx.library.parsers.text_builder import clean


def decode_text(data: bytes, source: str) -> Decoded:
    """Returns the text as ``clean`` does. Raises DocumentError for data that is not text."""
    read = decode_mostly(data, declared_encoding(data))
    if data and not read.is_text:
        raise DocumentError(f"{source} is not text in any encoding known here", "give a text file, best in UTF-8")
    return read._replace(text=clean(read.text))
