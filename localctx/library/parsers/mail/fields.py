"""Decodes the header fields, file names and texts of messages, even if they declare a wrong encoding.

Python's email package divides messages into parts. The texts are decoded here, because that package decodes strictly as
declared.
"""

import re
from email.errors import MessageError
from email.header import decode_header
from email.message import Message

from localctx.library.parsers.encodings import declared_encoding, decode_mostly

_FOLD = re.compile(r"\s*[\r\n]+\s*")
_NAME = re.compile(r"""name\s*=\s*"?([^";]+)""", re.IGNORECASE)
_WORD = re.compile(r"=\?[^?\s]+\?[bqBQ]\?[^?]*\?=")


def field(message: Message, name: str) -> str:
    """Returns the decoded header field ``name`` of a message, or "" if it has none."""
    raw = next((str(value) for key, value in message.raw_items() if key.lower() == name.lower()), "")
    return decoded_words(raw, charset(message))


def decoded_words(raw: str, declared: str = "") -> str:
    """Returns ``raw``, the text of a header field, with its encoded words (RFC 2047) decoded.

    ``declared`` is the encoding of bytes outside of encoded words.
    """
    text = decode_mostly(raw.encode("utf-8", "surrogateescape"), declared).text
    text = _FOLD.sub(" ", text)
    if not _WORD.search(text):
        return text.strip()
    try:
        return "".join(_part(part, name or "") for part, name in decode_header(text)).strip()
    except (MessageError, ValueError):  # base64 cut short
        return text.strip()


def text_of(part: Message) -> tuple[str, str]:
    """Returns the text of a message's part, and a line with the number of bytes that fit no encoding, or ""."""
    content = part.get_payload(decode=True)
    data = content if isinstance(content, bytes) else b""
    declared = charset(part)
    if not declared and part.get_content_subtype() in ("html", "xhtml+xml", "xml"):
        declared = declared_encoding(data)
    read = decode_mostly(data, declared)
    return read.text, read.unread


def charset(part: Message) -> str:
    """Returns the encoding that a part declares, or ""."""
    try:
        return part.get_content_charset() or ""
    except (ValueError, LookupError, MessageError):
        return ""


def file_name(part: Message) -> str:
    """Returns the name of an attached file, or ""."""
    try:
        name = part.get_filename() or ""
    except Exception:  # odd fields raise many types
        return ""
    if "\ufffd" in name:  # the email package drops bytes that are not ASCII
        match = _NAME.search(field(part, "Content-Disposition")) or _NAME.search(field(part, "Content-Type"))
        name = match[1] if match else name
    return " ".join(decoded_words(name).split())


def _part(part: bytes | str, name: str) -> str:
    if isinstance(part, str):
        return part
    if not name:
        return part.decode("raw-unicode-escape", "replace")
    return decode_mostly(part, name.partition("*")[0]).text
