"""Reads an EPUB's chapters in reading order. Runs in the child process.

The book's spine, which lists the chapters, is read here. EbookLib, the one widely used library, is AGPL. Others on PyPI
are young or unmaintained (fast-ebook 0.2, epubkit 0.1) and would add lxml and BeautifulSoup to our HTML parser.
Contents pages outside of the spine are not read: they repeat the headings.
"""

import posixpath
import zlib
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import unquote
from zipfile import BadZipFile

from localctx.errors import DocumentError
from localctx.library.parsers import html
from localctx.library.parsers.archive import Archive, local
from localctx.library.parsers.encodings import declared_encoding, decode_mostly
from localctx.library.parsers.text_builder import TextBuilder

MAX_REPEATS = 8  # times that the spine may list a chapter, such as an ornament between others
_PAGES = (".xhtml", ".html", ".htm")


class _Chapter(NamedTuple):
    name: str  # of the zip member of the chapter
    media_type: str


def read(archive: Archive, progress: Callable[[int, int], None]) -> TextBuilder:
    """Returns the book's text. Chapters that are missing or damaged are noted as unread.

    Raises DocumentError if the book is encrypted, or if none of its chapters can be read.
    """
    builder = TextBuilder()
    chapters = _chapters(archive, builder)
    _refuse_locked(archive, chapters)
    _refuse_repeated(chapters)
    for i, chapter in enumerate(chapters):
        _append(archive, chapter, builder)
        progress(i + 1, len(chapters))
    if not builder.length and builder.unread:
        raise DocumentError(f"has no chapter that can be read: {builder.unread[0]}", "get it again")
    return builder


def _append(archive: Archive, chapter: _Chapter, builder: TextBuilder) -> None:
    name = posixpath.basename(chapter.name)[:80]
    if chapter.media_type.startswith("image/") and "svg" not in chapter.media_type:
        builder.note_unread(f"the picture {name}")
        return
    if chapter.name not in archive.names:
        builder.note_unread(f"the chapter {name}, which is missing")
        return
    try:
        data = archive.read(chapter.name)
    except (BadZipFile, zlib.error, EOFError, NotImplementedError):
        builder.note_unread(f"the chapter {name}, which is damaged")
        return
    text = decode_mostly(data, declared_encoding(data))
    if text.unread:
        builder.note_unread(f"{text.unread} in the chapter {name}")
    html.read(text.text, builder)
    builder.line(2)


def _chapters(archive: Archive, builder: TextBuilder) -> list[_Chapter]:
    """Returns the chapters that the book's spine lists. If the spine is damaged, notes this and returns all pages,
    sorted by name.
    """
    try:
        return _spine(archive)
    except (DocumentError, BadZipFile, zlib.error, EOFError) as e:
        pages = sorted(name for name in archive.names if name.lower().endswith(_PAGES))
        if not pages:
            raise DocumentError("is a damaged EPUB file", "get it again") from e
        builder.note_unread("the order of the chapters, which are sorted by name")
        return [_Chapter(name, "") for name in pages]


def _spine(archive: Archive) -> list[_Chapter]:
    container = archive.xml("META-INF/container.xml")
    package = next((path for e in container.iter() if (path := e.get("full-path"))), "")
    elements = list(archive.xml(package).iter())
    items = {e.get("id"): e for e in elements if local(e.tag) == "item"}
    listed = [items[e.get("idref")] for e in elements if local(e.tag) == "itemref" and e.get("idref") in items]
    folder = posixpath.dirname(package)
    return [
        _Chapter(posixpath.normpath(posixpath.join(folder, unquote(href))), item.get("media-type", ""))
        for item in listed
        if (href := item.get("href", "").partition("#")[0])
    ]


def _refuse_locked(archive: Archive, chapters: list[_Chapter]) -> None:
    """Raise DocumentError if chapters are encrypted. Encrypted fonts do not matter."""
    if "META-INF/encryption.xml" in archive.names:
        locked = {unquote(e.get("URI", "")) for e in archive.xml("META-INF/encryption.xml").iter()}
        if not locked.isdisjoint(chapter.name for chapter in chapters):
            raise DocumentError("is locked by its seller (DRM)", "get a copy without DRM")


def _refuse_repeated(chapters: list[_Chapter]) -> None:
    """Raise DocumentError if a chapter is repeated so often that a small file would become a huge text."""
    counts = Counter(chapter.name for chapter in chapters)
    name, count = max(counts.items(), key=lambda item: item[1], default=("", 0))
    if count > MAX_REPEATS:
        raise DocumentError(f"names one chapter ({name[:80]}) {count:,} times", "do not trust it")
