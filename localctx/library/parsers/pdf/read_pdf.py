"""Reads a PDF's text page by page, with page labels and the headings of its outline. Runs in the child process.

PDFium (through pypdfium2, Apache-2.0 or BSD-3) gives the letters and their places; they are put in order here. Other
libraries were tried with the five orders in which a file may write two columns. PDFium's own text and the text of
PyMuPDF (AGPL) had one order right; the texts of pdfminer.six (MIT) and LiteParse (Apache-2.0) had none right. PDFium's
text also loses ends of turned lines, hyphens, and the values of forms.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import chain, pairwise

import pypdfium2
from pypdfium2.raw import FPDF_ERR_PASSWORD

from localctx.errors import DocumentError
from localctx.library.parsers.pdf.hyphens import Hyphenation, mark_at_end, mark_hyphens
from localctx.library.parsers.pdf.ocr_pages import OcrPages, has_ink
from localctx.library.parsers.pdf.page_labels import distinct, name_pages
from localctx.library.parsers.pdf.page_text import PageText, read_page
from localctx.library.parsers.pdf.pieces import LINE_HYPHEN
from localctx.library.parsers.pdf.running_lines import ArrangedPage, ReadPage, arranged
from localctx.library.parsers.pdf.unread_parts import unread_parts
from localctx.library.parsers.text_builder import OPTICAL, TextBuilder
from localctx.library.parsers.word_boxes import WordBox

_MAX_TABLE_TEXT = 4_000_000  # characters after which tables are no longer searched for, to save time
_MOST_DAMAGED = 1_000  # pages in a row that cannot be read; the rest is then taken to be damaged too
_DAMAGES = (RuntimeError, ArithmeticError, LookupError, OSError, ValueError)  # PdfiumError is a RuntimeError

_Fault = tuple[str, str]
"""Says why a page could not be read, in the singular for one page and in the plural for several."""
_DAMAGED: _Fault = "is damaged", "are damaged"
_WITHOUT_TEXT: _Fault = "has no text (a picture or a scan)", "have no text (pictures or scans)"
_WITHOUT_NAMES: _Fault = (
    "has a font that does not say which letters it draws",
    "have fonts that do not say which letters they draw",
)


def read(
    data: bytes, progress: Callable[[int, int], None], ocr: str, renew: Callable[[], None]
) -> tuple[str, TextBuilder]:
    """Read a PDF. Returns the name of the format, and the text. ``ocr`` is ``on`` (all pages are read by OCR), ``auto``
    (pages without usable text) or ``off``.

    Calls ``renew()`` before OCR of a page, to raise the process's limits. Notes the parts that cannot be read. Raises
    DocumentError for a file that is damaged, has a password, or has no readable text.
    """
    with closing(open_pdf(data)) as pdf:
        pages = _Pages(pdf, OcrPages(ocr, renew))
        for i in range(len(pdf)):
            pages.read(i)
            progress(i + 1, len(pdf))
            if pages.are_lost:
                break
        return pages.format, pages.stored()


def open_pdf(data: bytes) -> pypdfium2.PdfDocument:
    """Open a PDF and its form. Raises DocumentError if it is damaged or has a password."""
    try:
        pdf = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as e:
        if e.err_code == FPDF_ERR_PASSWORD:
            raise DocumentError("is a PDF with a password", "save a copy without one") from e
        raise DocumentError("is a damaged PDF", "open it in another program and save or print it to a new PDF") from e
    with suppress(pypdfium2.PdfiumError):
        pdf.init_forms()  # before pages are opened, or PDFium knows of no values and draws none
    return pdf


class _Pages:
    """Collects the pages of a PDF as they are read, with the parts that could not be read."""

    def __init__(self, pdf: pypdfium2.PdfDocument, reader: OcrPages) -> None:
        self._pdf, self._reader = pdf, reader
        self._pages, self._sizes = list[ReadPage](), list[tuple[float, float]]()
        self._with_text, self._length, self._unreadable = Counter[bool](), 0, 0
        self._unread, self._faults = list[str](), defaultdict[_Fault, list[int]](list)

    @property
    def are_lost(self) -> bool:
        """True if the last _MOST_DAMAGED pages were all damaged: then the rest is taken to be damaged, too."""
        return self._faults[_DAMAGED][-_MOST_DAMAGED:][:1] == [len(self._pages) - _MOST_DAMAGED]

    @property
    def format(self) -> str:
        """The format to show for the document. It says how many pages were read by OCR."""
        if not self._with_text[True]:
            return "pdf"
        if not self._with_text[False]:
            return OPTICAL
        return f"pdf, {self._with_text[True]:,} of {len(self._pdf):,} pages read optically"

    def read(self, i: int) -> None:
        """Read page ``i`` (from 0), then free it, because a PDF may have thousands of pages."""
        try:
            with closing(self._pdf[i]) as page:
                self._add(i, self._recognized(page, i, read_page(self._pdf, page, self._length < _MAX_TABLE_TEXT)))
        except _DAMAGES:
            self._faults[_DAMAGED].append(i)
            self._add(i, PageText())

    def _recognized(self, page: pypdfium2.PdfPage, i: int, read: PageText) -> PageText:
        """Returns the page ``read``, or the same page read by OCR if it needs OCR. Notes a page without text."""
        if by_ocr := self._reader.needs_ocr(read):
            read = _with_ocr(read, *self._reader.read(page))
        self._with_text[by_ocr] += bool(read.text)
        if not read.letters and has_ink(page):
            self._faults[_WITHOUT_TEXT].append(i)
        elif not read.is_usable and read.letters:
            self._faults[_WITHOUT_NAMES].append(i)
        return read

    def _add(self, i: int, page: PageText) -> None:
        label = ""
        with suppress(*_DAMAGES):
            label = self._pdf.get_page_label(i)
        self._pages.append(ReadPage.of(label or str(i + 1), page.text, page.boxes, page.aside))
        self._sizes.append((page.width, page.height))
        self._length += len(page.text)
        self._unreadable += page.unreadable
        self._unread += (f"{what} page {label or i + 1}" for what in page.unread)

    def stored(self) -> TextBuilder:
        """Returns the text of the whole document. Raises DocumentError if no page has readable text."""
        self._raise_problem()
        builder, labels = TextBuilder(), distinct([page.label for page in self._pages])
        outline, hyphenation = _outline(self._pdf), Hyphenation(page.text for page in self._pages)
        pages = pairwise(chain(arranged(self._pages), [ArrangedPage("", [], False)]))
        for i, (page, following) in enumerate(pages):
            marked, boxes = mark_hyphens(page.text, page.boxes)
            marked = mark_at_end(marked, following.text) if page.goes_on else marked
            text, boxes = hyphenation.resolve(marked, boxes, following.text)
            _add_page(builder, labels[i], text, outline[i])
            if self._sizes[i] != (0.0, 0.0):
                builder.add_boxes(i, *self._sizes[i], boxes)
            if not marked.endswith(LINE_HYPHEN):
                builder.line(1 if page.goes_on else 2)
        self._note_unread(builder, labels)
        return builder

    def _raise_problem(self) -> None:
        count = f"{len(self._pdf):,} page{'s' * (len(self._pdf) != 1)}"
        if len(self._faults[_DAMAGED]) == len(self._pages):
            problem = "is a damaged PDF: none of its pages can be read" if self._pages else "is a damaged PDF"
            raise DocumentError(problem, "open it in another program and print the visible pages to a new PDF")
        if not self._length:
            raise DocumentError(f"has {count} but no text: it is scanned", self._reader.remedy)
        if self._unreadable > self._length // 20:
            raise DocumentError(f"has {count} whose fonts do not say which letters they draw", self._reader.remedy)

    def _note_unread(self, builder: TextBuilder, labels: Sequence[str]) -> None:
        for fault, pages in self._faults.items():
            if pages:
                builder.note_unread(f"{name_pages(labels, pages)} {fault[len(pages) > 1]}")
        if left := len(self._pdf) - len(self._pages):
            builder.note_unread(f"the last {left:,} pages")
        for line in [*self._unread, *unread_parts(self._pdf)]:
            builder.note_unread(line)


def _with_ocr(page: PageText, text: str, boxes: Sequence[WordBox]) -> PageText:
    """Returns a page with the text that OCR found, followed by its comments."""
    whole = "\n\n".join(filter(None, (text, page.text[page.aside :].strip())))
    return replace(page, text=whole, boxes=list(boxes), aside=len(text), letters=len(text), unreadable=0)


def _add_page(builder: TextBuilder, label: str, text: str, titles: Sequence[str]) -> None:
    """Append a page. Marks each heading of ``titles`` where the words of the heading are on the page, else at the
    page's start.
    """
    start = builder.length
    builder.mark("page", label)
    builder.verbatim(text)
    for title in titles:
        found = re.search(r"\s+".join(map(re.escape, title.split())), text)
        builder.mark("heading", title, start + found.start() if found else start)


def _outline(pdf: pypdfium2.PdfDocument) -> dict[int, list[str]]:
    """Returns the outline's titles by page number, from 0. Skips entries without a target."""
    titles: dict[int, list[str]] = defaultdict(list)
    for bookmark in pdf.get_toc():
        target = bookmark.get_dest()
        page = target.get_index() if target else None
        if page is not None and (title := bookmark.get_title().strip()):
            titles[page].append(title)
    return titles
