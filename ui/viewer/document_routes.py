"""Answers the viewer's HTTP requests: a page or section as JSON, a page as an image, a search for words.

A request names a document by its id and a page by its number; it cannot name a file. Responses tell browsers not to
store them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from starlette.responses import JSONResponse, Response

from localctx.errors import DocumentError, StoreError
from localctx.library import page_source
from localctx.library.parsers.sandbox import PageDrawing
from localctx.library.parsers.word_boxes import WordBox
from localctx.store.documents import StoredDocument
from localctx.store.store import Store
from localctx.ui.viewer import viewer_parts
from localctx.ui.viewer.drawn_pages import DrawnPages
from localctx.ui.viewer.text_layout import layout
from localctx.ui.viewer.viewer_parts import DocumentPart
from localctx.ui.window import AppWindow

PREFIX = "/documents/"
_UNSTORED = {"cache-control": "no-store"}
_CANNOT_BE_DRAWN = "This page cannot be drawn: this is the text that was read from it."


def add_routes(app: FastAPI, window: AppWindow) -> None:
    """Add the viewer's routes to ``app``. Call this before a catch-all route is added."""
    pages = ViewerPages(window)
    for path, answer in (("part", pages.part), ("search", pages.search), ("pages/{number}", pages.image)):
        app.get(f"{PREFIX}{{document}}/{path}")(answer)


class ViewerPages:
    """Answers the viewer's HTTP requests from the store of a window. For an unknown document, the status is 404."""

    def __init__(self, window: AppWindow) -> None:
        self._window, self._drawn = window, DrawnPages()

    def part(self, document: str, at: int = 0, number: int = 0, label: str | None = None) -> Response:
        """Returns one page or section as JSON, with its text and word boxes.

        Chooses the part with the ``label`` if it is given, else the part with the ``number`` (from 1), else the part
        that has the character ``at``. A word box has the word's start and end in the text, and its edges in 65,535ths
        of the page's width and height.
        """
        try:
            with self._window.store() as store:
                if not (stored := store.documents.stored(document)):
                    return _missing()
                parts = viewer_parts.divide(stored)
                chosen = number - 1 if number else viewer_parts.part_at(parts, at)
                found = viewer_parts.part_called(parts, label) if label is not None else chosen
                if found is None or not 0 <= found < len(parts):
                    return _missing()
                geometry, notice = self._geometry(store, stored, found)
                return JSONResponse(_part_json(stored, parts, found, geometry, notice), headers=_UNSTORED)
        except StoreError:
            return Response(status_code=503, headers=_UNSTORED)

    def search(self, document: str, words: str = "") -> Response:
        """Returns, as JSON, where ``words`` occur in the document's text: the start and end of each hit."""
        try:
            with self._window.store() as store:
                stored = store.documents.stored(document)
        except StoreError:
            return Response(status_code=503, headers=_UNSTORED)
        if not stored:
            return _missing()
        return JSONResponse({"hits": viewer_parts.find_words(stored.text, words)}, headers=_UNSTORED)

    def image(self, document: str, number: int) -> Response:
        """Returns the page ``number`` (from 1) of a PDF as a PNG image."""
        try:
            with self._window.store() as store:
                if not (stored := store.documents.stored(document)) or not page_source.has_pages(stored.row):
                    return _missing()
                if not 1 <= number <= len(viewer_parts.divide(stored)):
                    return _missing()
                drawing = self._draw(store, stored, number - 1)
        except (DocumentError, StoreError):
            return _missing()
        if isinstance(drawing, str):
            return _missing()
        return Response(drawing.png, media_type="image/png", headers=_UNSTORED)

    def _geometry(self, store: Store, document: StoredDocument, index: int) -> "tuple[_PageGeometry, str]":
        """Returns the size and the word boxes of the page ``index`` (from 0). If the page cannot be drawn, both are
        empty, and a notice that says why is also returned.
        """
        if not page_source.has_pages(document.row):
            return _PageGeometry(), ""
        source = page_source.find_source(store, document.row)
        if isinstance(source, str):
            return _PageGeometry(), source
        span = [s for s in document.spans if s.kind == "page"][index]
        stored = store.word_places.of_page(document.id, index)
        if stored and (words := page_source.stored_words(store, document.row, index, span)) is not None:
            return _PageGeometry(stored.width, stored.height, words), ""
        try:
            drawing = self._draw(store, document, index)
        except DocumentError:
            return _PageGeometry(), _CANNOT_BE_DRAWN
        if isinstance(drawing, str):
            return _PageGeometry(), drawing
        words = page_source.drawn_words(drawing, document.text, span)
        return _PageGeometry(drawing.boxes.width, drawing.boxes.height, words), ""

    def _draw(self, store: Store, document: StoredDocument, index: int) -> PageDrawing | str:
        """Returns the drawing of page ``index`` (from 0), or the reason why it has none. Raises DocumentError."""
        source = page_source.find_source(store, document.row)
        if isinstance(source, str):
            return source
        return self._drawn.get(document.id, index, lambda: page_source.draw(source.read(store), index))


@dataclass(frozen=True)
class _PageGeometry:
    """The size of a page in points (0 if it cannot be drawn), and its word boxes."""

    width: float = 0.0
    height: float = 0.0
    words: "list[WordBox] | tuple[()]" = ()


def _part_json(
    document: StoredDocument, parts: Sequence[DocumentPart], index: int, geometry: _PageGeometry, notice: str
) -> dict[str, Any]:
    """Returns the JSON from which viewer.js shows the part with this ``index`` among the document's ``parts``."""
    part = parts[index]
    return {
        "document": document.id,
        "name": document.name,
        "kind": "page" if page_source.has_pages(document.row) else "section",
        "number": index + 1,
        "total": len(parts),
        "label": part.label,
        "heading": part.heading,
        "start": part.start,
        "end": part.end,
        **layout(document, part.start, part.end),
        "image": geometry.width > 0,
        "width": geometry.width,
        "height": geometry.height,
        "words": geometry.words,
        "notice": notice,
    }


def _missing() -> Response:
    return Response(status_code=404, headers=_UNSTORED)
