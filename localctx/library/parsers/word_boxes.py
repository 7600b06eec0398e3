"""Encodes word boxes, the positions of words on a document's pages, compactly. Standard library only."""

import re
import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

GRID = 65_535
"""The number of units that a page's width and height are divided into: 0 is left or top, GRID right or bottom."""

WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\s\u3040-\u30ff\u3400-\u9fff]+")  # kana and Chinese signs singly
_MAX_WORDS = 1 << 18  # the largest number of words of a page
_ROW = 14  # bytes: the distance from the previous word, the length, four edges


class WordBox(NamedTuple):
    """The box around the characters ``start..end`` of a page's text. Its edges are in GRID units from the page's upper
    left corner.

    A word that is divided between two lines has two boxes.
    """

    start: int
    end: int
    left: int
    top: int
    right: int
    bottom: int


def pack(words: Sequence[WordBox]) -> bytes:
    """Returns word boxes as compressed bytes. ``words`` are in ascending order of their starts."""
    words = [w for w in words[:_MAX_WORDS] if w.end - w.start <= GRID]
    steps = [w.start - before for w, before in zip(words, [0, *(w.start for w in words)], strict=False)]
    columns = [[w.end - w.start for w in words], *([w[i] for w in words] for i in range(2, 6))]
    shorts = [value for column in columns for value in column]
    return zlib.compress(struct.pack(f"<{len(steps)}I{len(shorts)}H", *steps, *shorts))


def unpack(packed: bytes, shift: int = 0) -> list[WordBox]:
    """Returns the word boxes in ``packed``, with ``shift`` added to their positions in the text.

    Raises ValueError if ``pack`` did not write these bytes.
    """
    decompressor = zlib.decompressobj()
    try:
        data = decompressor.decompress(packed, _MAX_WORDS * _ROW)
    except zlib.error as e:
        raise ValueError("the boxes of words are damaged") from e
    count, rest = divmod(len(data), _ROW)
    if rest or not decompressor.eof:
        raise ValueError("the boxes of words are damaged")
    values = struct.unpack(f"<{count}I{5 * count}H", data)
    lengths, *edges = (values[i * count : (i + 1) * count] for i in range(1, 6))
    words, start = [], shift
    for step, length, left, top, right, bottom in zip(values[:count], lengths, *edges, strict=True):
        start += step
        words.append(WordBox(start, start + length, left, top, right, bottom))
    return words


def clamp(edge: float) -> int:
    """Returns an edge, given as a share of the page's width or height, in GRID units. An edge outside of the page is
    moved to the page's edge.
    """
    return max(0, min(GRID, round(edge * GRID)))
