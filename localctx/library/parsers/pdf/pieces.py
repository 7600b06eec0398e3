"""Groups the letters of a page into pieces of lines. Coordinates are those of ``Letter.turned``."""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from localctx.library.parsers.pdf.from_right import in_reading_order, is_from_right
from localctx.library.parsers.pdf.letters import Letter
from localctx.library.parsers.text_builder import clean

LINE_HYPHEN = "\ufffe"
"""Stands for a hyphen at a line end inside a word, until ``hyphens`` decides whether it belongs to the word."""

SOFT_HYPHEN = "\xad"
_GAP = 0.5  # line heights between two letters; a wider gap may be one between columns
_BACK = 0.35  # line heights that a letter may begin before the end of the last one, as accents do
_TOUCH = 0.08  # line heights between two letters of a word
_SHARED = 0.5  # share of the smaller letter's height that two letters of a line have in common


class LinePiece(NamedTuple):
    """Neighbouring letters of one line of a page, with None for a space between words.

    ``spaced`` is True if white space comes before the piece in PDFium's order. The edges are in points.
    """

    left: float
    top: float
    right: float
    bottom: float
    letters: tuple[Letter | None, ...]
    spaced: bool = True

    @property
    def text(self) -> str:
        """Returns the text of the piece."""
        return "".join(shown(letter) if letter else " " for letter in self.letters)

    @property
    def middle(self) -> float:
        """Returns the vertical middle of the piece."""
        return (self.top + self.bottom) / 2

    @property
    def height(self) -> float:
        """Returns the height of the piece."""
        return self.bottom - self.top

    def is_on_line_of(self, other: "LinePiece") -> bool:
        """Returns True if the two pieces are on one line: they share more than half of the smaller height."""
        return _share(self.top, self.bottom, other.top, other.bottom) > _SHARED


def piece_of(letters: Sequence[Letter | None], spaced: bool = True) -> LinePiece:
    """Returns ``letters`` of one line as a LinePiece. At least one of them must not be None."""
    boxes = [letter.turned for letter in letters if letter]
    left, top = min(box.left for box in boxes), min(box.top for box in boxes)
    right, bottom = max(box.right for box in boxes), max(box.bottom for box in boxes)
    return LinePiece(left, top, right, bottom, tuple(letters), spaced)


def words_of(piece: LinePiece) -> Iterator[LinePiece]:
    """Yields the words of a piece."""
    start = 0
    for i, letter in enumerate([*piece.letters, None]):
        if letter is None:
            if i > start:
                yield piece_of(piece.letters[start:i])
            start = i + 1


def pieces_of(letters: Iterable[Letter]) -> Iterator[LinePiece]:
    """Yields the pieces that a page's letters form, in the order of the letters."""
    run, gap, spaced, height = list[Letter | None](), "", True, 0.0
    last: Letter | None = None
    for letter in in_reading_order(letters):
        if letter.text in (" ", "\n"):
            gap = " " if " " in (gap, letter.text) else "\n"
        elif shown(letter):
            if gap == "\n" and last and _touches(last, letter):
                gap = ""  # PDFium takes a line's end for one inside a word where the file begins a new text
            height = max(height, letter.turned.bottom - letter.turned.top)
            if last and not _continues(last, letter, height):
                yield piece_of(run, spaced)
                run, spaced, height = [], bool(gap), letter.turned.bottom - letter.turned.top
            elif gap and run:
                run.append(None)
            run.append(letter)
            last, gap = letter, ""
    if run:
        yield piece_of(run, spaced)


_printable = cache(clean)


def shown(letter: Letter) -> str:
    """Returns a letter as it appears in the page's text, or "" if it is invisible.

    A hyphen at a line end becomes LINE_HYPHEN; soft hyphens are kept.
    """
    return LINE_HYPHEN if letter.hyphen else letter.text if letter.text == SOFT_HYPHEN else _printable(letter.text)


def _continues(last: Letter, letter: Letter, height: float) -> bool:
    """Returns True if ``letter`` continues the line piece of ``last``: the letter stands to the right of the piece, or
    below it.

    In a script written from the right it may also stand left of it. ``height`` is that of the highest letter of the
    piece, since some fonts give each letter a height of its own.
    """
    before, box = last.turned, letter.turned
    if letter.angle != last.angle:
        return False
    if _share(before.top, before.bottom, box.top, box.bottom) <= _SHARED:
        return _is_below(last, letter)
    if box.left < before.left - _BACK * height and not (is_from_right(last.text) or is_from_right(letter.text)):
        return False
    return max(box.left - before.right, before.left - box.right) < _GAP * height


def _touches(last: Letter, letter: Letter) -> bool:
    """Returns True if ``letter`` follows ``last`` on its line without a space."""
    before, box = last.turned, letter.turned
    gap = before.left - box.right if is_from_right(letter.text) else box.left - before.right
    beside = abs(gap) < _TOUCH * (box.bottom - box.top)
    return beside and _share(before.top, before.bottom, box.top, box.bottom) > _SHARED


def _is_below(last: Letter, letter: Letter) -> bool:
    """Returns True if ``letter`` follows ``last`` in a vertical line, as in Japanese."""
    before, box = last.turned, letter.turned
    wide = unicodedata.east_asian_width(last.text) == unicodedata.east_asian_width(letter.text) == "W"
    is_near = -_BACK < (box.top - before.bottom) / (box.bottom - box.top or 1) < _GAP
    return wide and is_near and _share(before.left, before.right, box.left, box.right) > _SHARED


def _share(start: float, end: float, other_start: float, other_end: float) -> float:
    """Returns the length that two ranges have in common, as a share of the shorter range."""
    shorter = min(end - start, other_end - other_start)
    return (min(end, other_end) - max(start, other_start)) / shorter if shorter > 0 else 0.0
