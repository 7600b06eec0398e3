"""Time as a test may judge it: what other processes take of this machine is not counted."""

import time
from collections.abc import Callable

SAMPLE = 0.05  # seconds of computing, to see what share of a core this process is given
PATIENCE = 120  # seconds that something may take on a busy machine


def seconds_since(start: float) -> float:
    """Seconds since a ``time.monotonic()``, as a machine with nothing else to do would take for the same.

    They are measured in the time that this thread is given to compute now: all of it where the machine is idle, and
    where others want its cores too, a share.
    """
    passed, begun, used = time.monotonic() - start, time.monotonic(), time.thread_time()
    while time.thread_time() < used + SAMPLE:
        pass
    return passed * min(1.0, SAMPLE / (time.monotonic() - begun))


def wait_until(true: Callable[[], object], what: str = "so") -> None:
    """Wait until ``true()`` is true. Fails after PATIENCE."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"not {what} within {PATIENCE} s"
        time.sleep(0.02)
