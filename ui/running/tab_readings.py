"""Holds the TabReading of each tab of the window."""

import threading
from collections.abc import Callable

from localctx.ui.running.tab_reading import TabReading


class TabReadings:
    """One ``TabReading`` per tab, created by ``make`` on first use."""

    def __init__(self, make: Callable[[], TabReading]) -> None:
        self._make = make
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
