"""A file or standard input to a Document: text, where its parts are, and an id made of the text alone."""

import codecs
import hashlib
import re
import stat
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from localctx.errors import DocumentError
from localctx.store.documents import DocumentRow, Span

MAX_BYTES = 512 << 20
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_FORMATS = {b"%PDF": "a PDF", b"PK\x03\x04": "a Word, EPUB or zip file", b"\xd0\xcf\x11\xe0": "an Office file"}
_HEADING = re.compile(r"^(#{1,6})[ \t]+(.+?)[ \t]*#*$", re.MULTILINE)


@dataclass(frozen=True)
class Document:
    """A document as read: its listing, its text (newlines are \\n) and its spans."""

    row: DocumentRow
    text: str = field(repr=False)
    spans: tuple[Span, ...] = field(repr=False)


def read_document(source: str) -> Document:
    """The text document at path ``source``, or on standard input for ``-``.

    Raises DocumentError for what is missing, a folder, empty, too large or not text.
    """
    data = _limited(sys.stdin.buffer, source) if source == "-" else _file(Path(source))
    text, encoding = decode_text(data, source)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise DocumentError(f"{source} is empty", "give a file with text in it")
    name, path = ("stdin", "-") if source == "-" else (Path(source).name, str(Path(source).absolute()))
    now = time.time()
    row = DocumentRow(hashlib.sha256(text.encode()).hexdigest(), name, path, encoding, len(data), len(text), now, now)
    return Document(row, text, tuple(headings(text)) if name.endswith((".md", ".markdown")) else ())


def decode_text(data: bytes, source: str) -> tuple[str, str]:
    """Text and the encoding it was in: by byte order mark, as UTF-8, or by detection. Raises DocumentError."""
    for magic, kind in _FORMATS.items():
        if data.startswith(magic):
            raise DocumentError(f"{source} is {kind}, not text", "export it as plain text first")
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return _decode(data, encoding, source), encoding
    if b"\0" not in data:
        try:
            return data.decode("utf-8"), "utf-8"
        except UnicodeDecodeError:
            pass
    return _detect(data, source)


def headings(text: str) -> list[Span]:
    """Markdown's headings; each span reaches to the next heading. Fenced code is passed over."""
    found = list(_HEADING.finditer(_blank_fences(text)))
    ends = [m.start() for m in found[1:]] + [len(text)]
    return [Span(m.start(), end, "heading", m.group(2)) for m, end in zip(found, ends, strict=True)]


def _blank_fences(text: str) -> str:
    return re.sub(r"^```.*?^```", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.MULTILINE | re.DOTALL)


def _file(path: Path) -> bytes:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise DocumentError(f"{path} is a folder", f"name its files, for example {path}/*.txt")
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise DocumentError(f"{path} is a device, not a document", "name a text file")
        with path.open("rb") as f:
            return _limited(f, str(path))
    except FileNotFoundError as e:
        raise DocumentError(f"{path} does not exist", "check the name and the folder") from e
    except (OSError, ValueError) as e:
        raise DocumentError(f"{path} cannot be read ({e})", "check that it is a file you may read") from e


def _limited(stream: object, source: str) -> bytes:
    data: bytes = stream.read(MAX_BYTES + 1)  # type: ignore[attr-defined]
    if len(data) > MAX_BYTES:
        raise DocumentError(f"{source} is larger than {MAX_BYTES >> 20} MiB", "split it into parts")
    return data


def _decode(data: bytes, encoding: str, source: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as e:
        raise DocumentError(f"{source} begins as {encoding} but is not ({e.reason})", "save it as UTF-8") from e


def _detect(data: bytes, source: str) -> tuple[str, str]:
    from charset_normalizer import from_bytes

    best = from_bytes(data).best() if data else None
    if data and (best is None or _looks_binary(str(best))):
        raise DocumentError(f"{source} is not text in any encoding known here", "give a text file, best in UTF-8")
    return (str(best), best.encoding) if best else ("", "utf-8")


def _looks_binary(text: str) -> bool:
    control = sum(not c.isprintable() and c not in "\n\r\t\f" for c in text)
    return control > len(text) // 100
