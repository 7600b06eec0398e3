"""Where the words of stored documents stand on their pages; ``library.parsers.word_boxes`` packs and unpacks them."""

from collections.abc import Iterable
from typing import NamedTuple

from sqlite_utils import Database


class PageBoxes(NamedTuple):
    """The words of one page, counted from 0: the page's width and height in points, and the packed boxes."""

    page: int
    width: float
    height: float
    words: bytes


class WordPlaces:
    """The boxes of words in a store."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def add(self, document: str, pages: Iterable[PageBoxes]) -> None:
        """Store the boxes of a stored document's pages, in place of those that are stored of these pages."""
        self._db.table("word_boxes").insert_all(({"document": document, **p._asdict()} for p in pages), replace=True)

    def of_page(self, document: str, page: int) -> PageBoxes | None:
        """Returns the boxes of a page, counted from 0, or None."""
        rows = self._db.query(
            "SELECT page, width, height, words FROM word_boxes WHERE document = ? AND page = ?", [document, page]
        )
        return next((PageBoxes(**row) for row in rows), None)

    def remove_document(self, document: str) -> None:
        """Remove the boxes of a document."""
        self._db.execute("DELETE FROM word_boxes WHERE document = ?", [document])
