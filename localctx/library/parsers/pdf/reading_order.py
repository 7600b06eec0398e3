"""Puts the line pieces of a page in reading order.

Columns of running text are found by geometry, and read one after another; a file may write them line by line across the
page. A column has several full lines on its side of a gap that no line crosses. If the file writes one side after the
other, a column may also have lists and tables. Elsewhere blocks at different heights are read from the top. Blocks
beside each other, such as cells, stay in the file's order.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from localctx.library.parsers.pdf.from_right import is_from_right
from localctx.library.parsers.pdf.pieces import LinePiece, words_of

TextLine = list[LinePiece]
"""The pieces that are read as one line."""

_Test = Callable[[Sequence[LinePiece], list[TextLine], list[TextLine], float], bool]
"""Decides whether the lines on both sides of a gap are columns, given all pieces and the width of the text."""

_MIN_LINES = 4  # of a column
_MIN_FULL = 3  # full lines of a column with lists or tables
_MAX_PIECES = 2_000  # a page with more is a drawing or a table, and stays in the file's order
_GUTTER = 0.65  # line heights between two columns, at least; spaces of justified text rarely align as wide
_FULL = 0.65  # share of a column's width that its median line fills
_NARROW = 0.12  # share of the text's width that a column has, at least
_WORDS = 3  # words of a column's median line, at least
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")  # no spaces between words
_FILLED = 0.7  # share of lines on which the next word would not have fitted
_SPACE = 0.2  # line heights of a space between words
_FLOWING = 0.25  # share of lines that begin in lower case, as lines within sentences do
_NEAR = 2.0  # line heights between the tops of a column's lines, at most
_CELL_LINES = 1.5  # lines in a row on one side, above which cells beside each other are taken for a table
_APART = 1.6  # line heights between the tops of lines that do not belong together
_FAR = 4.0  # line heights between the tops of lines of which one is a page's foot or head, whatever the file's order
_EDGE = 2.0  # points by which the edges of a column's lines may differ


class _Gutter(NamedTuple):
    """The gap between two columns: its middle ``x``, and the heights ``top..bottom`` in which no line crosses it."""

    x: float
    top: float
    bottom: float


def in_order(pieces: Sequence[LinePiece]) -> list[TextLine]:
    """Returns the lines of text in reading order. ``pieces`` have the same direction, and are in the file's order."""
    if len(pieces) > _MAX_PIECES:
        return _rows(pieces)
    return list(_divided(list(pieces)))


def columns(pieces: list[LinePiece]) -> Iterator[list[LinePiece]]:
    """Yields the columns that the file writes one after another, and the text above and below them."""
    if len(pieces) > _MAX_PIECES or not (gutter := _find_gutter(pieces, _written_apart)):
        yield pieces
        return
    for part in filter(None, _parts(pieces, gutter)):
        yield from columns(part)


def _divided(pieces: list[LinePiece]) -> Iterator[TextLine]:
    if not (gutter := _find_gutter(pieces, _are_columns)):
        yield from _rows(_by_height(pieces))
        return
    for part in _parts(pieces, gutter):
        yield from _divided(part)


def _parts(pieces: Sequence[LinePiece], gutter: _Gutter) -> list[list[LinePiece]]:
    """Returns the pieces in reading order, in four lists: above the two columns, each column, and below the columns."""
    top, bottom = _trimmed(pieces, gutter)
    within = [piece for piece in pieces if top <= piece.middle <= bottom]
    sides = [[p for p in within if p.right <= gutter.x], [p for p in within if p.left >= gutter.x]]
    if sum(is_from_right(piece.text) for piece in within) > len(within) / 2:
        sides.reverse()
    return [[p for p in pieces if p.middle < top], *sides, [p for p in pieces if p.middle > bottom]]


def _trimmed(pieces: Sequence[LinePiece], gutter: _Gutter) -> tuple[float, float]:
    """Returns the top and bottom of two columns, without single lines above or below both.

    Such a line, for example a date at the right or a page number, is far above or below its column, or apart from the
    column in the file's order.
    """
    within = [piece for piece in pieces if gutter.top <= piece.middle <= gutter.bottom]
    left, right = (_lines([p for p in within if (p.right <= gutter.x) == side]) for side in (True, False))
    heads = [i for i, line in enumerate(right[:-1]) if line[0].bottom < left[0][0].top]
    feet = [i for i, line in enumerate(left) if i and line[0].top > right[-1][0].bottom]
    tops = (right[i][0].bottom for i in reversed(heads) if _are_apart(pieces, right[i], right[i + 1], left))
    bottoms = (left[i][0].top for i in feet if _are_apart(pieces, left[i], left[i - 1], right))
    return next(tops, gutter.top), next(bottoms, gutter.bottom)


def _are_apart(pieces: Sequence[LinePiece], line: TextLine, neighbour: TextLine, others: Sequence[TextLine]) -> bool:
    """Returns True if a line does not belong to the column of its neighbour.

    That is so if the line is far away, or if the file writes all ``others`` between the two. It is also so if the file
    writes some of ``others`` there, and the line is further away than neighbouring lines of a column are.
    """
    order = {id(piece): i for i, piece in enumerate(pieces)}
    start, end = sorted((order[id(line[0])], order[id(neighbour[0])]))
    between = sum(start < order[id(other[0])] < end for other in others)
    distance = abs(line[0].top - neighbour[0].top) / max(line[0].height, neighbour[0].height)
    return between == len(others) or (between > 0 and distance > _APART) or distance > _FAR


def _find_gutter(pieces: Sequence[LinePiece], test: _Test) -> _Gutter | None:
    """Returns the gap whose two sides are columns according to ``test``, or None. Of several gaps, returns the one with
    the most lines beside it.
    """
    by_middle, best, lines = sorted(pieces, key=lambda p: p.middle), None, 0
    width = max((p.right for p in pieces), default=0) - min((p.left for p in pieces), default=0)
    for gutter, within in _bands(by_middle):
        left = _lines([p for p in within if p.right <= gutter.x])
        right = _lines([p for p in within if p.left >= gutter.x])
        found = min(len(left), len(right))
        if found > max(lines, _MIN_LINES - 1) and test(pieces, left, right, width):
            best, lines = gutter, found
    return best


def _bands(pieces: Sequence[LinePiece]) -> Iterator[tuple[_Gutter, Sequence[LinePiece]]]:
    """Yields each gap that no piece crosses, with the pieces beside it. ``pieces`` are sorted by their middles."""
    middles = [piece.middle for piece in pieces]
    for x in _gaps(pieces):
        crossing, top = sorted((p.top, p.bottom) for p in pieces if p.left < x < p.right), float("-inf")
        for start, end in [*crossing, (float("inf"), float("inf"))]:
            within = pieces[bisect_left(middles, top) : bisect_right(middles, start)]
            if len(within) >= 2 * _MIN_LINES:
                yield _Gutter(x, top, start), within
            top = max(top, end)


def _gaps(pieces: Sequence[LinePiece]) -> list[float]:
    """Returns the places where columns may begin or end: the x of edges that several pieces share, moved a little away
    from the pieces.
    """
    places = set[float]()
    for edges, step in ((sorted(p.left for p in pieces), -1), (sorted(p.right for p in pieces), 1)):
        start = 0
        for i, (edge, following) in enumerate(pairwise([*edges, float("inf")])):
            if following - edge > _EDGE:
                if i + 1 - start >= _MIN_LINES - 1:
                    places.add((edges[start] if step < 0 else edge) + step * _EDGE / 2)
                start = i + 1
    return sorted(places)


def _lines(pieces: Sequence[LinePiece]) -> list[TextLine]:
    """Returns the pieces of a column in lines from the top."""
    lines = list[TextLine]()
    for piece in sorted(pieces, key=lambda p: p.middle):
        if lines and piece.is_on_line_of(lines[-1][0]):
            lines[-1].append(piece)
        else:
            lines.append([piece])
    return [sorted(line, key=lambda p: p.left) for line in lines]


def _are_columns(pieces: Sequence[LinePiece], left: list[TextLine], right: list[TextLine], width: float) -> bool:
    """Returns True if the lines on both sides of a gap are running text, and not the cells of a table.

    ``width`` is the width of the text on the page.
    """
    if _written_apart(pieces, left, right, width):
        return True
    if not (_is_gutter(left, right) and _is_running(left, width) and _is_running(right, width)):
        return False
    return not _are_cells(pieces, left, right)


def _written_apart(pieces: Sequence[LinePiece], left: list[TextLine], right: list[TextLine], width: float) -> bool:
    """Returns True if the file writes one side after the other, and each has full lines of text among its lines."""
    if not _is_gutter(left, right) or not (_has_text(left, width) and _has_text(right, width)):
        return False
    order = {id(piece): i for i, piece in enumerate(pieces)}
    places = [[order[id(piece)] for line in lines for piece in line] for lines in (left, right)]
    first, second = sorted(places, key=min)
    return max(first) < min(second)


def _is_gutter(left: list[TextLine], right: list[TextLine]) -> bool:
    gap = min(line[0].left for line in right) - max(line[-1].right for line in left)
    return gap >= _GUTTER * median(line[0].height for line in (*left, *right))


def _has_text(lines: Sequence[TextLine], width: float) -> bool:
    """Returns True if several of the lines are full lines of several words."""
    left, right = min(line[0].left for line in lines), max(line[-1].right for line in lines)
    full = [line for line in lines if line[-1].right - line[0].left >= _FULL * (right - left)]
    texts = [" ".join(piece.text for piece in line) for line in full if len(line) == 1]
    several = [text for text in texts if len(text.split()) > _WORDS or len(_UNSPACED.findall(text)) > 2 * _WORDS]
    return len(several) >= _MIN_FULL and right - left >= _NARROW * width


def _is_running(lines: Sequence[TextLine], width: float) -> bool:
    """Returns True for running text: lines of several words that are near each other, are mostly full, and go on in the
    next line.

    A line goes on if the lines begin in lower case, or if the first word of the next line would not have fitted on it.
    """
    left, right = min(line[0].left for line in lines), max(line[-1].right for line in lines)
    full = median(line[-1].right - line[0].left for line in lines) / (right - left or 1)
    if full < _FULL or right - left < _NARROW * width:
        return False
    texts = [" ".join(piece.text for piece in line) for line in lines]
    unspaced = sum(len(_UNSPACED.findall(text)) for text in texts) > sum(map(len, texts)) / 2
    several = unspaced or median(len(text.split()) for text in texts) >= _WORDS
    near = median(below[0].top - above[0].top for above, below in pairwise(lines)) <= _NEAR * lines[0][0].height
    flowing = sum(text[:1].islower() for text in texts) >= _FLOWING * len(texts)
    filled = sum(_is_filled(above, below, right) for above, below in pairwise(lines)) >= _FILLED * (len(lines) - 1)
    return near and several and (flowing or filled or unspaced)


def _is_filled(line: TextLine, following: TextLine, right: float) -> bool:
    """Returns True if the first word of the next line does not fit on a line that may end at ``right``."""
    word = next(words_of(following[0]))
    return line[-1].right + _SPACE * word.height + word.right - word.left > right


def _are_cells(pieces: Sequence[LinePiece], left: list[TextLine], right: list[TextLine]) -> bool:
    """Returns True if the file writes blocks of several lines alternately on both sides of the gap, row by row.

    Programs write the cells of a table in this way. They write columns whole, or line by line across the page.
    """
    side = {id(p): i for i, lines in enumerate((left, right)) for line in lines for p in line}
    blocks = list[list[LinePiece]]()
    for piece in (p for p in pieces if id(p) in side):
        if not blocks or side[id(piece)] != side[id(blocks[-1][-1])]:
            blocks.append([])
        blocks[-1].append(piece)
    if len(blocks) < 4:
        return False
    several = (len(left) + len(right)) / len(blocks) > _CELL_LINES
    tops = [min(p.top for p in block) for block in blocks]
    ends = [max(p.bottom for p in block) for block in blocks]
    in_rows = all(top > end - _EDGE for end, top in zip(ends, tops[2:], strict=False))
    return several and in_rows and all(top > end - _EDGE for end, top in zip(ends[1::2], tops[2::2], strict=False))


def _by_height(pieces: Sequence[LinePiece]) -> list[LinePiece]:
    """Returns the pieces sorted by height, block by block. Blocks beside each other keep their order."""
    blocks = list[tuple[float, float, list[LinePiece]]]()
    for run in _runs(pieces):
        top, bottom = min(map(_core_top, run)), max(map(_core_bottom, run))
        blocks.append((top, bottom, run))
    groups = list[tuple[float, float, list[int]]]()
    for i, (top, bottom, _) in sorted(enumerate(blocks), key=lambda item: item[1][0]):
        if groups and top < groups[-1][1]:
            last = groups[-1]
            groups[-1] = last[0], max(last[1], bottom), [*last[2], i]
        else:
            groups.append((top, bottom, [i]))
    return [piece for _, _, members in groups for piece in _beside([blocks[i][2] for i in sorted(members)])]


def _beside(runs: Sequence[list[LinePiece]]) -> list[LinePiece]:
    """Returns the pieces of the runs that are at one height. They are in the file's order, or sorted if they form one
    line or one column.
    """
    pieces = [piece for run in runs for piece in run]
    lines = _lines(pieces) if len(runs) > 1 else []
    order = {id(piece): i for i, piece in enumerate(pieces)}
    whole = all(max(places) - min(places) < len(places) for places in ([order[id(p)] for p in row] for row in lines))
    overlap = lines and max(row[0].left for row in lines) < min(row[-1].right for row in lines)
    if len(lines) == 1 or (whole and overlap):
        return [piece for row in lines for piece in (row[::-1] if is_from_right(row[0].text) else row)]
    return pieces


def _runs(pieces: Sequence[LinePiece]) -> Iterator[list[LinePiece]]:
    """Yields runs of pieces. A run ends where the next piece is higher on the page."""
    run = list[LinePiece]()
    for piece in pieces:
        if run and piece.middle < run[-1].middle - 0.5 * max(piece.height, run[-1].height):
            yield run
            run = []
        run.append(piece)
    if run:
        yield run


def _core_top(piece: LinePiece) -> float:
    return piece.top + 0.25 * piece.height


def _core_bottom(piece: LinePiece) -> float:
    return piece.bottom - 0.25 * piece.height


def _rows(pieces: Sequence[LinePiece]) -> list[TextLine]:
    """Group consecutive pieces at the same height into lines. A step back to the left begins a line."""
    rows = list[TextLine]()
    for piece in pieces:
        last = rows[-1][-1] if rows else None
        backwards = any(is_from_right(other.text) for other in (piece, *(rows[-1] if rows else [])))
        if last and piece.is_on_line_of(last) and (piece.left >= last.left or backwards):
            rows[-1].append(piece)
        else:
            rows.append([piece])
    return rows
