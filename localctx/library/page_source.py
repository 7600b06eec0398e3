"""Draws the pages of a stored PDF from its source file, as long as that file is unchanged."""

from dataclasses import dataclass
from pathlib import Path

from localctx.errors import DocumentError
from localctx.file_names import real_path
from localctx.library.parsers.sandbox import PageDrawing, draw_page
from localctx.library.parsers.word_boxes import WordBox, unpack
from localctx.store.documents import DocumentRow, Span
from localctx.store.originals import content_id
from localctx.store.store import Store


@dataclass(frozen=True)
class SourceFile:
    """The file from which a stored PDF was read. ``path`` is the path of the file; None means that the store has kept a
    copy.
    """

    document: DocumentRow
    path: Path | None

    def read(self, store: Store) -> bytes:
        """Returns the file's bytes. Raises DocumentError if the file is gone or has changed since it was read."""
        try:
            data = self.path.read_bytes() if self.path else store.originals.read(self.document.id) or b""
        except OSError as e:
            raise DocumentError(f"{self.document.name} cannot be opened", "add it to the library again") from e
        if self.document.content not in ("", content_id(data)) or len(data) != self.document.bytes:
            raise DocumentError(f"{self.document.name} has changed since it was read", "add it to the library again")
        return data


def has_pages(document: DocumentRow) -> bool:
    """Returns True if the document is a PDF, whose pages can be drawn from its file."""
    return document.encoding.startswith("pdf")


def find_source(store: Store, document: DocumentRow) -> SourceFile | str:
    """Returns the file of a stored PDF, or a sentence for the user that says why its pages cannot be shown.

    Prefers the kept original. A file at a path is used only while its size and modification time are unchanged.
    """
    if store.originals.has(document.id):
        return SourceFile(document, None)
    if document.path == "-" or store.originals.is_upload(document.path):
        return "The file itself is not kept: this is the text that was read from it."
    try:
        about = real_path(document.path).stat()
    except (OSError, ValueError):
        return "The file is no longer in its place: this is the text that was read from it."
    if (about.st_size, about.st_mtime_ns) != (document.bytes, document.modified):
        return "The file has changed since it was read: this is the text that was read from it."
    return SourceFile(document, real_path(document.path))


def draw(data: bytes, number: int) -> PageDrawing:
    """Draw page ``number`` (from 0) of a PDF. Raises DocumentError."""
    return draw_page(data, number)


def stored_words(store: Store, document: DocumentRow, number: int, page: Span) -> list[WordBox] | None:
    """Returns the stored boxes of the words on page ``number`` (from 0), or None if there are none. ``page`` is the
    span of the page in the document.

    The positions of the words count from the start of the document's text.
    """
    stored = store.word_places.of_page(document.id, number)
    return _unpacked(stored.words, page.start) if stored else None


def drawn_words(drawing: PageDrawing, text: str, page: Span) -> list[WordBox]:
    """Returns the boxes of the words that were found while a page was drawn. ``page`` is the span of the page in the
    document.

    Returns [] if the drawn page has other words than the document's ``text`` has there.
    """
    same = drawing.text == text[page.start : page.end].strip()
    return _unpacked(drawing.boxes.words, page.start) if same else []


def _unpacked(words: bytes, start: int) -> list[WordBox]:
    try:
        return unpack(words, start)
    except ValueError:
        return []
