"""A range of a document's text and the element in which viewer.js shows it."""

from collections.abc import Iterable
from typing import Any, NamedTuple

SYNTAX = "lc-syntax"
"""The class of characters that are hidden because the element around them says the same: ``**``, ``| ``."""


class LayoutRange(NamedTuple):
    """The characters ``start..end`` of a document, which are shown in an element ``tag``.

    ``value`` depends on the tag. ``span``: its class. ``li``: its number, or 0. ``tr``: its number in the sheet, or "".
    ``td`` and ``th``: the column from 0, or -1 for a cell as wide as the table, and whether it is set to the right.
    ``table``: where its header is not in the text shown, the name of each column and whether it is set to the right,
    else [].
    """

    start: int
    end: int
    tag: str
    value: Any = ""


def nested(ranges: Iterable[LayoutRange], start: int, end: int) -> list[LayoutRange]:
    """Returns the ranges within ``start..end`` in the order of a tree: each outer range before its inner ones.

    Empty ranges, and those that cross the end of an earlier range, are left out.
    """
    cut = (r._replace(start=max(start, r.start), end=min(end, r.end)) for r in ranges)
    found, ends = list[LayoutRange](), list[int]()
    for r in sorted((r for r in cut if r.start < r.end), key=lambda r: (r.start, -r.end)):
        while ends and ends[-1] <= r.start:
            ends.pop()
        if not ends or r.end <= ends[-1]:
            found.append(r)
            ends.append(r.end)
    return found
