"""Decodes text files. Refuses files that are not text."""

from localctx.errors import DocumentError
from localctx.library.parsers.encodings import Decoded, declared_encoding, decode_mostly
from localctx.library.parsers.text_builder import clean


def decode_text(data: bytes, source: str) -> Decoded:
    """Returns the decoded text, cleaned by ``clean``. Raises DocumentError for data that is not text.

    ``source`` names the file in the error message.
    """
    read = decode_mostly(data, declared_encoding(data))
    if data and not read.is_text:
        raise DocumentError(f"{source} is not text in a known encoding", "save it as a text file in UTF-8")
    return read._replace(text=clean(read.text))
