"""Rows of pages cut into the parts that one task of a kernel reads. Integers only."""

from collections.abc import Sequence

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
