"""Splits the pages of each row (one new token) into parts, each for a single kernel task. It works on integers only,
not on tensors.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np


def split_rows(starts: np.ndarray, seen: Sequence[tuple[int, int]], max_pages: int) -> np.ndarray:
    """Split the pages that n rows (new tokens) attend to into parts of at most ``max_pages`` pages, for kernel tasks.
    Returns [parts, 4] int64: (row, first page, last page + 1, number of hidden tokens in the first page).

    The pages of all rows are numbered one after another: row i has the pages ``starts[i]..starts[i + 1]``. ``seen`` has
    a pair for each row: the first visible page, and the number of hidden tokens in that page.
    """
    parts = [
        (row, at, min(stop, at + max_pages), skip if at == start + first else 0)
        for row, (start, stop, (first, skip)) in enumerate(zip(starts, starts[1:], seen, strict=False))
        for at in range(start + first, stop, max_pages)
    ]
    return np.array(parts, np.int64).reshape(-1, 4)


def split_rows_evenly(
    starts: np.ndarray, seen: Sequence[tuple[int, int]], wanted: int, kinds: np.ndarray
) -> np.ndarray:
    """Split the pages of n rows into about ``wanted`` parts for each row. ``starts``, ``seen`` and the result are as
    for ``split_rows``. The pages of a part have one kind (ORDINARY or SINK). ``kinds`` is [pages], or [H, pages] if KV
    heads have their own pages. The parts of a row depend only on that row.
    """
    kinds = np.atleast_2d(kinds)
    changes = np.flatnonzero((kinds[:, 1:] != kinds[:, :-1]).any(0)) + 1
    parts = list[tuple[int, int, int, int]]()
    for row, (start, stop, (first, skip)) in enumerate(zip(starts.tolist(), starts[1:].tolist(), seen, strict=False)):
        start += first
        size = 1 << (max(1, -(-(stop - start) // wanted)) - 1).bit_length()
        inside = changes[(changes > start) & (changes < stop)].tolist()
        for begin, end in pairwise([start, *inside, stop]):
            parts += [(row, at, min(end, at + size), skip if at == start else 0) for at in range(begin, end, size)]
    return np.array(parts, np.int64).reshape(-1, 4)
