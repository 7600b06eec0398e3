"""Downloads models in the server, one at a time, whether or not a page shows it."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from localctx.errors import Cancelled
from localctx.models.catalog import title_of
from localctx.ui.job_events import error_text

_ACTIVE = ("waiting", "running")

Pull = Callable[[str, Path, Callable[[str, int, int], None]], object]
"""A function that downloads a model into a folder and reports the phase, the amount done and the total."""


@dataclass
class ModelDownload:
    """The download of the model ``name``.

    ``state`` is ``waiting``, ``running``, ``done``, ``failed`` (``why`` is the reason) or ``cancelled``. ``phase``,
    ``done`` and ``total`` are the current progress, in bytes during the phase ``fetching``.
    """

    name: str
    state: str = "waiting"
    phase: str = ""
    done: int = 0
    total: int = 0
    why: str = ""
    _since: tuple[float, int] = (0.0, 0)  # when the phase began, and the amount done at that time

    @property
    def title(self) -> str:
        """The model's display name."""
        return title_of(self.name)

    @property
    def active(self) -> bool:
        """True while the download waits or runs."""
        return self.state in _ACTIVE

    @property
    def per_second(self) -> float:
        """The rate since the phase began, in bytes (or the units of another phase) per second. It is 0 in the first
        second.
        """
        began, before = self._since
        seconds = time.monotonic() - began
        return (self.done - before) / seconds if seconds >= 1 else 0.0

    def report(self, phase: str, done: int, total: int) -> None:
        """Record the progress. Raises Cancelled if the download was cancelled."""
        if self.state == "cancelled":
            raise Cancelled
        if phase != self.phase or done < self.done:
            self._since = time.monotonic(), done
        self.phase, self.done, self.total = phase, done, total


class ModelDownloads:
    """Runs downloads in a thread of its own. ``pull`` is the function that downloads a model (default:
    ``localctx.models.hub.resolve.pull``).
    """

    def __init__(self, pull: Pull | None = None) -> None:
        self._pull, self._changed = pull, threading.Condition()
        self._downloads = dict[str, ModelDownload]()
        self._thread: threading.Thread | None = None
        self._open = True

    @property
    def all(self) -> list[ModelDownload]:
        """The last download of each model since the window started, in the order in which the downloads started."""
        with self._changed:
            return list(self._downloads.values())

    @property
    def busy(self) -> bool:
        """True while any download runs or waits."""
        return any(download.active for download in self.all)

    def start(self, name: str, models: Path) -> None:
        """Queue the download of a model into the folder ``models``. It resumes an earlier partial download."""
        with self._changed:
            if not self._open or ((last := self._downloads.get(name)) and last.active):
                return
            self._downloads.pop(name, None)
            self._downloads[name] = ModelDownload(name)
            if not self._thread:
                self._thread = threading.Thread(target=self._run, args=(models,), name="downloads", daemon=True)
                self._thread.start()

    def cancel(self, name: str) -> None:
        """Stop a download. The part that was received stays on disk, and the next download of the model resumes
        there.
        """
        with self._changed:
            if (download := self._downloads.get(name)) and download.active:
                download.state = "cancelled"

    def forget(self, name: str) -> None:
        """Remove a download that has ended from the list."""
        with self._changed:
            if (download := self._downloads.get(name)) and not download.active:
                del self._downloads[name]

    def close(self) -> None:
        """Stop all downloads and wait for the running one to end."""
        with self._changed:
            self._open, thread = False, self._thread
        for download in self.all:
            self.cancel(download.name)
        if thread:
            thread.join()

    def _run(self, models: Path) -> None:
        """Run the waiting downloads, one after the other, until none is left. This runs in the thread."""
        while download := self._next():
            self._download(download, models)

    def _next(self) -> ModelDownload | None:
        with self._changed:
            download = next((d for d in self._downloads.values() if d.state == "waiting"), None)
            if download:
                download.state = "running"
            else:
                self._thread = None
            return download

    def _download(self, download: ModelDownload, models: Path) -> None:
        from localctx.models.hub.resolve import pull  # imports torch, which takes seconds

        try:
            (self._pull or pull)(download.name, models, download.report)
        except Cancelled:
            pass
        except Exception as e:
            with self._changed:
                download.state, download.why = "failed", error_text(e)
        else:
            with self._changed:
                download.state = "done"
