"""A file or standard input to a Document: text, where its parts are, and an id made of the text alone."""

import codecs
import re
import stat
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from localctx.errors import DocumentError
from localctx.store.documents import DocumentRow, Span, text_id

MAX_BYTES = 512 << 20
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CODE_PAGES = (
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "iso8859_2", "koi8_r"),
    *("cp932", "euc_jp", "gb18030", "big5", "cp949", "utf_16_le", "utf_16_be", "cp437", "cp850"),
)  # what files without a mark are in; detection among all that Python knows finds exotic ones in plain French
_SYMBOL_IN_WORD = re.compile(r"[^\W\d_][\xa1-\xa9\xab-\xb4\xb6\xb8\xb9\xbb-\xbf][^\W\d_]")
_FORMATS = {b"%PDF": "a PDF", b"PK\x03\x04": "a Word, EPUB or zip file", b"\xd0\xcf\x11\xe0": "an Office file"}
_HEADING = re.compile(r"^#{1,6}[ \t](.*)$", re.MULTILINE)


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
    shown = "standard input" if source == "-" else source
    text, encoding = decode_text(data, shown)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise DocumentError(f"{shown} is empty", "give a file with text in it")
    name, path = ("stdin", "-") if source == "-" else (Path(source).name, str(Path(source).absolute()))
    now = time.time()
    row = DocumentRow(text_id(text), name, path, encoding, len(data), len(text), now, now)
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
    if not found:
        return []
    ends = [m.start() for m in found[1:]] + [len(text)]
    return [Span(m.start(), end, "heading", m.group(1).strip(" \t#")) for m, end in zip(found, ends, strict=True)]


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


def _limited(stream: BinaryIO, source: str) -> bytes:
    data = stream.read(MAX_BYTES + 1)
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

    found = from_bytes(data, cp_isolation=list(_CODE_PAGES)) if data else None
    best = found.best() if found else None
    western = next((m for m in found or () if m.encoding == "cp1252"), None)
    if best and western and best.coherence - western.coherence < 0.05 and western.chaos - best.chaos < 0.1:
        best = best if _SYMBOL_IN_WORD.search(str(western)) else western  # the commonest, where it is as likely
    if data and (best is None or _looks_binary(str(best))):
        raise DocumentError(f"{source} is not text in any encoding known here", "give a text file, best in UTF-8")
    return (str(best), best.encoding) if best else ("", "utf-8")


def _looks_binary(text: str) -> bool:
    control = sum(not c.isprintable() and c not in "\n\r\t\f" for c in text)
    return control > len(text) // 100
