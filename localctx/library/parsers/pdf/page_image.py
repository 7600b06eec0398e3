"""Draws one page of a PDF as a PNG, with its text and word boxes. Runs in the child process."""

import struct
import zlib
from contextlib import closing

import pypdfium2

from localctx.errors import DocumentError
from localctx.library.parsers.pdf.hyphens import Hyphenation, mark_hyphens
from localctx.library.parsers.pdf.page_text import read_page
from localctx.library.parsers.pdf.read_pdf import open_pdf
from localctx.library.parsers.word_boxes import pack

WIDTH = 1_400  # pixels: sharp on a panel as wide as half a large screen
_MAX_PIXELS = 6_000_000
_MAX_SIDE = 8_000  # pixels of the longer side


def draw(data: bytes, number: int) -> tuple[bytes, str, tuple[float, float, bytes]]:
    """Draw page ``number`` (from 0) of a PDF. Returns (the PNG, the page's text, (width in points, height in points,
    packed word boxes)).

    The text is the same as in ``read_pdf.read``, except where other pages affect it (hyphens, page numbers). Raises
    DocumentError if there is no such page, or if the PDF is damaged.
    """
    with closing(open_pdf(data)) as pdf:
        if not 0 <= number < len(pdf):
            raise DocumentError(f"has no page {number + 1:,}", "add it to the library again")
        with closing(pdf[number]) as page:
            read = read_page(pdf, page)
            text, boxes = Hyphenation([read.text]).resolve(*mark_hyphens(read.text, read.boxes))
            return _png(page, read.width, read.height), text, (read.width, read.height, pack(boxes))


def _png(page: pypdfium2.PdfPage, width: float, height: float) -> bytes:
    scale = min(WIDTH / width, (_MAX_PIXELS / (width * height)) ** 0.5, _MAX_SIDE / max(width, height))
    with closing(page.render(scale=scale, rev_byteorder=True)) as bitmap:
        pixels, channels = bytes(bitmap.buffer), bitmap.n_channels
        rows = (pixels[y * bitmap.stride : y * bitmap.stride + bitmap.width * channels] for y in range(bitmap.height))
        kind = {1: 0, 3: 2, 4: 6}[channels]  # gray, red green blue, or these with opacity
        header = struct.pack(">IIBBBBB", bitmap.width, bitmap.height, 8, kind, 0, 0, 0)
        data = zlib.compress(b"".join(b"\0" + row for row in rows), 3)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
