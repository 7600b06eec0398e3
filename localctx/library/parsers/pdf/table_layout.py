"""Finds the tables on a page, by ruled lines or by columns of numbers, and reads them row by row.

Running text in columns, lists, and forms without lines stay unchanged: in doubt, text is not a table.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from localctx.library.parsers.pdf.from_right import is_from_right
from localctx.library.parsers.pdf.layout import Box, rows_of
from localctx.library.parsers.pdf.pieces import LINE_HYPHEN
from localctx.library.parsers.pdf.ruled_grid import RuledGrid, find_grids

_MIN_ROWS = 3  # rows of a table without ruled lines
_MIN_NUMBERS = 3  # numbers in a column of numbers
_SHARE = 0.75  # share of numbers among the cells of a column of numbers
_GAP = 0.4  # line heights between two columns, at least
_FAR = 1.5  # line heights between two lines of one table, at most
_NUMBER = re.compile(r"[-+−–(<>~±$€£¥]{0,2} ?\d[\d.,:/' ]*%?\)?(?: ?[^\W\d_]{1,3}\.?| ?[%$€£¥])?")  # noqa: RUF001
"""A number with its sign or currency, or a unit of up to three letters."""
_NEARER = 0.8  # the next line is nearer if its distance is below this share of the distance to the line above
_FULL = 0.8  # share of a column's width that lines of running text exceed
_WORDS = 5  # words in a line of running text, at least


class PageTable(NamedTuple):
    """A table between the heights ``top`` and ``bottom`` of a page. The cells of a row are separated by tabs."""

    top: float
    bottom: float
    rows: list[str]


def find_tables(words: Sequence[Box], rules: Sequence[Box]) -> list[PageTable]:
    """Returns the tables of a page, from the top. ``words`` are the page's words; ``rules`` are its ruled lines, as
    boxes without text.

    A grid with words beside it is not a table. Coordinates are in points from the upper left corner.
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
    """Returns rows of cells as a table if most rows have several cells with text, else None.

    Rows in a script written from the right begin with their last cell on the page.
    """
    several = sum(sum(map(bool, row)) > 1 for row in rows)
    if several < 2 or 2 * several < len(rows):
        return None
    from_right = sum(is_from_right(cell) for row in rows for cell in row)
    step = -1 if from_right > sum(cell[:1].isalpha() for row in rows for cell in row) / 2 else 1
    return PageTable(top, bottom, ["\t".join(row[::step]) for row in rows])


def _number_tables(words: Sequence[Box]) -> Iterator[PageTable]:
    """Yields the tables that have a column of numbers, but no ruled lines or only lines between rows."""
    block = list[list[Box]]()
    for line in [*map(_pieces, rows_of(list(words))), []]:
        if block and line and _goes_on(block, line):
            block.append(line)
            continue
        if table := _number_table(block):
            yield table
        block = [line] if len(line) > 1 else []


def _goes_on(block: Sequence[list[Box]], line: list[Box]) -> bool:
    """Returns True if ``line`` continues a table: it is near and keeps the columns.

    A line across columns, such as a total, ends the table.
    """
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
    """Join the lines that belong to one row of a table. A line with neither a first cell nor a number belongs to its
    nearer neighbour.

    If text is centred vertically, a cell of several lines may begin above the other cells of the row.
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
    """Join two neighbouring columns if no line has text in both, for example if a name on the left stands above numbers
    on the right.
    """
    j = 0
    while j + 1 < len(lines[0]):
        if any(line[j] and line[j + 1] for line in lines):
            j += 1
        else:
            lines = [[*line[:j], line[j] + line[j + 1], *line[j + 2 :]] for line in lines]
    return lines


def _is_index(numbers: Sequence[bool]) -> bool:
    """Returns True if columns of words and numbers alternate: an index or contents, read column by column."""
    return len(numbers) > 2 and len(numbers) % 2 == 0 and all(are == bool(j % 2) for j, are in enumerate(numbers))


def _is_running(cells: Sequence[list[Box]]) -> bool:
    """Returns True for a column of running text: most of its lines are full."""
    widths = [max(p.right for p in cell) - min(p.left for p in cell) for cell in cells]
    words = median(len(_text(cell).split()) for cell in cells)
    return len(cells) > _MIN_ROWS and words >= _WORDS and median(widths) > _FULL * max(widths)


def _is_numbers(cells: Sequence[str]) -> bool:
    count = sum(bool(_NUMBER.fullmatch(cell)) for cell in cells)
    return count >= _MIN_NUMBERS and count >= _SHARE * (len(cells) - 1)  # the first cell may be the column's name


def _pieces(line: Sequence[Box]) -> list[Box]:
    """Join the words of a line into pieces. The gap between two joined words is narrower than a gap between columns."""
    pieces = [line[0]]
    for word in line[1:]:
        last = pieces[-1]
        if word.left - last.right < _GAP * _height(word):
            joined = _joined_words([last, word])
            edges = min(last.top, word.top), max(last.right, word.right), max(last.bottom, word.bottom)
            pieces[-1] = Box(last.left, *edges, joined)
        else:
            pieces.append(word)
    return pieces


def _columns(lines: Sequence[Sequence[Box]]) -> list[tuple[float, float]]:
    """Returns the (left, right) edges of the columns: pieces without a gap between them share a column."""
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
    text = " ".join(_joined_words(row) for row in rows_of(list(words)))
    return text.replace(f"{LINE_HYPHEN} ", LINE_HYPHEN)


def _joined_words(words: Sequence[Box]) -> str:
    """Returns the words of a line, which are given from left to right, in reading order."""
    step = -1 if sum(is_from_right(word.text) for word in words) > len(words) / 2 else 1
    return " ".join(word.text for word in words[::step])


def _middle(box: Box) -> float:
    return (box.top + box.bottom) / 2


def _center(box: Box) -> float:
    return (box.left + box.right) / 2


def _height(box: Box) -> float:
    return box.bottom - box.top
