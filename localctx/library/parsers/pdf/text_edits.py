"""Edits a page's text, and moves its word boxes along with it."""

from bisect import bisect_right
from collections.abc import Sequence

from localctx.library.parsers.word_boxes import WordBox

Edit = tuple[int, int, str]
"""Replaces characters ``start..end`` of a text by a new text: (start, end, new text)."""


def edited(text: str, boxes: Sequence[WordBox], edits: Sequence[Edit]) -> tuple[str, list[WordBox]]:
    """Apply ``edits`` to a page's text. Returns the text, and the word boxes with adapted positions.

    The edits must be in order and must not overlap. A box that has no characters left is dropped.
    """
    if not edits:
        return text, list(boxes)
    pieces, at, starts, shifts = list[str](), 0, list[int](), list[int]()
    for start, end, new in edits:
        pieces += [text[at:start], new]
        starts.append(start)
        shifts.append((shifts[-1] if shifts else 0) + len(new) - (end - start))
        at = end

    def moved(position: int) -> int:
        i = bisect_right(starts, position - 1) - 1  # the last edit that begins before the position
        if i < 0:
            return position
        start, end, new = edits[i]
        before = shifts[i] - (len(new) - (end - start))
        return position + shifts[i] if position >= end else start + before + min(position - start, len(new))

    changed = (box._replace(start=moved(box.start), end=moved(box.end)) for box in boxes)
    return "".join([*pieces, text[at:]]), [box for box in changed if box.end > box.start]


def rearranged(
    text: str, boxes: Sequence[WordBox], parts: Sequence[tuple[int, int]], gap: str
) -> tuple[str, list[WordBox]]:
    """Join the ``parts`` (start, end) of a text in the given order, with ``gap`` between them. Returns the text, and
    the word boxes with adapted positions.
    """
    pieces, moved, at = list[str](), list[WordBox](), 0
    for start, end in parts:
        pieces.append(text[start:end])
        own = (box for box in boxes if start <= box.start and box.end <= end)
        moved += [box._replace(start=box.start - start + at, end=box.end - start + at) for box in own]
        at += end - start + len(gap)
    return gap.join(pieces), moved
