"""Reads e-mail: one message (.eml) or a mailbox of them (.mbox). Runs in the child process.

A message becomes its subject as a heading, sender, receivers and date, then its text, plain or else from HTML.
Attachments are named, and read if they are text or messages.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from email import message_from_bytes, policy
from email.header import decode_header, make_header
from email.message import Message

from localctx.errors import DocumentError, format_bytes
from localctx.library.parsers import html
from localctx.library.parsers.text_builder import TextBuilder

_MAX_NESTED = 8  # depth of messages attached to messages
_MAX_FIELD = 10_000  # characters
_SHOWN = ("From", "To", "Cc", "Date")
_BEGIN = re.compile(rb"(?:\A|(?<=\n\n)|(?<=\r\n\r\n))From [^\n]*\n(?=(?:>?From |[A-Za-z][\w-]*:))")
_QUOTED_FROM = re.compile(rb"^>(>*From )", re.MULTILINE)


def read(data: bytes) -> TextBuilder:
    """Returns the text of one message."""
    builder = TextBuilder()
    _message(data.removeprefix(b"\xef\xbb\xbf").lstrip(), builder)
    return builder


def read_mailbox(data: bytes, progress: Callable[[int, int], None]) -> TextBuilder:
    """Returns the text of all messages of a mailbox. Raises DocumentError if it has none."""
    builder = TextBuilder()
    begins = list(_BEGIN.finditer(data))
    if not begins:
        remedy = "export it from the mail program again; if it is plain text, let its name end in .txt"
        raise DocumentError("is a mailbox without a message", remedy)
    ends = [begin.start() for begin in begins[1:]] + [len(data)]
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True), 1):
        builder.mark("message", str(number))
        _message(_QUOTED_FROM.sub(rb"\1", data[begin.end() : end]), builder)
        builder.line(2)
        progress(number, len(begins))
    return builder


def _message(data: bytes, builder: TextBuilder) -> None:
    """Append one message. Falls back to the older parser of the standard library if the strict one fails."""
    try:
        message: Message = message_from_bytes(data, policy=policy.default)
    except Exception:  # the parser raises many types
        message = message_from_bytes(data, policy=policy.compat32)
    _append(message, builder, 0)


def _append(message: Message, builder: TextBuilder, depth: int) -> None:
    builder.begin_heading()
    builder.words(_field(message, "Subject") or "(no subject)")
    builder.end_heading()
    for name in _SHOWN:
        if value := _field(message, name):
            builder.words(f"{name}: {value}")
            builder.line()
    builder.line(2)
    leaves = list(_leaves(message))
    for part in (p for p in leaves if not _is_attached(p)):
        _text(part, builder)
    for part in (p for p in leaves if _is_attached(p)):
        _attachment(part, builder, depth)


def _field(message: Message, name: str) -> str:
    """Returns a decoded header field. Cuts a very long one, because the parser takes quadratic time."""
    raw = next((str(value) for key, value in message.raw_items() if key.lower() == name.lower()), "")
    if raw and len(raw) <= _MAX_FIELD:
        try:
            return str(make_header(decode_header(raw)) if message.policy is policy.compat32 else message[name])
        except Exception:  # odd fields raise many types
            pass
    return raw[:_MAX_FIELD]


def _leaves(message: Message) -> Iterator[Message]:
    """Yields the parts without subparts, in order, and of alternatives only the preferred one."""
    waiting = [message]
    while waiting:
        part = waiting.pop()
        parts = _parts(part) if part.get_content_maintype() == "multipart" else []
        if not parts:
            yield part
        elif part.get_content_subtype() == "alternative":
            waiting.append(_preferred(parts))
        else:
            waiting += reversed(parts)


def _parts(part: Message) -> list[Message]:
    payload = part.get_payload()
    return [p for p in payload if isinstance(p, Message)] if isinstance(payload, list) else []


def _preferred(parts: Sequence[Message]) -> Message:
    """Returns the plain text unless it is empty, else HTML or a multipart, else the first part."""
    plain = [p for p in parts if p.get_content_type() == "text/plain" and _decoded(p).strip()]
    rich = [p for p in parts if p.get_content_type() == "text/html" or p.get_content_maintype() == "multipart"]
    return [*plain, *rich, *parts][0]


def _is_attached(part: Message) -> bool:
    named = part.get_content_disposition() == "attachment" or part.get_filename()
    return bool(named) or part.get_content_maintype() not in ("text", "multipart")  # a multipart without parts is text


def _text(part: Message, builder: TextBuilder) -> None:
    """Append a text part. HTML headings are not marked: a message's only heading is its subject."""
    text = _decoded(part)
    if part.get_content_subtype() == "html":
        html.read(text, page := TextBuilder())
        text, _ = page.done()
    builder.verbatim(text.strip())
    builder.line(2)


def _attachment(part: Message, builder: TextBuilder, depth: int) -> None:
    kind, parts = part.get_content_type(), _parts(part)
    if kind == "message/rfc822" and parts:
        builder.words("Attached message:" if depth < _MAX_NESTED else "Attached message, not read")
        builder.line(2)
        if depth < _MAX_NESTED:
            _append(parts[0], builder, depth + 1)
        return
    content = part.get_payload(decode=True)
    size = len(content) if isinstance(content, bytes) else 0
    shown_in_text = part.get("Content-ID") and part.get_content_disposition() != "attachment"
    if not (shown_in_text and part.get_content_maintype() == "image"):
        builder.words(f"Attachment: {part.get_filename() or 'without a name'} ({kind}, {format_bytes(size)})")
        builder.line(2)
    if part.get_content_maintype() == "text":
        _text(part, builder)


def _decoded(part: Message) -> str:
    content = part.get_payload(decode=True)
    data = content if isinstance(content, bytes) else b""
    try:
        return data.decode(part.get_content_charset() or "utf-8")
    except (ValueError, LookupError):  # also for an unknown charset
        return data.decode("cp1252", "replace")
