"""Boxes of text that were seen on a page to its text: columns one after the other, lines, paragraphs."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from statistics import median
from typing import NamedTuple


class Box(NamedTuple):
    """A piece of a line and where it is, in pixels from the upper left corner."""

    left: float
    top: float
    right: float
    bottom: float
    text: str


_Axis = tuple[Callable[[Box], float], Callable[[Box], float]]  # where a box begins on it, and ends
_ACROSS: _Axis = (attrgetter("left"), attrgetter("right"))
_DOWN: _Axis = (attrgetter("top"), attrgetter("bottom"))
_DIVIDED = re.compile(r"(?<=[^\W\d_])-\n(?=[^\W\d_A-Z])")


def text_of(boxes: Sequence[Box]) -> str:
    """The text in reading order. Lines end in a newline, paragraphs that stand apart in two.

    A word divided at the end of a line is put together.
    """
    if not boxes:
        return ""
    rows = [row for block in _blocks(list(boxes)) for row in _rows(block)]
    apart = 0.7 * median(box.bottom - box.top for box in boxes)
    text = _line(rows[0])
    for above, row in pairwise(rows):
        text += ("\n\n" if _gap(above, row) > apart else "\n") + _line(row)
    return _DIVIDED.sub("", text)


def _line(row: list[Box]) -> str:
    return " ".join(box.text for box in row)


def _blocks(boxes: list[Box]) -> Iterator[list[Box]]:
    """Columns from left to right; without any, what the widest gaps part, from the top. A block has no gap across."""
    parts = _columns(boxes) or _bands(boxes)
    if len(parts) < 2:
        yield boxes
        return
    for part in parts:
        yield from _blocks(part)


def _columns(boxes: list[Box]) -> list[list[Box]]:
    """Columns of running text, if it is in columns. Those of a table, of numbers or bullets are read line by line."""
    columns = _parted(boxes, _ACROSS, 0)
    width = max(box.right for box in boxes) - min(box.left for box in boxes)
    return columns if len(columns) > 1 and all(_is_running(c, width) for c in columns) else []


def _is_running(column: list[Box], width: float) -> bool:
    """Whether lines fill the column, and the column enough of the page."""
    left = min(box.left for box in column)
    own = max(box.right for box in column) - left
    return len(column) > 3 and own > width / 5 and median(box.right - left for box in column) > 0.55 * own


def _bands(boxes: list[Box]) -> list[list[Box]]:
    """What the widest gaps part, from the top. Each time they are a fifth narrower, so that this ends soon."""
    gaps = [_gap(above, below) for above, below in pairwise(_parted(boxes, _DOWN, 0))]
    return _parted(boxes, _DOWN, 0.8 * max(gaps, default=0))


def _parted(boxes: list[Box], along: _Axis, gap: float) -> list[list[Box]]:
    """Groups along an axis, parted by gaps that are there and at least this wide."""
    start, end = along
    groups: list[list[Box]] = []
    reach = 0.0
    for box in sorted(boxes, key=start):
        if not groups or 0 < start(box) - reach >= gap:
            groups.append([])
        groups[-1].append(box)
        reach = max(reach, end(box))
    return groups


def _rows(block: list[Box]) -> list[list[Box]]:
    """Lines from the top, each from left to right: boxes beside each other at about the same height are one line."""
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
