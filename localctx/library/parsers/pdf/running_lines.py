"""Removes running heads, running feet and page numbers from a document's text, and moves comments out of sentences.

A running line is at the top or bottom of several pages, at the same height and with the same words; it is kept on its
first page. A page number is the page's label, the page's place in the file, or a number alone on a line; it is dropped.
If a sentence continues on the next page, a kept line or comment is put after a line that ends a sentence.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import median
from typing import NamedTuple

from localctx.library.parsers.pdf.pieces import LINE_HYPHEN
from localctx.library.parsers.pdf.text_edits import rearranged
from localctx.library.parsers.word_boxes import GRID, WordBox, pack, unpack
from localctx.library.wording.sentences import sentences, stripped

_MOST = 4  # lines at the top, and at the bottom, of a page that are examined
_SAME = GRID // 120  # difference of height at which lines are at the same place: 7 points of A4
_MARGIN = 0.15  # share of the page's height, at its top and bottom, that running lines are in
_MIN_PAGES = 3  # pages that must have a line, so that it counts as a running line; both pages of a document of two
_APART = 2  # pages from one such page to the next, at most: left and right pages may differ
_NUMBER = re.compile(r"\d+|(?<![^\W_])[ivxlcdm]+(?![^\W_])", re.IGNORECASE)
_ONLY_NUMBER = re.compile(r"[\W_]*(?:page|seite|p|s)?[\W_]*#(?:\W*(?:of|von|sur|de|/)?\W*#)?[\W_]*", re.IGNORECASE)
_ENDED = re.compile(r"[.!?…:;。！？][\"'”’»«)\]」』）]*$")  # noqa: RUF001
_DIVIDED = re.compile(rf"[^\W_][-\u2010{LINE_HYPHEN}]$")
_FULL = 0.75  # share of a page's longest line that a line within a sentence exceeds
_MIN_LINES = 3  # lines of a page, at least, whose last line may continue on the next page only because it is long


class Line(NamedTuple):
    """A line of a page: characters ``start..end`` of the page's text, and its upper edge in GRID units."""

    start: int
    end: int
    top: int


@dataclass(frozen=True)
class ReadPage:
    """A page as it was read: its label, text, packed word boxes, and first and last lines.

    ``heads`` are the first lines of the running text, from the top. ``feet`` are the last lines, from the bottom. From
    position ``aside`` on, the text is not running text.
    """

    label: str
    text: str
    packed: bytes
    aside: int
    heads: tuple[Line, ...]
    feet: tuple[Line, ...]

    @classmethod
    def of(cls, label: str, text: str, boxes: Sequence[WordBox], aside: int) -> "ReadPage":
        """Returns a page with its first and last lines. ``boxes`` must be in ascending order of their starts."""
        lines, starts = list(_lines_of(text[:aside])), [box.start for box in boxes]

        def line(start: int, end: int) -> Line:
            own = boxes[bisect_left(starts, start) : bisect_left(starts, end)]
            return Line(start, end, min((box.top for box in own), default=-GRID))

        heads, feet = lines[:_MOST], lines[: -_MOST - 1 : -1]
        return cls(label, text, pack(boxes), aside, tuple(line(*a) for a in heads), tuple(line(*a) for a in feet))


class ArrangedPage(NamedTuple):
    """The text of a page as it is stored, and its word boxes.

    ``goes_on`` is True if the last sentence of the page continues on the next page.
    """

    text: str
    boxes: list[WordBox]
    goes_on: bool


def arranged(pages: Sequence[ReadPage]) -> Iterator[ArrangedPage]:
    """Yields the pages with each running line kept once, and without page numbers."""
    cuts = [_Cut(page) for page in pages]
    heads = [[line for line in page.heads if 0 <= line.top < _MARGIN * GRID] for page in pages]
    feet = [[line for line in page.feet if line.top > (1 - _MARGIN) * GRID] for page in pages]
    for i, line, kept in (found for of_line in _running(pages, heads) for found in of_line):
        cuts[i].heads[line] = kept
    for i, line, kept in (found for of_line in _running(pages, feet) for found in of_line):
        cuts[i].feet[line] = kept
    bodies = [cut.body for cut in cuts]
    texts = [page.text[start:end] for page, (start, end) in zip(pages, bodies, strict=True)]
    runs = [runs_on(text, following) for text, following in zip(texts, [*texts[1:], ""], strict=True)]
    for cut, before, after in zip(cuts, [False, *runs], runs, strict=False):
        yield ArrangedPage(*cut.text_and_boxes(before, after), after)


def runs_on(text: str, following: str) -> bool:
    """Returns True if the last sentence of a page's ``text`` continues in ``following``, the text of the next page."""
    lines = text.rstrip().split("\n")
    if not text.strip() or not following.strip() or "\t" in lines[-1] or _ENDED.search(lines[-1]):
        return False
    if _DIVIDED.search(lines[-1]):
        return following.lstrip()[0].isalnum()
    full = len(lines[-1]) >= _FULL * max(map(len, lines))
    return following.lstrip()[0].islower() or (len(lines) >= _MIN_LINES and full)


def _lines_of(text: str) -> Iterator[tuple[int, int]]:
    """Yields the start and end of each line that is not empty."""
    return (match.span() for match in re.finditer(r"\S[^\n]*", text))


_Occurrences = list[tuple[int, Line, bool]]
"""(number of the page from 0, line, whether the line is kept there) for each page with a running line."""


def _running(pages: Sequence[ReadPage], outer: Sequence[Sequence[Line]]) -> Iterator[_Occurrences]:
    """Yields the occurrences of each running line. ``outer`` are the lines to examine, page by page."""
    by_words = defaultdict[str, list[tuple[int, Line]]](list)
    for i, (page, lines) in enumerate(zip(pages, outer, strict=True)):
        for line in lines:
            words = page.text[line.start : line.end].strip()
            if words and "\t" not in words:
                by_words[" ".join(_NUMBER.sub("#", words).split())].append((i, line))
    for words, found in by_words.items():
        top = median(line.top for _, line in found)
        at_place = [(i, line) for i, line in found if abs(line.top - top) <= _SAME]
        for chain in _chains(at_place):
            if len(chain) >= min(_MIN_PAGES, max(2, len(pages))):
                yield _kept(pages, words, chain)


def _chains(found: Sequence[tuple[int, Line]]) -> Iterator[list[tuple[int, Line]]]:
    """Yields the occurrences of a line in groups: within a group, pages are at most _APART apart."""
    chain = list[tuple[int, Line]]()
    for i, line in found:
        if chain and i - chain[-1][0] > _APART:
            yield chain
            chain = []
        if not chain or i > chain[-1][0]:
            chain.append((i, line))
    if chain:
        yield chain


def _kept(pages: Sequence[ReadPage], words: str, chain: Sequence[tuple[int, Line]]) -> _Occurrences:
    """Returns the occurrences of a running line, each with True if the line is kept there.

    Usually, only the first occurrence is kept. A line that is only a page number is never kept. All occurrences are
    kept if a number in the line changes and is not the number of the page.
    """
    if _ONLY_NUMBER.fullmatch(words):
        return [(i, line, False) for i, line in chain]
    numbers = [_NUMBER.findall(pages[i].text[line.start : line.end]) for i, line in chain]
    names = [{pages[i].label.casefold(), str(i + 1)} for i, _ in chain]
    known = all(
        len(set(slot)) == 1 or all(n.casefold() in own for n, own in zip(slot, names, strict=True))
        for slot in zip(*numbers, strict=True)
    )
    return [(i, line, not known or i == chain[0][0]) for i, line in chain]


class _Cut:
    """Cuts running lines from a page's text. ``heads`` and ``feet`` map each running line to True if it is kept on this
    page.
    """

    def __init__(self, page: ReadPage) -> None:
        self._page, self.heads, self.feet = page, dict[Line, bool](), dict[Line, bool]()

    @property
    def body(self) -> tuple[int, int]:
        """The start and end of the page's text between its running lines; the whole text if nothing is between them."""
        heads, feet = _outer(self._page.heads, self.heads), _outer(self._page.feet, self.feet)
        lines = list(_lines_of(self._page.text[: self._page.aside]))
        if not lines or len(heads) + len(feet) >= len(lines):
            return 0, self._page.aside
        return lines[len(heads)][0], lines[-1 - len(feet)][1]

    def text_and_boxes(self, before: bool, after: bool) -> tuple[str, list[WordBox]]:
        """Returns the page's text, with the lines that are kept, and its word boxes.

        ``before`` is True if the page's first sentence begins on the page before, ``after`` if its last sentence
        continues on the next page.
        """
        page, (start, end) = self._page, self.body
        boxes = unpack(page.packed)
        heads = [line[:2] for line in _outer(page.heads, self.heads) if self.heads[line] and line.end <= start]
        feet = [line[:2] for line in reversed(_outer(page.feet, self.feet)) if self.feet[line] and line.start >= end]
        tail = [*feet, *([(page.aside, len(page.text))] if page.text[page.aside :].strip() else [])]
        if (start, end) == (0, len(page.text)):
            return page.text, boxes
        first, last = self._places(start, end, before and bool(heads), after and bool(tail))
        parts = [(start, first), *heads, (first, last), *tail, (last, end)]
        trimmed = [place for part in parts for place in stripped(page.text, *part)]
        return rearranged(page.text, boxes, trimmed, "\n\n")

    def _places(self, start: int, end: int, before: bool, after: bool) -> tuple[int, int]:
        """Returns where kept heads and feet are put into the text ``start..end``: at its ends, or between sentences."""
        whole = [*sentences(self._page.text, start, end)] if before or after else []
        first, last = (whole[0][1], whole[-2][1]) if len(whole) > 1 else (end, start)
        if len(whole) < 2 and before and after:
            return start, end
        return first if before else start, last if after else end


def _outer(lines: Sequence[Line], running: Container[Line]) -> list[Line]:
    """Returns the running lines at the beginning of ``lines``, up to the first line that is not running."""
    return list(takewhile(running.__contains__, lines))
