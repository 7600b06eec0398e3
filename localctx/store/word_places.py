"""Stores the positions of words on the pages of documents, as packed boxes. ``library.parsers.word_boxes`` packs and
unpacks these boxes.
"""

from collections.abc import Iterable
from typing import NamedTuple

from sqlite_utils import Database


class PageBoxes(NamedTuple):
    """The boxes of the words on one page, packed in ``words``. ``page`` is the index of the page (from 0); ``width``
    and ``height`` are in points.
    """

    page: int
    width: float
    height: float
    words: bytes


class WordPlaces:
    """The boxes of the words on documents' pages, in a store."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def add(self, document: str, pages: Iterable[PageBoxes]) -> None:
        """Store the word boxes of a stored document's pages. Earlier boxes of these pages are replaced."""
        self._db.table("word_boxes").insert_all(({"document": document, **p._asdict()} for p in pages), replace=True)

    def of_page(self, document: str, page: int) -> PageBoxes | None:
        """Returns the word boxes of a page (from 0), or None."""
        rows = self._db.query(
            "SELECT page, width, height, words FROM word_boxes WHERE document = ? AND page = ?", [document, page]
        )
        return next((PageBoxes(**row) for row in rows), None)

    def remove_document(self, document: str) -> None:
        """Remove the word boxes of a document."""
        self._db.execute("DELETE FROM word_boxes WHERE document = ?", [document])
