"""Reads the letters of a PDF page in PDFium's order, with their boxes and directions on the displayed page."""

import ctypes
import math
from collections.abc import Iterator
from typing import NamedTuple

import pypdfium2
from pypdfium2 import raw

from localctx.library.parsers.word_boxes import GRID

_FAR = 10_000  # page units between the points that determine the page's rotation and crop
_SLANT = 5  # degrees; text turned less than this from a quarter turn counts as turned by the quarter
_SLANTED = 0.7  # the height of a slanted letter, as a share of the height of the box around it
_HIGH, _LOW = range(0xD800, 0xDC00), range(0xDC00, 0xE000)  # halves of a letter outside the basic plane


class Edges(NamedTuple):
    """A rectangle in points from the page's upper left corner."""

    left: float
    top: float
    right: float
    bottom: float

    def union(self, other: "Edges") -> "Edges":
        return Edges(*map(min, self[:2], other[:2]), *map(max, self[2:], other[2:]))

    def is_beside(self, other: "Edges") -> bool:
        """Returns True if the two rectangles overlap vertically, as letters of one line do, or horizontally, as letters
        of a rotated line do.
        """
        across = self.left < other.right and other.left < self.right
        return across or (self.top < other.bottom and other.top < self.bottom)


class Letter(NamedTuple):
    """A letter of a page. A space or newline is a Letter too, with an empty box.

    ``ink`` is the box of the drawn shape; ``line`` is the box with the font's line height. ``angle`` is the direction
    of the letter's line in degrees, counterclockwise; 0 runs from left to right. ``turned`` is the line box after the
    page is turned so that this line runs from left to right. ``hyphen`` is True if PDFium takes the letter for a hyphen
    at a line's end.
    """

    text: str
    ink: Edges
    line: Edges
    angle: int
    turned: Edges
    hyphen: bool = False


class DisplayMap(NamedTuple):
    """The affine map from PDF page units to points on the displayed page: x' = ax + by + c and y' = dx + ey + f.

    ``width`` and ``height`` are the size of the displayed page in points.
    """

    a: float
    b: float
    c: float
    d: float
    e: float
    f: float
    width: float
    height: float

    def edges(self, left: float, bottom: float, right: float, top: float) -> Edges:
        """Convert a rectangle in PDF page units to points on the displayed page."""
        x0, x1 = self.a * left + self.b * bottom + self.c, self.a * right + self.b * top + self.c
        y0, y1 = self.d * left + self.e * bottom + self.f, self.d * right + self.e * top + self.f
        return Edges(min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))

    def turned(self, box: Edges, angle: int) -> Edges:
        """Returns where a box is after the page is turned so that lines of this ``angle`` run from left to right."""
        left, top, right, bottom = box
        match angle:
            case 0:
                return box
            case 90:
                return Edges(self.height - bottom, left, self.height - top, right)
            case 180:
                return Edges(self.width - right, self.height - bottom, self.width - left, self.height - top)
            case 270:
                return Edges(top, self.width - right, bottom, self.width - left)
        x, y, slope = (left + right) / 2, (top + bottom) / 2, math.radians(angle)
        x, y = x * math.cos(slope) - y * math.sin(slope), x * math.sin(slope) + y * math.cos(slope)
        half = (bottom - top) * _SLANTED / 2
        return Edges(x - half, y - half, x + half, y + half)

    def shows(self, box: Edges) -> bool:
        """Returns True if at least a part of the box is on the displayed page."""
        return box.left < self.width and box.right > 0 and box.top < self.height and box.bottom > 0


def map_of(page: pypdfium2.PdfPage) -> DisplayMap:
    """Returns the display map of a page. It includes the page's crop box and rotation."""
    (width, height), across, down = page.get_size(), ctypes.c_int(), ctypes.c_int()

    def drawn(x: float, y: float) -> tuple[float, float]:
        raw.FPDF_PageToDevice(page, 0, 0, GRID, GRID, 0, x, y, ctypes.byref(across), ctypes.byref(down))
        return across.value * width / GRID, down.value * height / GRID

    (c, f), (ac, df), (bc, ef) = drawn(0, 0), drawn(_FAR, 0), drawn(0, _FAR)
    return DisplayMap((ac - c) / _FAR, (bc - c) / _FAR, c, (df - f) / _FAR, (ef - f) / _FAR, f, width, height)


def letters_of(page: pypdfium2.PdfPage, text_page: pypdfium2.PdfTextPage, to_points: DisplayMap) -> Iterator[Letter]:
    """Yields the letters that the page shows, in PDFium's order, with a space or newline where PDFium detects one.

    A ligature yields each of its letters. A letter whose font gives no Unicode for it becomes a control character.
    """
    rotation, half = page.get_rotation(), 0
    left, right, bottom, top = (ctypes.c_double() for _ in range(4))
    ink, loose = [ctypes.byref(value) for value in (left, right, bottom, top)], raw.FS_RECTF()
    for i in range(text_page.count_chars()):
        code = raw.FPDFText_GetUnicode(text_page, i)
        if code in _HIGH:
            half = code
            continue
        if code in _LOW and half:
            code = 0x10000 + (half - _HIGH.start) * 0x400 + code - _LOW.start
        half, text = 0, chr(code) if code < 0x110000 else "\ufffd"
        if text.isspace():
            yield Letter("\n" if text in "\r\n" else " ", _NOWHERE, _NOWHERE, 0, _NOWHERE)
        elif raw.FPDFText_GetCharBox(text_page, i, *ink):
            box = line = to_points.edges(left.value, bottom.value, right.value, top.value)
            if raw.FPDFText_GetLooseCharBox(text_page, i, ctypes.byref(loose)):
                loose_box = to_points.edges(loose.left, loose.bottom, loose.right, loose.top)
                line = loose_box if loose_box.bottom > loose_box.top and loose_box.right > loose_box.left else box
            if to_points.shows(line):
                angle = _quarter(-math.degrees(raw.FPDFText_GetCharAngle(text_page, i)) - rotation)
                hyphen = raw.FPDFText_IsHyphen(text_page, i) == 1
                yield Letter(text, box, line, angle, to_points.turned(line, angle), hyphen)


_NOWHERE = Edges(0, 0, 0, 0)


def _quarter(angle: float) -> int:
    """Returns the angle in whole degrees from 0, rounded to a multiple of 90 if it is near one."""
    quarter = round(angle / 90) * 90
    return (quarter if abs(angle - quarter) < _SLANT else round(angle)) % 360
