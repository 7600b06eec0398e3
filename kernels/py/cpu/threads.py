"""Limits the number of threads that the CPU kernels and torch use.

The threads of a kernel wait for each other at the end of every loop. If another program takes the core of one thread,
all of them wait until the system gives the core back. torch's threads also use their cores for a while after each of
its operations. So both leave cores to other programs. No result of a kernel depends on the number of threads, but the
last digits of torch's large products do.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numba
import torch

_ROUNDING = 0.4  # a core counts as free if other programs use at most this share of it
_STARTED_WITH = numba.get_num_threads()
_most = _STARTED_WITH


def set_threads(n: int) -> None:
    """Let kernels use at most ``n`` threads, or as many as numba started with if that is fewer."""
    global _most
    _most = max(1, min(n, _STARTED_WITH))
    numba.set_num_threads(_most)


def use_free_cores(free: float) -> int:
    """Let kernels that this thread calls use as many threads as cores are ``free``, but at least half of all threads
    and at most all. Returns the number.
    """
    threads = max((_most + 1) // 2, min(_most, int(free + _ROUNDING)))
    numba.set_num_threads(threads)
    return threads


@contextmanager
def torch_threads(most: int) -> Iterator[None]:
    """Let torch use at most ``most`` threads meanwhile. Large products of torch may then have other last digits."""
    configured = torch.get_num_threads()
    if most >= configured:
        yield
        return
    torch.set_num_threads(most)
    try:
        yield
    finally:
        torch.set_num_threads(configured)
