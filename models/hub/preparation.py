"""Prepares the processor's kernels where no earlier run did, in a thread: while a model is downloaded, too."""

from collections.abc import Callable
from threading import Thread

from localctx.kernels.cpu.warmup import compiled, warm

_SECOND = 1.0  # between two reports, so that a terminal shows the seconds that passed


class ProcessorPreparation:
    """The kernels being compiled; nothing where that was done before. The command does not wait for it when it ends."""

    def __init__(self) -> None:
        self._thread = None if compiled() else Thread(target=warm, daemon=True)
        if self._thread:
            self._thread.start()

    def wait(self, report: Callable[[], None]) -> None:
        """Wait until a model can read; calls ``report`` every second meanwhile. What failed fails again in loading."""
        while self._thread and self._thread.is_alive():
            report()
            self._thread.join(_SECOND)
