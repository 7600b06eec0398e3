"""A PDF's text, page by page, with pages by their labels and headings from its outline. Runs in the child process."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import closing

import pypdfium2
from pypdfium2.raw import FPDF_ERR_PASSWORD

from localctx.errors import DocumentError
from localctx.library import optical
from localctx.library.text_builder import OPTICAL, TextBuilder

_UNREADABLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ufffd]")
_PIXELS = 2_000_000  # of a page that is read optically: A4 at 145 dots an inch
_LONGEST = 8_000


def read(
    data: bytes, progress: Callable[[int, int], None], ocr: str, renew: Callable[[], None]
) -> tuple[str, TextBuilder]:
    """The format and the text. ``ocr``: pages are read optically if ``on``, where they have no text if ``auto``.

    ``renew`` is called before each such page. Raises DocumentError for a damaged file, a password, and pages without
    text.
    """
    flow, seen, unreadable = TextBuilder(), Counter[bool](), 0
    with closing(_open(data)) as pdf:
        pages, outline, reader = len(pdf), _outline(pdf), _Reader(ocr, renew)
        for i in range(pages):
            text = _page(pdf, i)
            if optically := reader.should_read(text):
                text = reader.read(pdf, i)
            seen[optically] += bool(text.strip())
            unreadable += 0 if optically else len(_UNREADABLE.findall(text))
            _add(flow, pdf.get_page_label(i) or str(i + 1), text, outline[i])
            progress(i + 1, pages)
    if not flow.length:
        raise DocumentError(f"has {_count(pages)} but no text: it is scanned", reader.remedy)
    if unreadable > flow.length // 20:
        raise DocumentError(f"has {_count(pages)} whose fonts do not say which letters they draw", reader.remedy)
    return _format(seen[True], seen[False], pages), flow


class _Reader:
    """Decides which pages are read optically, and reads them; the models are loaded for the first."""

    def __init__(self, ocr: str, renew: Callable[[], None]) -> None:
        self._ocr, self._renew, self._installed = ocr, renew, optical.is_installed()
        self._models: optical.Reader | None = None
        if ocr == "on" and not self._installed:
            raise DocumentError("cannot be read optically", self.remedy)

    @property
    def remedy(self) -> str:
        """What to do about pages that were left without text."""
        if not self._installed:
            return f"install what reads pictures of pages: {optical.INSTALL}"
        return "read it with --ocr" if self._ocr == "off" else "scan it anew, larger; letters must be Latin or Chinese"

    def should_read(self, text: str) -> bool:
        """Whether a page with this text is to be read optically."""
        usable = text.strip() and len(_UNREADABLE.findall(text)) <= len(text) // 20
        return self._ocr == "on" or (self._ocr == "auto" and self._installed and not usable)

    def read(self, pdf: pypdfium2.PdfDocument, i: int) -> str:
        """What is seen on one page."""
        self._renew()
        self._models = self._models or optical.Reader()
        with closing(pdf[i]) as page:
            width, height = page.get_size()
            scale = min((_PIXELS / (width * height)) ** 0.5, _LONGEST / max(width, height))
            with closing(page.render(scale=scale, grayscale=True)) as bitmap:
                return self._models.read(bitmap.to_numpy())


def _format(optically: int, plain: int, pages: int) -> str:
    """How the text was got, of so many pages with text of either kind."""
    if not optically:
        return "pdf"
    return f"pdf, {optically:,} of {pages:,} pages read optically" if plain else OPTICAL


def _open(data: bytes) -> pypdfium2.PdfDocument:
    try:
        return pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as e:
        if e.err_code == FPDF_ERR_PASSWORD:
            raise DocumentError("is a PDF with a password", "save a copy without one") from e
        raise DocumentError("is a damaged PDF", "open it elsewhere and save or print it to a new PDF") from e


def _page(pdf: pypdfium2.PdfDocument, i: int) -> str:
    """The text of one page. Memory of the page is given back at once: a PDF may have thousands."""
    try:
        with closing(pdf[i]) as page, closing(page.get_textpage()) as text:
            return text.get_text_bounded().replace("\r\n", "\n")
    except pypdfium2.PdfiumError as e:
        problem = f"is a damaged PDF: page {i + 1:,} of {len(pdf):,} cannot be read"
        raise DocumentError(problem, "open it elsewhere and print the pages that can be seen to a new PDF") from e


def _add(flow: TextBuilder, label: str, text: str, titles: list[str]) -> None:
    """One page; its headings begin where their words are found on it, else with the page."""
    start = flow.length
    flow.mark("page", label)
    text = flow.verbatim(text.strip())
    for title in titles:
        found = re.search(r"\s+".join(map(re.escape, title.split())), text)
        flow.mark("heading", title, start + found.start() if found else start)
    flow.line(2)


def _outline(pdf: pypdfium2.PdfDocument) -> dict[int, list[str]]:
    """Titles of the outline by page, from 0. What points nowhere is passed over."""
    titles: dict[int, list[str]] = defaultdict(list)
    for bookmark in pdf.get_toc():
        target = bookmark.get_dest()
        page = target.get_index() if target else None
        if page is not None and (title := bookmark.get_title().strip()):
            titles[page].append(title)
    return titles


def _count(pages: int) -> str:
    return f"{pages:,} page{'s' * (pages != 1)}"
