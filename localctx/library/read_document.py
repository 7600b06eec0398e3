"""Reads a file or standard input into a Document: its text, its spans, and an id that is a hash of the text.

The kind of a file is decided by its content, then by its name. Plain text, Markdown and CSV are read in this process,
everything else in a child process.
"""

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from localctx.errors import DocumentError
from localctx.file_names import shown_name, stored_path
from localctx.library.parsers.file_kind import kind_of, text_kind
from localctx.library.parsers.plain.markdown import headings
from localctx.library.parsers.sandbox import READ_OPTIONS, Parsed, ReadOptions, parse
from localctx.library.parsers.sheets.csv_text import SUFFIXES, read_csv
from localctx.library.parsers.text import decode_text
from localctx.library.parsers.text_builder import OPTICAL, Mark
from localctx.store.documents import DocumentRow, Span, text_id
from localctx.store.originals import content_id
from localctx.store.word_places import PageBoxes
from localctx.system import open_without_waiting

MAX_BYTES = 512 << 20


@dataclass(frozen=True)
class Document:
    """A document that was read: its row for the library, its text (newlines are \\n), and the spans of its pages and
    headings.

    ``boxes`` are the word boxes of a newly read PDF. They are empty for a stored document, whose boxes are in the
    store.
    """

    row: DocumentRow
    text: str = field(repr=False)
    spans: tuple[Span, ...] = field(repr=False)
    boxes: tuple[PageBoxes, ...] = field(default=(), repr=False)


def read_document(source: str, options: ReadOptions = READ_OPTIONS) -> Document:
    """Read the document at path ``source``; ``-`` is standard input.

    Raises DocumentError for a file that is missing, a folder, empty, too large, damaged or not a document. Raises
    Cancelled.
    """
    shown = "standard input" if source == "-" else shown_name(source)  # the name of the document in messages
    data, modified = (_limited(sys.stdin.buffer, shown), 0) if source == "-" else _file(Path(source))
    name, path = ("stdin", "-") if source == "-" else (shown_name(Path(source).name), recorded_path(source))
    parsed = _parsed(data, name, shown, lambda what, data: parse(what, data, options))
    text, now = parsed.text, time.time()
    if not text.strip():
        raise DocumentError(f"{shown} is empty", "give a file with text in it")
    row = DocumentRow(text_id(text), name, path, parsed.format, len(data), len(text), now, now, modified)
    row = replace(row, content=content_id(data), unread="\n".join(parsed.unread))
    return Document(row, text, tuple(make_spans(parsed.marks, len(text))), parsed.boxes)


def recorded_path(source: str) -> str:
    """Returns the path that the store records for a document read from the file ``source``."""
    return stored_path(str(Path(source).absolute()))


def matches_ocr(form: str, ocr: str) -> bool:
    """Returns True if a document that was stored with the format ``form`` need not be read again for the setting
    ``ocr``.

    ``auto`` accepts every format. For ``on``, a PDF must have been read by OCR; for ``off``, it must have been read
    without OCR.
    """
    wanted = {"on": OPTICAL, "off": "pdf"}.get(ocr)
    return wanted in (None, form) or not form.startswith("pdf")


def make_spans(marks: list[Mark], length: int) -> list[Span]:
    """Returns the spans of a text of ``length`` characters, which ``marks`` begin.

    A span ends where the next mark of its kind begins. A mark with the label "" only ends the span before it.
    """
    spans = []
    for kind in sorted({kind for _, kind, _ in marks}, reverse=True):  # pages, slides, rows before headings
        own = [(start, label) for start, mark_kind, label in marks if mark_kind == kind]
        spans += [Span(start, end, kind, label) for (start, label), (end, _) in pairwise([*own, (length, "")]) if label]
    return sorted(spans, key=lambda s: s.start)


def _parsed(data: bytes, name: str, shown: str, parse_in_child: Callable[[str, bytes], Parsed]) -> Parsed:
    with _named(shown):
        if kind := kind_of(data, name):
            return parse_in_child(kind, data)
    read = decode_text(data, shown)
    text, unread = read.text, (read.unread,) if read.unread else ()
    if kind := text_kind(text, name):
        with _named(shown):
            parsed = parse_in_child(kind, text.encode())
            return replace(parsed, unread=(*unread, *parsed.unread))
    suffix = Path(name).suffix.lower()
    if suffix in SUFFIXES and (table := read_csv(text)):
        return Parsed(read.encoding, *table.done(), unread=unread)
    marks = headings(text) if suffix in (".md", ".markdown") else []
    return Parsed(read.encoding, text, marks, unread=unread)


@contextmanager
def _named(shown: str) -> Iterator[None]:
    """Put the document's name into a DocumentError raised inside the ``with`` block."""
    try:
        yield
    except DocumentError as e:
        raise DocumentError(f"{shown} {e.problem}", e.remedy) from e


def _file(path: Path) -> tuple[bytes, int]:
    """Returns a file's bytes and its modification time in nanoseconds since 1970."""
    shown = shown_name(str(path))
    try:
        about = path.stat()
        if stat.S_ISDIR(about.st_mode):
            raise DocumentError(f"{shown} is a folder", f"add it with: localctx library add {shown}")
        if stat.S_ISCHR(about.st_mode) or stat.S_ISBLK(about.st_mode):
            raise DocumentError(f"{shown} is a device, not a document", "name a text file")
        with open(path, "rb", opener=open_without_waiting) as f:
            return _limited(f, shown), os.fstat(f.fileno()).st_mtime_ns
    except FileNotFoundError as e:
        raise DocumentError(f"{shown} does not exist", "check the name and the folder") from e
    except (OSError, ValueError) as e:
        raise DocumentError(f"{shown} cannot be read ({e})", "check that it is a file you may read") from e


def _limited(stream: BinaryIO, source: str) -> bytes:
    data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise DocumentError(f"{source} is larger than {MAX_BYTES >> 20} MiB", "split it into parts")
    return data
