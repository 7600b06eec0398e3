"""Holds the TabReading of each tab of the window."""

import threading
from collections.abc import Callable

from localctx.serving.worker import EngineWorker
from localctx.settings import Settings
from localctx.ui.running.tab_reading import TabReading


class TabReadings:
    """One ``TabReading`` per tab, created on first use."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        library_worker: EngineWorker,
        answer_worker: EngineWorker,
        on_end: Callable[[], None],
    ) -> None:
        self._make = lambda: TabReading(settings, library_worker, answer_worker, on_end)
        self._readings: dict[str, TabReading] = {}
        self._changed = threading.Lock()

    def of(self, tab: str) -> TabReading:
        """Returns the ``TabReading`` of a tab."""
        with self._changed:
            return self._readings.setdefault(tab, self._make())

    def leave(self, tab: str) -> None:
        """Stop reading ahead for a closed tab."""
        with self._changed:
            reading = self._readings.pop(tab, None)
        if reading:
            reading.stop()

    def close(self) -> None:
        """Stop reading ahead for all tabs."""
        for tab in list(self._readings):
            self.leave(tab)
