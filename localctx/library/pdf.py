"""A PDF's text, page by page, with pages by their labels and headings from its outline. Runs in the child process."""

import re
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing

import pypdfium2
from pypdfium2.raw import FPDF_ERR_PASSWORD

from localctx.errors import DocumentError
from localctx.library.flow import Flow

_UNREADABLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ufffd]")
_OCR = "make it searchable with an OCR program first, for example ocrmypdf"


def read(data: bytes, progress: Callable[[int, int], None]) -> Flow:
    """Raises DocumentError for a damaged file, a password, and pages without text."""
    flow = Flow()
    with closing(_open(data)) as pdf:
        pages, outline, unreadable = len(pdf), _outline(pdf), 0
        for i in range(pages):
            text = _page(pdf, i)
            unreadable += len(_UNREADABLE.findall(text))
            _add(flow, pdf.get_page_label(i) or str(i + 1), text, outline[i])
            progress(i + 1, pages)
    if not flow.length:
        raise DocumentError(f"has {_count(pages)} but no text: it is scanned", _OCR)
    if unreadable > flow.length // 20:
        raise DocumentError(f"has {_count(pages)} whose fonts do not say which letters they draw", _OCR)
    return flow


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


def _add(flow: Flow, label: str, text: str, titles: list[str]) -> None:
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
