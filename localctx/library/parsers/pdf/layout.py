"""Converts text boxes found by OCR on a page into text in reading order: columns, lines, paragraphs."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from statistics import median
from typing import NamedTuple


class Box(NamedTuple):
    """A piece of a line that OCR found, with its edges in pixels from the upper left corner."""

    left: float
    top: float
    right: float
    bottom: float
    text: str


_Axis = tuple[Callable[[Box], float], Callable[[Box], float]]  # a box's start and end along the axis
_ACROSS: _Axis = (attrgetter("left"), attrgetter("right"))
_DOWN: _Axis = (attrgetter("top"), attrgetter("bottom"))


def place(boxes: Sequence[Box]) -> tuple[str, list[tuple[int, int, Box]]]:
    """Put OCR boxes in reading order. Returns the text, and a list of (start, end, box) that says where the text of
    each box is.

    Lines end in one newline, paragraphs in two.
    """
    if not boxes:
        return "", []
    rows = [row for block in _blocks(list(boxes)) for row in rows_of(block)]
    paragraph_gap = 0.7 * median(box.bottom - box.top for box in boxes)
    text, placed = "", list[tuple[int, int, Box]]()
    for above, row in zip([None, *rows], rows, strict=False):
        gap = "" if above is None else "\n\n" if _gap(above, row) > paragraph_gap else "\n"
        for box in row:
            text += gap
            placed.append((len(text), len(text) + len(box.text), box))
            text, gap = text + box.text, " "
    return text, placed


def _blocks(boxes: list[Box]) -> Iterator[list[Box]]:
    """Divide boxes recursively into columns from left to right, or else into horizontal bands at the widest gaps."""
    parts = _columns(boxes) or _bands(boxes)
    if len(parts) < 2:
        yield boxes
        return
    for part in parts:
        yield from _blocks(part)


def _columns(boxes: list[Box]) -> list[list[Box]]:
    """Returns the columns of running text, or []. Tables, numbers and bullets do not count as columns, because they are
    read line by line.
    """
    columns = _split_at_gaps(boxes, _ACROSS, 0)
    width = max(box.right for box in boxes) - min(box.left for box in boxes)
    return columns if len(columns) > 1 and all(_is_running(c, width) for c in columns) else []


def _is_running(column: list[Box], width: float) -> bool:
    """Returns True if most lines fill the column and the column fills enough of the page's ``width``."""
    left = min(box.left for box in column)
    column_width = max(box.right for box in column) - left
    line_width = median(box.right - left for box in column)
    return len(column) > 3 and column_width > width / 5 and line_width > 0.55 * column_width


def _bands(boxes: list[Box]) -> list[list[Box]]:
    """Divide boxes into horizontal bands, from the top, at all gaps of at least 0.8 times the widest gap. This keeps
    the recursion of ``_blocks`` shallow.
    """
    gaps = [_gap(above, below) for above, below in pairwise(_split_at_gaps(boxes, _DOWN, 0))]
    return _split_at_gaps(boxes, _DOWN, 0.8 * max(gaps, default=0))


def _split_at_gaps(boxes: list[Box], axis: _Axis, gap: float) -> list[list[Box]]:
    """Group boxes along an axis: two groups are separated by a gap of at least ``gap`` pixels, and of more than 0
    pixels.
    """
    start, end = axis
    groups: list[list[Box]] = []
    reach = 0.0
    for box in sorted(boxes, key=start):
        if not groups or 0 < start(box) - reach >= gap:
            groups.append([])
        groups[-1].append(box)
        reach = max(reach, end(box))
    return groups


def rows_of(block: list[Box]) -> list[list[Box]]:
    """Group boxes at about the same height into lines from the top, each sorted from left to right."""
    rows: list[list[Box]] = []
    for box in sorted(block, key=_middle):
        if rows and _middle(box) - _middle(rows[-1][0]) < 0.5 * (box.bottom - box.top):
            rows[-1].append(box)
        else:
            rows.append([box])
    return [sorted(row, key=lambda box: box.left) for row in rows]


def _middle(box: Box) -> float:
    return (box.top + box.bottom) / 2


def _gap(above: list[Box], below: list[Box]) -> float:
    return min(box.top for box in below) - max(box.bottom for box in above)
