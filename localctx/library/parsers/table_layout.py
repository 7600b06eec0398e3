"""Finds the tables on a page, by their ruled lines or by columns of numbers, and reads them row by row.

It is careful: running text in columns, lists, and forms without lines stay as they are.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from localctx.library.parsers.layout import Box, rows_of
from localctx.library.parsers.ruled_grid import RuledGrid, find_grids

_MIN_ROWS = 3  # of a table without lines
_MIN_NUMBERS = 3  # in one of its columns
_SHARE = 0.75  # of the cells of that column
_GAP = 0.4  # heights of a line between two columns, at least
_FAR = 1.5  # heights of a line between what belongs to one table
_NUMBER = re.compile(r"[-+−–(<>~±$€£¥]{0,2} ?\d[\d.,:/' ]*%?\)?(?: ?[^\W\d_]{1,3}\.?| ?[%$€£¥])?")  # noqa: RUF001
"""A number with its sign or currency, or a unit of up to three letters."""
_NEARER = 0.8  # of the distance to the line above
_FULL = 0.8  # of a column's width: lines of running text fill more
_WORDS = 5  # in a line of running text, at least
_HYPHEN = re.compile(r"[\x02\ufffe]\s?")  # where PDFium found a word divided at the end of a line


class PageTable(NamedTuple):
    """A table between two heights of a page; cells of a row have tabs between them."""

    top: float
    bottom: float
    rows: list[str]


def find_tables(words: Sequence[Box], rules: Sequence[Box]) -> list[PageTable]:
    """Returns the tables of a page from the top, given its words, and its straight lines as boxes without text.

    No words stand beside a table. Places are in points from the upper left corner.
    """
    ruled = [table for grid in find_grids(rules) if (table := _ruled_table(grid, words))]
    ruled = [t for t in ruled if not any(o is not t and o.top <= t.top and t.bottom <= o.bottom for o in ruled)]
    free = [word for word in words if not any(t.top <= _middle(word) <= t.bottom for t in ruled)]
    return sorted([*ruled, *_number_tables(free)], key=lambda table: table.top)


def _ruled_table(grid: RuledGrid, words: Sequence[Box]) -> PageTable | None:
    beside = [word for word in words if grid.top <= _middle(word) <= grid.bottom]
    if any(not grid.left - 2 <= (word.left + word.right) / 2 <= grid.right + 2 for word in beside):
        return None
    rows = list[list[str]]()
    for top, bottom in pairwise(grid.across):
        cells = dict[int, list[Box]]()
        for word in (w for w in beside if top <= _middle(w) < bottom):
            cells.setdefault(grid.column((word.left + word.right) / 2, (top + bottom) / 2), []).append(word)
        if cells:
            rows.append([_text(cells.get(column, [])) for column in range(min(cells), max(cells) + 1)])
    return _table(grid.top, grid.bottom, rows)


def _table(top: float, bottom: float, rows: Sequence[Sequence[str]]) -> PageTable | None:
    """Returns rows of cells as a table if most have several cells with text."""
    several = sum(sum(map(bool, row)) > 1 for row in rows)
    if several < 2 or 2 * several < len(rows):
        return None
    return PageTable(top, bottom, ["\t".join(row) for row in rows])


def _number_tables(words: Sequence[Box]) -> Iterator[PageTable]:
    """Yields the tables without ruled lines, or with lines between rows only, that have a column of numbers."""
    block = list[list[Box]]()
    for line in [*map(_pieces, rows_of(list(words))), []]:
        if block and line and _goes_on(block, line):
            block.append(line)
            continue
        if table := _number_table(block):
            yield table
        block = [line] if len(line) > 1 else []


def _goes_on(block: Sequence[list[Box]], line: list[Box]) -> bool:
    """Returns True if ``line`` is near, and keeps the columns: one that bridges them, such as a total, ends a table."""
    near = line[0].top - block[-1][0].bottom < _FAR * _height(line[0])
    least = len(_columns(block)) if len(block) >= _MIN_ROWS else 2
    return near and len(_columns([*block, line])) >= least


def _number_table(block: Sequence[list[Box]]) -> PageTable | None:
    if sum(len(line) > 1 for line in block) < _MIN_ROWS:
        return None
    columns = _columns(block)
    lines = _joined([[[p for p in line if left <= _center(p) <= right] for left, right in columns] for line in block])
    by_column = [[line[j] for line in lines if line[j]] for j in range(len(lines[0]))]
    numbers = [_is_numbers(list(map(_text, cells))) for cells in by_column]
    if not any(numbers[1:]) or _is_index(numbers) or any(map(_is_running, by_column)):
        return None
    rows = _rows(lines, numbers, [min(piece.top for piece in line) for line in block])
    with_numbers = sum(any(cell and are for cell, are in zip(row[1:], numbers[1:], strict=True)) for row in rows)
    if with_numbers < _SHARE * (len(rows) - 1):
        return None
    top, bottom = min(p.top for p in block[0]), max(p.bottom for p in block[-1])
    return _table(top, bottom, [[_text(cell) for cell in row] for row in rows])


def _rows(lines: Sequence[list[list[Box]]], numbers: Sequence[bool], tops: Sequence[float]) -> list[list[list[Box]]]:
    """Joins the lines of a row. One with neither a first cell nor a number belongs to the nearer of its neighbours: a
    cell of several lines may begin above the others, if their text is centred.
    """
    rows, above = list[list[list[Box]]](), list[list[Box]]()
    for i, line in enumerate(lines):
        own = [before + cell for before, cell in zip(above or [[]] * len(line), line, strict=True)]
        continues = not line[0] and not any(cell for cell, are in zip(line, numbers, strict=True) if are)
        next_is_nearer = 0 < i < len(lines) - 1 and tops[i + 1] - tops[i] < _NEARER * (tops[i] - tops[i - 1])
        above = own if continues and next_is_nearer else []
        if continues and rows and not above:
            rows[-1] = [before + cell for before, cell in zip(rows[-1], own, strict=True)]
        elif not above:
            rows.append(own)
    return rows + ([above] if above else [])


def _joined(lines: list[list[list[Box]]]) -> list[list[list[Box]]]:
    """Joins neighbouring columns of which no line has both: a name on the left, and its numbers on the right."""
    j = 0
    while j + 1 < len(lines[0]):
        if any(line[j] and line[j + 1] for line in lines):
            j += 1
        else:
            lines = [[*line[:j], line[j] + line[j + 1], *line[j + 2 :]] for line in lines]
    return lines


def _is_index(numbers: Sequence[bool]) -> bool:
    """Returns True for words and numbers in turn: an index or contents in columns, each read by itself."""
    return len(numbers) > 2 and len(numbers) % 2 == 0 and all(are == bool(j % 2) for j, are in enumerate(numbers))


def _is_running(cells: Sequence[list[Box]]) -> bool:
    """Returns True for a column of running text, most lines of which are full."""
    widths = [max(p.right for p in cell) - min(p.left for p in cell) for cell in cells]
    words = median(len(_text(cell).split()) for cell in cells)
    return len(cells) > _MIN_ROWS and words >= _WORDS and median(widths) > _FULL * max(widths)


def _is_numbers(cells: Sequence[str]) -> bool:
    count = sum(bool(_NUMBER.fullmatch(cell)) for cell in cells)
    return count >= _MIN_NUMBERS and count >= _SHARE * (len(cells) - 1)  # the first may be the column's name


def _pieces(line: Sequence[Box]) -> list[Box]:
    """Joins the words of a line that have less than a column's gap between them."""
    pieces = [line[0]]
    for word in line[1:]:
        last = pieces[-1]
        if word.left - last.right < _GAP * _height(word):
            joined = f"{last.text} {word.text}"
            edges = min(last.top, word.top), max(last.right, word.right), max(last.bottom, word.bottom)
            pieces[-1] = Box(last.left, *edges, joined)
        else:
            pieces.append(word)
    return pieces


def _columns(lines: Sequence[Sequence[Box]]) -> list[tuple[float, float]]:
    """Returns from where to where the columns reach that no piece of a line bridges."""
    gap = _GAP * median(_height(piece) for line in lines for piece in line)
    columns = list[tuple[float, float]]()
    for piece in sorted((piece for line in lines for piece in line), key=lambda p: p.left):
        if columns and piece.left < columns[-1][1] + gap:
            columns[-1] = columns[-1][0], max(columns[-1][1], piece.right)
        else:
            columns.append((piece.left, piece.right))
    return columns


def _text(words: Sequence[Box]) -> str:
    """Returns the words of one cell, line by line."""
    text = " ".join(word.text for row in rows_of(list(words)) for word in row)
    return _HYPHEN.sub("", text)


def _middle(box: Box) -> float:
    return (box.top + box.bottom) / 2


def _center(box: Box) -> float:
    return (box.left + box.right) / 2


def _height(box: Box) -> float:
    return box.bottom - box.top
