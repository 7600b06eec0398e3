"""Compiles the CPU kernels in a background thread, for example during a download, if no earlier run did."""

from collections.abc import Callable
from threading import Thread

from localctx.kernels.cpu.warmup import compiled, warm

_SECOND = 1.0  # between two reports, so that a terminal shows the seconds that passed


class ProcessorPreparation:
    """Background compilation of the CPU kernels, skipped if already done or not ``needed``, as where a GPU computes. It
    does not delay the end of the command.
    """

    def __init__(self, needed: bool = True) -> None:
        self._thread = None if compiled() or not needed else Thread(target=warm, daemon=True)
        if self._thread:
            self._thread.start()

    def wait(self, report: Callable[[], None]) -> None:
        """Wait for compilation, calling ``report`` every second. An error is not raised here; it recurs in loading."""
        while self._thread and self._thread.is_alive():
            report()
            self._thread.join(_SECOND)
