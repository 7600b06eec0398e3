"""Reads a file or standard input into a Document: its text, its spans, and an id that is a hash of the text.

The content of a file decides its kind, and only then its name. Everything but text is parsed in a child process.
"""

import os
import re
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from localctx.errors import DocumentError
from localctx.library.sandbox import Parsed, parse
from localctx.library.text import decode_text, headings
from localctx.library.text_builder import OPTICAL, Mark
from localctx.store.documents import DocumentRow, Span, text_id

MAX_BYTES = 512 << 20
_OTHERS = {
    b"\xd0\xcf\x11\xe0": ("an old Office file, or a new one with a password", "save it as .docx without a password"),
    **dict.fromkeys(
        (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"II*\0", b"MM\0*"),
        ("a picture", "turn what is written in it into text with an OCR program first"),
    ),
    b"{\\rtf": ("an RTF file", "save it as .docx"),
    b"\x1f\x8b": ("compressed", "unpack it first"),
}
_HTML = re.compile(r"\s*(<\?xml[^>]*>\s*|<!--.*?-->\s*)*<(!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[a-zA-Z/!]")


@dataclass(frozen=True)
class Document:
    """A document: its row in the library, its text (newlines are \\n), and the spans of its pages and headings."""

    row: DocumentRow
    text: str = field(repr=False)
    spans: tuple[Span, ...] = field(repr=False)


def _no_progress(done: int, total: int) -> None:
    pass


def read_document(
    source: str,
    progress: Callable[[int, int], None] = _no_progress,
    ocr: str = "auto",
    cancelled: Callable[[], bool] = lambda: False,
) -> Document:
    """Reads the document at path ``source``; ``-`` is standard input. Calls ``progress(pages done, pages in all)``.

    ``ocr`` selects the pages of a PDF that are read optically: ``auto`` (those without text), ``on`` (all), ``off``.
    Raises DocumentError for a file that is missing, a folder, empty, too large, damaged or not a document; Cancelled.
    """
    shown = "standard input" if source == "-" else source  # in messages
    data, modified = (_limited(sys.stdin.buffer, shown), 0) if source == "-" else _file(Path(source))
    name, path = ("stdin", "-") if source == "-" else (Path(source).name, str(Path(source).absolute()))
    parsed = _parsed(data, name, shown, lambda what, data: parse(what, data, progress, ocr=ocr, cancelled=cancelled))
    text, now = parsed.text, time.time()
    if not text.strip():
        raise DocumentError(f"{shown} is empty", "give a file with text in it")
    row = DocumentRow(text_id(text), name, path, parsed.format, len(data), len(text), now, now, modified)
    return Document(row, text, tuple(make_spans(parsed.marks, len(text))))


def matches_ocr(form: str, ocr: str) -> bool:
    """Returns True if reading the same file again with this ``ocr`` would give text of the format ``form``."""
    wanted = {"on": OPTICAL, "off": "pdf"}.get(ocr)
    return wanted in (None, form) or not form.startswith("pdf")


def make_spans(marks: list[Mark], length: int) -> list[Span]:
    """Returns the spans of a text of ``length`` characters; each ends where the next of its kind begins."""
    spans = []
    for kind in sorted({kind for _, kind, _ in marks}, reverse=True):  # pages before headings
        own = [(start, label) for start, mark_kind, label in marks if mark_kind == kind]
        spans += [Span(start, end, kind, label) for (start, label), (end, _) in pairwise([*own, (length, "")])]
    return sorted(spans, key=lambda s: s.start)


def _parsed(data: bytes, name: str, shown: str, parse_in_child: Callable[[str, bytes], Parsed]) -> Parsed:
    if kind := _kind(data, shown):
        return _with_name(kind, data, shown, parse_in_child)
    text, encoding = decode_text(data, shown)
    suffix = Path(name).suffix.lower()
    if _HTML.match(text[:4096]) or (suffix in (".html", ".htm", ".xhtml") and _TAG.search(text)):
        return _with_name("html", text.encode(), shown, parse_in_child)
    return Parsed(encoding, text, headings(text) if suffix in (".md", ".markdown") else [])


def _kind(data: bytes, shown: str) -> str:
    """Returns ``pdf``, ``zip``, or empty text where it may be text. Raises DocumentError for unsupported formats."""
    head = data[:1024]
    if head.lstrip().startswith(b"%PDF-") or (b"%PDF-" in head and b"%%EOF" in data[-1024:]):
        return "pdf"
    if data.startswith((b"PK\3\4", b"PK\5\6")):
        return "zip"
    for magic, (kind, remedy) in _OTHERS.items():
        if data.startswith(magic):
            raise DocumentError(f"{shown} is {kind}", remedy)
    return ""


def _with_name(kind: str, data: bytes, shown: str, parse_in_child: Callable[[str, bytes], Parsed]) -> Parsed:
    """Parses in the child process; puts the document's name into the error it raises."""
    try:
        return parse_in_child(kind, data)
    except DocumentError as e:
        raise DocumentError(f"{shown} {e.problem}", e.remedy) from e


def _file(path: Path) -> tuple[bytes, int]:
    """Returns a file's bytes and the time of its last change, in nanoseconds since 1970."""
    try:
        about = path.stat()
        if stat.S_ISDIR(about.st_mode):
            raise DocumentError(f"{path} is a folder", f"add it with: localctx library add {path}")
        if stat.S_ISCHR(about.st_mode) or stat.S_ISBLK(about.st_mode):
            raise DocumentError(f"{path} is a device, not a document", "name a text file")
        with open(path, "rb", opener=_open_without_waiting) as f:
            return _limited(f, str(path)), os.fstat(f.fileno()).st_mtime_ns
    except FileNotFoundError as e:
        raise DocumentError(f"{path} does not exist", "check the name and the folder") from e
    except (OSError, ValueError) as e:
        raise DocumentError(f"{path} cannot be read ({e})", "check that it is a file you may read") from e


def _open_without_waiting(path: str, flags: int) -> int:
    """Opens a named pipe even if no process writes into it, which would otherwise block for ever; it reads as empty."""
    fd = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(fd, True)
    return fd


def _limited(stream: BinaryIO, source: str) -> bytes:
    data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise DocumentError(f"{source} is larger than {MAX_BYTES >> 20} MiB", "split it into parts")
    return data
