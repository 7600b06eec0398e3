"""Finds the boxes of a text's words on a PDF page. Runs in the child process."""

import ctypes
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

import pypdfium2
from pypdfium2 import raw

from localctx.library.parsers.word_boxes import GRID, WORD, WordBox

_FAR = 10_000  # page units between the points that determine the page's rotation and crop
_LOOKAHEAD = 64  # consecutive characters of the page that the text may lack
_ALIGNED = 0.95  # share of the text's characters that must be found in the page's order


class _Edges(NamedTuple):
    """A rectangle in GRID units from the page's upper left corner."""

    left: float
    top: float
    right: float
    bottom: float

    def union(self, other: "_Edges") -> "_Edges":
        return _Edges(*map(min, self[:2], other[:2]), *map(max, self[2:], other[2:]))

    def is_beside(self, other: "_Edges") -> bool:
        """True if the two overlap vertically, as letters of a line do, or horizontally, as in a rotated line."""
        across = self.left < other.right and other.left < self.right
        return across or (self.top < other.bottom and other.top < self.bottom)


class _Letter(NamedTuple):
    letter: str
    number: int  # on the text page
    edges: _Edges


def find_words(page: pypdfium2.PdfPage, text: str) -> list[WordBox]:
    """Returns the boxes of the words of ``text``, which was read from this page. Each box contains the word's ink."""
    with closing(page.get_textpage()) as text_page:
        to_grid = _grid_of(page)
        letters = list(_letters(text_page, to_grid))
        placed = _in_order(text, letters) or _by_words(text, letters)
        found = (_boxes(text_page, to_grid, m.start(), placed[m.start() : m.end()]) for m in WORD.finditer(text))
        return [box for boxes in found for box in boxes]


class _Grid(NamedTuple):
    """The affine map from page units to GRID units: x' = ax + by + c and y' = dx + ey + f."""

    a: float
    b: float
    c: float
    d: float
    e: float
    f: float

    def edges(self, left: float, bottom: float, right: float, top: float) -> _Edges:
        corners = [(x, y) for x in (left, right) for y in (bottom, top)]
        across = [self.a * x + self.b * y + self.c for x, y in corners]
        down = [self.d * x + self.e * y + self.f for x, y in corners]
        return _Edges(min(across), min(down), max(across), max(down))


def _grid_of(page: pypdfium2.PdfPage) -> _Grid:
    """Returns the page's map to the grid, with the crop box and rotation that drawing applies."""
    across, down = ctypes.c_int(), ctypes.c_int()

    def drawn(x: float, y: float) -> tuple[int, int]:
        raw.FPDF_PageToDevice(page, 0, 0, GRID, GRID, 0, x, y, ctypes.byref(across), ctypes.byref(down))
        return across.value, down.value

    (c, f), (ac, df), (bc, ef) = drawn(0, 0), drawn(_FAR, 0), drawn(0, _FAR)
    return _Grid((ac - c) / _FAR, (bc - c) / _FAR, c, (df - f) / _FAR, (ef - f) / _FAR, f)


def _letters(text_page: pypdfium2.PdfTextPage, to_grid: _Grid) -> Iterator[_Letter]:
    """Yields the page's letters with their edges, without white space."""
    left, right, bottom, top = (ctypes.c_double() for _ in range(4))
    places = [ctypes.byref(value) for value in (left, right, bottom, top)]
    for i in range(text_page.count_chars()):
        code = raw.FPDFText_GetUnicode(text_page, i)
        letter = chr(code) if 0 < code < 0x110000 else ""
        if letter.strip() and raw.FPDFText_GetCharBox(text_page, i, *places):
            yield _Letter(letter, i, to_grid.edges(left.value, bottom.value, right.value, top.value))


def _in_order(text: str, letters: Sequence[_Letter]) -> list[_Letter | None]:
    """Returns the letter of each character of ``text`` if the text is in the page's order, else [].

    The text lacks letters outside the page and control characters.
    """
    placed, at, wanted, found = list[_Letter | None](), 0, 0, 0
    for character in text:
        place = None
        if character.strip():
            wanted += 1
            place = next(
                (i for i in range(at, min(at + _LOOKAHEAD, len(letters))) if letters[i].letter == character), None
            )
        placed.append(None if place is None else letters[place])
        if place is not None:
            at, found = place + 1, found + 1
    return placed if found >= _ALIGNED * wanted else []


def _by_words(text: str, letters: Sequence[_Letter]) -> list[_Letter | None]:
    """Returns the letter of each character of ``text`` if the text has the words in another order than the page.

    The n-th occurrence of a word is matched to its n-th on the page.
    """
    page, where = "", list[_Letter | None]()
    for before, letter in zip([None, *letters], letters, strict=False):
        if before and letter.number != before.number + 1:  # white space stood between them
            page, where = page + " ", [*where, None]
        page, where = page + letter.letter, [*where, letter]
    on_page = defaultdict[str, deque[int]](deque)
    for match in WORD.finditer(page):
        on_page[match.group()].append(match.start())
    placed: list[_Letter | None] = [None] * len(text)
    for match in WORD.finditer(text):
        if starts := on_page[match.group()]:
            start = starts.popleft()
            placed[match.start() : match.end()] = where[start : start + len(match.group())]
    return placed


def _boxes(
    text_page: pypdfium2.PdfTextPage, to_grid: _Grid, start: int, letters: Sequence[_Letter | None]
) -> Iterator[WordBox]:
    """Yields the boxes of the word whose letters begin at ``start`` in the text, one for each line it is on."""
    run: list[tuple[int, _Letter]] = []
    for i, letter in enumerate(letters, start):
        if letter:
            if run and not letter.edges.is_beside(run[-1][1].edges):
                yield _box(text_page, to_grid, run)
                run = []
            run.append((i, letter))
    if run:
        yield _box(text_page, to_grid, run)


def _box(text_page: pypdfium2.PdfTextPage, to_grid: _Grid, run: Sequence[tuple[int, _Letter]]) -> WordBox:
    """Returns the box around the letters' ink, extended to their font's line height, so that a line's boxes align."""
    edges, loose = run[0][1].edges, raw.FS_RECTF()
    for _, letter in run[1:]:
        edges = edges.union(letter.edges)
    for _, letter in (run[0], run[-1]):
        if raw.FPDFText_GetLooseCharBox(text_page, letter.number, ctypes.byref(loose)):
            edges = edges.union(to_grid.edges(loose.left, loose.bottom, loose.right, loose.top))
    left, top, right, bottom = (max(0, min(GRID, round(edge))) for edge in edges)
    return WordBox(run[0][0], run[-1][0] + 1, left, top, right, bottom)
