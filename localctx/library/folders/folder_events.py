"""Tells when something changes below folders, as the system reports it."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import watchfiles

DEBOUNCE = 400  # milliseconds over which changes are reported together
PAUSE = 1.0  # seconds before watching goes on after a report that could not be made


class FolderEvents:
    """Calls ``on_change`` from a thread of its own when something changed below the folders watched now.

    Some disks report nothing, and systems limit how much may be watched: folders must be looked at now and then too.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._stop: threading.Event | None = None

    def watch(self, folders: Sequence[str]) -> None:
        """Watch these folders, which exist, instead of those before."""
        self.close()
        if folders:
            self._stop = threading.Event()
            threading.Thread(target=self._run, args=(folders, self._stop), name="folders", daemon=True).start()

    def close(self) -> None:
        """Watch nothing any longer."""
        if self._stop:
            self._stop.set()

    def _run(self, folders: Sequence[str], stop: threading.Event) -> None:
        with suppress(OSError):  # nothing is reported any longer
            while not stop.is_set():
                with suppress(RuntimeError):  # a change of a file whose name is not UTF-8 cannot be told
                    self._report(folders, stop)
                if not stop.wait(PAUSE):
                    self._on_change()
        if not stop.is_set():
            self._on_change()  # what was missed is looked for now

    def _report(self, folders: Sequence[str], stop: threading.Event) -> None:
        for _ in watchfiles.watch(
            *folders,
            watch_filter=None,
            debounce=DEBOUNCE,
            stop_event=stop,
            rust_timeout=500,
            raise_interrupt=False,
            ignore_permission_denied=True,
        ):
            self._on_change()
