"""Reads one e-mail message: subject as a heading, sender, receivers, date, text, and attached files.

The plain text is read if there is one, else the HTML text. Attached files are read if localctx reads their kind, else
only named.
"""

import binascii
import quopri
from collections.abc import Callable, Iterator, Sequence
from email import message_from_bytes, policy
from email.message import Message

from localctx.document_parts import name_part, tell_part
from localctx.errors import DocumentError, format_bytes
from localctx.library.parsers import html
from localctx.library.parsers.mail.fields import charset, field, file_name, text_of
from localctx.library.parsers.text_builder import TextBuilder

ReadFile = Callable[[bytes, str, str], TextBuilder | str]
"""Reads an attached file, given its bytes, its name, and its declared encoding.

Returns its text, or ``eml`` if it is a message. Raises DocumentError for a file that cannot be read.
"""

_MAX_NESTED = 8  # depth of messages attached to messages
_SHOWN = ("From", "To", "Cc", "Date")
_MESSAGES = ("message/rfc822", "message/global", "message/news")
_DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "base64": binascii.a2b_base64,
    "quoted-printable": quopri.decodestring,
}


def read(data: bytes, read_file: ReadFile) -> TextBuilder:
    """Returns the text of one message. ``read_file`` reads attached files."""
    builder = TextBuilder()
    append_message(data.removeprefix(b"\xef\xbb\xbf").lstrip(), builder, read_file)
    return builder


def append_message(data: bytes, builder: TextBuilder, read_file: ReadFile) -> None:
    """Append the text of one message, given as bytes, to ``builder``. ``read_file`` reads attached files."""
    _Writer(builder, read_file).message(_parsed(data), 0)


class _Writer:
    """Appends a message, and the messages and files attached to it."""

    def __init__(self, builder: TextBuilder, read_file: ReadFile) -> None:
        self._builder, self._read_file = builder, read_file

    def message(self, message: Message, depth: int) -> None:
        """Append a message that is attached at this depth."""
        builder, subject = self._builder, field(message, "Subject") or "(no subject)"
        builder.begin_heading()
        builder.words(subject)
        builder.end_heading()
        for name in _SHOWN:
            if value := field(message, name):
                builder.words(f"{name}: {value}")
                builder.line()
        builder.line(2)
        leaves = list(_leaves(message))
        for part in (p for p in leaves if not _is_attached(p)):
            self._text(part, f"the message {subject}")
        for part in (p for p in leaves if _is_attached(p)):
            self._attachment(part, depth)

    def _text(self, part: Message, where: str) -> None:
        """Append a text part. HTML headings are not marked as headings, because the only heading of a message is its
        subject.
        """
        text, unread = text_of(part)
        if unread:
            self._builder.note_unread(f"{unread} in {where}")
        if part.get_content_subtype() == "html":
            html.read(text, page := TextBuilder())
            text, _ = page.done()
        self._builder.verbatim(text.strip())
        self._builder.line(2)

    def _attachment(self, part: Message, depth: int) -> None:
        if part.get_content_maintype() == "message" and (parts := _parts(part)):
            if part.get_content_type() in _MESSAGES:
                self._attached_message(_inner(part, parts[0]), depth)
            else:  # the fields of a delivery report
                self._builder.verbatim("\n".join(p.as_string() for p in parts).strip())
                self._builder.line(2)
            return
        content = part.get_payload(decode=True)
        data, name = content if isinstance(content, bytes) else b"", file_name(part)
        shown_in_text = part.get("Content-ID") and part.get_content_disposition() != "attachment"
        if shown_in_text and part.get_content_maintype() == "image":
            return
        self._builder.words(
            f"Attachment: {name or 'without a name'} ({part.get_content_type()}, {format_bytes(len(data))})"
        )
        self._builder.line(2)
        self._file(part, data, name, depth)

    def _file(self, part: Message, data: bytes, name: str, depth: int) -> None:
        """Append the text of an attached file, or note that it is not read."""
        called = f"the attachment {name}".rstrip()
        try:
            read = self._read_file(data, name, charset(part))
        except DocumentError as e:
            self._builder.note_unread(f"{called} ({e.problem.removeprefix('is ')})")
            return
        if read == "eml":
            self._attached_message(_parsed(data), depth)
        elif isinstance(read, TextBuilder):
            self._append(read, name, called)

    def _append(self, read: TextBuilder, name: str, called: str) -> None:
        """Append the text of the file ``name`` under a heading with the name. If the file has pages or slides, each has
        a heading with the name and the page or slide.
        """
        text, marks = read.done()
        start = self._builder.length
        self._builder.verbatim(text)
        self._builder.line(2)
        parts = [(at, name_part(kind, label)) for at, kind, label in marks if kind in ("page", "slide")]
        for at, part in parts or [(0, "")]:
            self._builder.mark("heading", f"{name}, {tell_part(part)}" if part else name, start + at)
        for line in read.unread:
            self._builder.note_unread(f"{line} in {called}")

    def _attached_message(self, message: Message, depth: int) -> None:
        if depth >= _MAX_NESTED:
            self._builder.words("Attached message, not read")
            self._builder.note_unread(f"a message attached to {_MAX_NESTED} others inside each other")
        else:
            self._builder.words("Attached message:")
        self._builder.line(2)
        if depth < _MAX_NESTED:
            self.message(message, depth + 1)


def _parsed(data: bytes) -> Message:
    """Parse a message and return it. Falls back to the older parser of the standard library if the strict one fails."""
    try:
        return message_from_bytes(data, policy=policy.default)
    except Exception:  # the parser raises many types
        return message_from_bytes(data, policy=policy.compat32)


def _inner(part: Message, message: Message) -> Message:
    """Returns an attached message. If it was sent as base64, it is decoded here, because the standard library takes the
    base64 for the text of the message.
    """
    decode = _DECODERS.get(str(part.get("Content-Transfer-Encoding", "")).strip().lower())
    if not decode:
        return message
    try:
        return _parsed(decode(message.as_bytes(policy=policy.compat32)).lstrip())
    except ValueError:
        return message


def _leaves(message: Message) -> Iterator[Message]:
    """Yields the parts of a message that have no subparts, in order. Of several alternatives, yields only the preferred
    one.
    """
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
    """Returns the preferred one of alternative parts: the plain text unless it is empty, else HTML or a multipart, else
    the first part.
    """
    plain = [p for p in parts if p.get_content_type() == "text/plain" and text_of(p)[0].strip()]
    rich = [p for p in parts if p.get_content_type() == "text/html" or p.get_content_maintype() == "multipart"]
    return [*plain, *rich, *parts][0]


def _is_attached(part: Message) -> bool:
    named = part.get_content_disposition() == "attachment" or file_name(part)
    return bool(named) or part.get_content_maintype() not in ("text", "multipart")  # a multipart without parts is text
