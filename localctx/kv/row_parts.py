"""Rows of pages cut into the parts that one task of a kernel reads. Integers only."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np


def split_rows(starts: np.ndarray, seen: Sequence[tuple[int, int]], max_pages: int) -> np.ndarray:
    """The pages of n rows, which begin at ``starts`` [n + 1], in parts of at most ``max_pages``: [parts, 4] int64 of
    row, first page, last page + 1, and tokens of the first page that are hidden.

    ``seen`` gives for each row the first page that it sees, and how many of that page's first tokens it does not.
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
    """``split_rows`` into about ``wanted`` parts a row, each of pages of one kind. ``kinds`` are those of the pages,
    [pages], or [H, pages] where KV heads have pages of their own. The parts of a row depend on it alone.
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
