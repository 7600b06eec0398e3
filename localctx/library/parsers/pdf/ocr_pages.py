"""Decides which pages of a PDF are read by OCR, and reads them."""

from collections.abc import Callable
from contextlib import closing

import pypdfium2

from localctx.errors import DocumentError
from localctx.library.parsers.pdf import optical
from localctx.library.parsers.pdf.page_text import PageText
from localctx.library.parsers.word_boxes import WordBox

_MAX_PIXELS = 2_000_000  # of a page rendered for OCR: A4 at 145 dots per inch
_MAX_SIDE = 8_000  # pixels of the longer side of a rendered page
_SMALL = 600  # pixels of the longer side of a page that is searched for ink


class OcrPages:
    """Decides which pages of a PDF need OCR, and reads them. The OCR models are loaded at the first such page.

    ``ocr`` is ``on`` (all pages), ``auto`` (pages without usable text) or ``off``. ``renew()`` raises the process's
    limits before each page.
    """

    def __init__(self, ocr: str, renew: Callable[[], None]) -> None:
        self._ocr, self._renew, self._installed = ocr, renew, optical.is_installed()
        self._models: optical.OpticalReader | None = None
        if ocr == "on" and not self._installed:
            raise DocumentError("cannot be read by OCR", self.remedy)

    @property
    def remedy(self) -> str:
        """The advice for the user about pages that were left without text."""
        if not self._installed:
            return f"install what reads pictures of pages: {optical.INSTALL}"
        return "read it with --ocr" if self._ocr == "off" else "scan it anew, larger; letters must be Latin or Chinese"

    def needs_ocr(self, page: PageText) -> bool:
        """Returns True if ``page``, read from its text layer, must be read by OCR."""
        return self._ocr == "on" or (self._ocr == "auto" and self._installed and not page.is_usable)

    def read(self, page: pypdfium2.PdfPage) -> tuple[str, list[WordBox]]:
        """Returns the text that OCR finds on a page, and its word boxes."""
        self._renew()
        self._models = self._models or optical.OpticalReader()
        width, height = page.get_size()
        scale = min((_MAX_PIXELS / (width * height)) ** 0.5, _MAX_SIDE / max(width, height))
        with closing(page.render(scale=scale, grayscale=True)) as bitmap:
            return self._models.read(bitmap.to_numpy())


def has_ink(page: pypdfium2.PdfPage) -> bool:
    """Returns True if anything is drawn on a page."""
    with closing(page.render(scale=_SMALL / max(page.get_size()), grayscale=True)) as bitmap:
        picture = bitmap.to_numpy()
        return bool(picture.min() != picture.max())
