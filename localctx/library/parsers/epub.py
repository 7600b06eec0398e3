"""Reads an EPUB's chapters in reading order. Runs in the child process.

Reads the book's spine itself. EbookLib, the one widely used library, is AGPL. Others on PyPI are young or unmaintained
(fast-ebook 0.2, epubkit 0.1) and would add lxml and BeautifulSoup to our HTML parser.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterator
from urllib.parse import unquote

from localctx.errors import DocumentError
from localctx.library.parsers import html
from localctx.library.parsers.archive import Archive, local
from localctx.library.parsers.text_builder import TextBuilder

MAX_REPEATS = 8  # times that the spine may list a chapter, such as an ornament between others
_ENCODING = re.compile(rb"""^[^>]*encoding=["']([-\w]+)""")


def read(archive: Archive, progress: Callable[[int, int], None]) -> TextBuilder:
    """Returns the book's text. Raises DocumentError for a book that is encrypted, damaged or without chapters."""
    builder = TextBuilder()
    chapters = list(_chapters(archive))
    _refuse_locked(archive, chapters)
    _refuse_repeated(chapters)
    for i, chapter in enumerate(chapters):
        html.read(_decode(archive.read(chapter)), builder)
        builder.line(2)
        progress(i + 1, len(chapters))
    return builder


def _chapters(archive: Archive) -> Iterator[str]:
    """Yields the names of the zip members that the book's spine lists."""
    container = archive.xml("META-INF/container.xml")
    package = next((path for e in container.iter() if (path := e.get("full-path"))), "")
    elements = list(archive.xml(package).iter())
    items = {e.get("id"): e.get("href", "") for e in elements if local(e.tag) == "item"}
    for reference in (e.get("idref") for e in elements if local(e.tag) == "itemref"):
        if href := items.get(reference):
            yield posixpath.normpath(posixpath.join(posixpath.dirname(package), unquote(href)))


def _refuse_locked(archive: Archive, chapters: list[str]) -> None:
    """Raise DocumentError if chapters are encrypted. Encrypted fonts do not matter."""
    if "META-INF/encryption.xml" in archive.names:
        locked = {unquote(e.get("URI", "")) for e in archive.xml("META-INF/encryption.xml").iter()}
        if not locked.isdisjoint(chapters):
            raise DocumentError("is locked by its seller (DRM)", "get a copy that is not")


def _refuse_repeated(chapters: list[str]) -> None:
    """Raise DocumentError if a chapter is repeated so often that a small file would become a huge text."""
    name, count = max(Counter(chapters).items(), key=lambda item: item[1], default=("", 0))
    if count > MAX_REPEATS:
        raise DocumentError(f"names one chapter ({name[:80]}) {count:,} times", "do not trust it")


def _decode(chapter: bytes) -> str:
    """Decode XHTML, which is UTF-8 unless it has a UTF-16 mark or declares another encoding."""
    marked = "utf-16" if chapter[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    declared = _ENCODING.match(chapter[:200])
    try:
        return chapter.decode(declared.group(1).decode() if declared and marked != "utf-16" else marked, "replace")
    except LookupError:
        return chapter.decode("utf-8", "replace")
