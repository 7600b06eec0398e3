"""Finds grids of ruled lines on a page: the columns and rows of tables with borders, even with merged cells."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from localctx.library.parsers.pdf.layout import Box

TOUCH = 3.0  # points between lines that count as touching
_MIN_LENGTH = 6.0  # points; a shorter line rules no cell
_MAX_LINES = 400  # a page with more lines is taken for a drawing without tables


class _Line(NamedTuple):
    """A horizontal or vertical line: its position ``at``, and its ``start`` and ``end`` in the other direction."""

    at: float
    start: float
    end: float


@dataclass(frozen=True)
class RuledGrid:
    """A grid of ruled lines on a page, in points. ``down`` are the vertical lines, and ``across`` are the heights at
    which rows begin and end.
    """

    down: tuple[_Line, ...]
    across: tuple[float, ...]
    left: float
    right: float

    @property
    def top(self) -> float:
        return self.across[0]

    @property
    def bottom(self) -> float:
        return self.across[-1]

    def column(self, x: float, y: float) -> int:
        """Returns the number of the column at ``x`` in the row at ``y``: how many vertical lines of that row are to the
        left.

        A merged cell has no lines inside, so it is one column.
        """
        return sum(line.at < x and line.start - TOUCH <= y <= line.end + TOUCH for line in self.down)


def find_grids(rules: Sequence[Box]) -> Iterator[RuledGrid]:
    """Yields the grids with at least two rows and two columns among the lines and frames ``rules`` of a page."""
    edges = list(_edges(rules))
    flat = [e for e in edges if e.right - e.left > e.bottom - e.top]
    upright = [e for e in edges if e.right - e.left <= e.bottom - e.top]
    across = _merged(_Line((e.top + e.bottom) / 2, e.left, e.right) for e in flat)
    down = _merged(_Line((e.left + e.right) / 2, e.top, e.bottom) for e in upright)
    if len(across) + len(down) > _MAX_LINES:
        return
    for own_down, own_across in _connected(down, across):
        left, right = min(line.start for line in own_across), max(line.end for line in own_across)
        rows = _distinct([*(line.at for line in own_across), *(y for line in own_down for y in line[1:])])
        columns = _distinct([left, right, *(line.at for line in own_down)])
        if len(rows) > 2 and len(columns) > 2:
            yield RuledGrid(tuple(own_down), tuple(rows), left, right)


def _edges(rules: Iterable[Box]) -> Iterator[Box]:
    """Yields thin boxes unchanged, and the four edges of other boxes, such as frames and shaded cells."""
    for rule in rules:
        left, top, right, bottom, _ = rule
        if min(right - left, bottom - top) <= TOUCH:
            yield rule
        else:
            yield from (Box(left, y, right, y, "") for y in (top, bottom))
            yield from (Box(x, top, x, bottom, "") for x in (left, right))


def _merged(lines: Iterable[_Line]) -> list[_Line]:
    """Join touching lines at the same position: most programs draw the borders of each cell separately."""
    merged = list[_Line]()
    by_place = sorted(lines)
    places = _distinct([line.at for line in by_place])
    for at, own in groupby(by_place, lambda line: max(place for place in places if place <= line.at)):
        open_line: _Line | None = None
        for _, start, end in sorted(own, key=lambda line: line.start):
            if open_line and start <= open_line.end + TOUCH:
                open_line = _Line(at, open_line.start, max(open_line.end, end))
                continue
            merged += [open_line] if open_line else []
            open_line = _Line(at, start, end)
        merged += [open_line] if open_line else []
    return [line for line in merged if line.end - line.start >= _MIN_LENGTH]


def _distinct(places: Sequence[float]) -> list[float]:
    """Returns the positions in ascending order. Of several positions that touch each other, keeps the first."""
    distinct = list[float]()
    for place in sorted(places):
        if not distinct or place - distinct[-1] > TOUCH:
            distinct.append(place)
    return distinct


def _connected(down: Sequence[_Line], across: Sequence[_Line]) -> Iterator[tuple[list[_Line], list[_Line]]]:
    """Yields the groups of lines that cross or touch each other."""
    left_down, left_across = list(down), list(across)
    while left_down:
        own_down, own_across = [left_down.pop()], list[_Line]()
        grows = True
        while grows:
            more_across = [a for a in left_across if any(_cross(d, a) for d in own_down)]
            left_across = [a for a in left_across if a not in more_across]
            own_across += more_across
            more_down = [d for d in left_down if any(_cross(d, a) for a in own_across)]
            left_down = [d for d in left_down if d not in more_down]
            own_down += more_down
            grows = bool(more_across or more_down)
        if own_across:
            yield own_down, own_across


def _cross(down: _Line, across: _Line) -> bool:
    reaches = across.start - TOUCH <= down.at <= across.end + TOUCH
    return reaches and down.start - TOUCH <= across.at <= down.end + TOUCH
