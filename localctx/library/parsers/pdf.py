"""Reads a PDF's text page by page, with page labels and the headings of its outline. Runs in the child process."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import closing

import pypdfium2
from pypdfium2.raw import FPDF_ERR_PASSWORD

from localctx.errors import DocumentError
from localctx.library.parsers import optical
from localctx.library.parsers.pdf_page import text_with_tables
from localctx.library.parsers.pdf_words import find_words
from localctx.library.parsers.text_builder import OPTICAL, TextBuilder
from localctx.library.parsers.word_boxes import WordBox

_UNREADABLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ufffd]")
_MAX_PIXELS = 2_000_000  # of a page rendered for OCR: A4 at 145 dots per inch
_MAX_TABLE_TEXT = 4_000_000  # characters after which tables are no longer searched for, to save time
_MAX_SIDE = 8_000  # pixels of the longer side of a rendered page


def read(
    data: bytes, progress: Callable[[int, int], None], ocr: str, renew: Callable[[], None]
) -> tuple[str, TextBuilder]:
    """Returns the format and the text. ``ocr`` ``on`` reads all pages by OCR, ``auto`` those without usable text.

    Calls ``renew`` before OCR of a page, to raise the process's limits. Raises DocumentError for a file that is
    damaged, has a password, or has no readable text.
    """
    builder, with_text, unreadable = TextBuilder(), Counter[bool](), 0
    with closing(open_pdf(data)) as pdf:
        pages, outline, reader = len(pdf), _outline(pdf), _PageReader(ocr, renew)
        for i in range(pages):
            text, seen = page_text(pdf, i, with_tables=builder.length < _MAX_TABLE_TEXT), list[WordBox]()
            if by_ocr := reader.needs_ocr(text):
                text, seen = reader.read(pdf, i)
            with_text[by_ocr] += bool(text.strip())
            unreadable += 0 if by_ocr else len(_UNREADABLE.findall(text))
            stored = _add(builder, pdf.get_page_label(i) or str(i + 1), text, outline[i])
            builder.add_boxes(i, *_places(pdf, i, stored, seen if by_ocr else None))
            progress(i + 1, pages)
    if not builder.length:
        raise DocumentError(f"has {_count(pages)} but no text: it is scanned", reader.remedy)
    if unreadable > builder.length // 20:
        raise DocumentError(f"has {_count(pages)} whose fonts do not say which letters they draw", reader.remedy)
    return _format(with_text[True], with_text[False], pages), builder


class _PageReader:
    """Decides which pages need OCR and reads them. Loads the OCR models at the first such page."""

    def __init__(self, ocr: str, renew: Callable[[], None]) -> None:
        self._ocr, self._renew, self._installed = ocr, renew, optical.is_installed()
        self._models: optical.OpticalReader | None = None
        if ocr == "on" and not self._installed:
            raise DocumentError("cannot be read optically", self.remedy)

    @property
    def remedy(self) -> str:
        """The remedy for pages that were left without text."""
        if not self._installed:
            return f"install what reads pictures of pages: {optical.INSTALL}"
        return "read it with --ocr" if self._ocr == "off" else "scan it anew, larger; letters must be Latin or Chinese"

    def needs_ocr(self, text: str) -> bool:
        """Returns True if a page with the text layer ``text`` must be read by OCR."""
        usable = text.strip() and len(_UNREADABLE.findall(text)) <= len(text) // 20
        return self._ocr == "on" or (self._ocr == "auto" and self._installed and not usable)

    def read(self, pdf: pypdfium2.PdfDocument, i: int) -> tuple[str, list[WordBox]]:
        """Returns the text that OCR finds on page ``i``, and its word boxes."""
        self._renew()
        self._models = self._models or optical.OpticalReader()
        with closing(pdf[i]) as page:
            width, height = page.get_size()
            scale = min((_MAX_PIXELS / (width * height)) ** 0.5, _MAX_SIDE / max(width, height))
            with closing(page.render(scale=scale, grayscale=True)) as bitmap:
                return self._models.read(bitmap.to_numpy())


def _format(by_ocr: int, plain: int, pages: int) -> str:
    """Returns the format to list, given how many pages have text from OCR and from the text layer."""
    if not by_ocr:
        return "pdf"
    return f"pdf, {by_ocr:,} of {pages:,} pages read optically" if plain else OPTICAL


def open_pdf(data: bytes) -> pypdfium2.PdfDocument:
    """Open a PDF. Raises DocumentError if it is damaged or has a password."""
    try:
        return pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as e:
        if e.err_code == FPDF_ERR_PASSWORD:
            raise DocumentError("is a PDF with a password", "save a copy without one") from e
        raise DocumentError("is a damaged PDF", "open it elsewhere and save or print it to a new PDF") from e


def page_text(pdf: pypdfium2.PdfDocument, i: int, with_tables: bool = True) -> str:
    """Returns the text layer of page ``i`` (from 0), with its tables row by row if ``with_tables``.

    Frees the page at once, because a PDF may have thousands. Raises DocumentError if the page is damaged.
    """
    try:
        with closing(pdf[i]) as page:
            return text_with_tables(page, with_tables)
    except pypdfium2.PdfiumError as e:
        problem = f"is a damaged PDF: page {i + 1:,} of {len(pdf):,} cannot be read"
        raise DocumentError(problem, "open it elsewhere and print the pages that can be seen to a new PDF") from e


def _add(builder: TextBuilder, label: str, text: str, titles: list[str]) -> str:
    """Append a page; returns the appended text.

    Each heading in ``titles`` begins where its words are on the page, else at the page's start.
    """
    start = builder.length
    builder.mark("page", label)
    text = builder.verbatim(text.strip())
    for title in titles:
        found = re.search(r"\s+".join(map(re.escape, title.split())), text)
        builder.mark("heading", title, start + found.start() if found else start)
    builder.line(2)
    return text


def _places(
    pdf: pypdfium2.PdfDocument, i: int, text: str, seen: list[WordBox] | None
) -> tuple[float, float, list[WordBox]]:
    """Returns the width and height of a page in points, and the word boxes of its ``text``.

    ``seen`` are the boxes found by OCR, or None if the text is from the text layer.
    """
    with closing(pdf[i]) as page:
        return *page.get_size(), find_words(page, text) if seen is None else seen


def _outline(pdf: pypdfium2.PdfDocument) -> dict[int, list[str]]:
    """Returns the outline's titles by page number, from 0. Skips entries without a target."""
    titles: dict[int, list[str]] = defaultdict(list)
    for bookmark in pdf.get_toc():
        target = bookmark.get_dest()
        page = target.get_index() if target else None
        if page is not None and (title := bookmark.get_title().strip()):
            titles[page].append(title)
    return titles


def _count(pages: int) -> str:
    return f"{pages:,} page{'s' * (pages != 1)}"
