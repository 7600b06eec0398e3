"""Staging: copies records from mapped files to a GPU."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

STAGED = 8 << 20  # bytes copied at a time


def copy_staged(records: Sequence[Tensor], out: Tensor, rows: np.ndarray) -> None:
    """Copy ``records``, all of one size, to the rows ``rows`` of ``out`` on a GPU, in the current stream.

    The copy goes through pinned memory, because a copy from any other memory waits for the device. Torch reuses pinned
    memory only after it was read.
    """
    count = max(1, STAGED // out.shape[1])
    for at in range(0, len(records), count):
        some = records[at : at + count]
        staged = torch.empty(len(some), out.shape[1], dtype=torch.uint8, pin_memory=out.device.type == "cuda")
        torch.stack(tuple(some), out=staged)
        _copy_rows(staged, out, rows[at : at + count])


def _copy_rows(staged: Tensor, out: Tensor, rows: np.ndarray) -> None:
    """Launch one copy per contiguous range of ``rows``."""
    starts = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)]
    for start, stop in pairwise(starts):
        first = int(rows[start])
        out[first : first + stop - start].copy_(staged[start:stop], non_blocking=True)
