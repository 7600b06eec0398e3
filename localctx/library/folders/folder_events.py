"""Reports changes below folders, from the operating system's file events."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import watchfiles

DEBOUNCE = 400  # milliseconds over which changes are reported together
PAUSE = 1.0  # seconds before watching resumes after a failed report


class FolderEvents:
    """Calls ``on_change``, in a thread of its own, whenever something changes below the watched folders.

    Some disks report nothing, and systems limit how much can be watched. So callers must also scan the folders
    periodically.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._stop: threading.Event | None = None

    def watch(self, folders: Sequence[str]) -> None:
        """Watch these existing folders instead of the previous ones."""
        self.close()
        if folders:
            self._stop = threading.Event()
            threading.Thread(target=self._run, args=(folders, self._stop), name="folders", daemon=True).start()

    def close(self) -> None:
        """Stop watching."""
        if self._stop:
            self._stop.set()

    def _run(self, folders: Sequence[str], stop: threading.Event) -> None:
        with suppress(OSError):  # watching has failed and ends
            while not stop.is_set():
                with suppress(RuntimeError):  # a change of a file whose name is not UTF-8 cannot be reported
                    self._report(folders, stop)
                if not stop.wait(PAUSE):
                    self._on_change()
        if not stop.is_set():
            self._on_change()  # a scan finds the changes that were missed

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
