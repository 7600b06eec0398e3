"""Holds the state that all pages of the window share: the workers that run jobs, the store and the settings."""

import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localctx.errors import Cancelled, ModelError
from localctx.kv.keepers import make_keeper
from localctx.models.choice.default_model import choose_model
from localctx.models.choice.engine_choice import choose_engine
from localctx.models.hub.resolve import check_known
from localctx.serving.background_index import BackgroundIndexer
from localctx.serving.folder_watcher import FolderWatcher
from localctx.serving.worker import EngineWorker, EventStream, SessionJob
from localctx.settings import Settings, overrides, save_settings, with_changes
from localctx.store.deletions import Deletion, Kind
from localctx.store.store import Store, store_errors
from localctx.ui.running.batch_runs import BatchRuns
from localctx.ui.running.model_downloads import ModelDownloads
from localctx.ui.running.running_answers import RunningAnswers
from localctx.ui.running.tab_reading import TabReading
from localctx.ui.running.tab_readings import TabReadings
from localctx.ui.running.table_keeper import TableKeeper

if TYPE_CHECKING:
    import gradio as gr

MAX_PARALLEL = 8  # questions answered at the same time, if memory allows; each slows the others a little

EVENT_OPTIONS: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
"""Arguments of an event without a spinner over its outputs, which programs cannot call."""

SLOW_EVENT_OPTIONS = EVENT_OPTIONS | {"concurrency_limit": None}
"""Arguments of an event that may take long. The number of such events at a time has no limit, because the workers have
their own queues.
"""

SMALL: dict[str, Any] = {"size": "sm", "min_width": 80, "scale": 0}
"""Arguments of a small button that does not grow with its row."""

Updates = dict[Any, Any]
"""New values of gradio components, by component, as an event handler returns them."""


class AppWindow:
    """The state of one running window.

    ``answer_worker`` answers questions, ``library_worker`` reads files into the library, and ``upkeep_worker`` checks
    or deletes stored data. ``batches`` holds the current batch, ``answers`` the running answers of chats, ``readings``
    the read-ahead of each tab, ``downloads`` the model downloads. ``watcher``, once started, reads the files of watched
    folders, ``table`` keeps a table current, and ``indexer`` makes documents searchable.
    """

    def __init__(self, settings: Settings, max_parallel: int = MAX_PARALLEL) -> None:
        self.settings = settings = choose_model(settings)
        self.uploads = settings.home / "uploads"
        self.answer_worker = EngineWorker(settings, "answers", max_parallel)
        self.library_worker, self.upkeep_worker = EngineWorker(settings, "library"), EngineWorker(settings, "upkeep")
        self.batches = BatchRuns(self.answer_worker, max_parallel)
        self.answers = RunningAnswers()
        self.downloads = ModelDownloads()
        self.readings = TabReadings(self._make_reading)
        self.watcher = FolderWatcher(lambda: self.settings, self.library_worker, self.answer_worker)
        self.table = TableKeeper(lambda: self.settings, self.store, self.batches, lambda: self.watcher.why_not_read())
        self.indexer = BackgroundIndexer(lambda: self.settings, self.library_worker)
        self._streams: dict[str, EventStream] = {}  # by tab

    @contextmanager
    def store(self) -> Iterator[Store]:
        """Open the store for a short read or write, from any thread. Raises StoreError."""
        with closing(Store(self.settings.home)) as store, store_errors(self.settings.home):
            yield store

    def delete(self, kind: Kind, items: Sequence[str]) -> list[Deletion]:
        """Delete documents or chats (ids); they can be restored for a while. Raises StoreError.

        Running answers of these chats are stopped first.
        """
        for item in items:
            self.answers.stop_and_wait(item)
        with self.table.leaving_out(items), self.indexer.leaving_out(items), self.store() as store:
            return [store.delete(kind, item) for item in items]

    def document_choices(self, include: Collection[str] = ()) -> list[tuple[str, str]]:
        """Returns names and ids of the library's documents. Older versions are left out unless in ``include``."""
        with self.store() as store:
            shown = [d for d in store.documents.all() if not d.superseded or d.id in include]
            files = store.documents.files.all()
            names = {d.id: dict.fromkeys([d.name, *(file.name for file in files.get(d.id, ()))]) for d in shown}
            return [(" and ".join(names[d.id]), d.id) for d in shown]

    def download_path(self, name: str) -> Path:
        """Returns a path for a file that the browser will download. The file is deleted together with the uploads."""
        folder = Path(tempfile.mkdtemp(dir=self.uploads))
        return folder / (re.sub(r"[^\w. -]", "_", name).strip(". ")[:100] or "file")

    def submit(
        self, tab: str, job: SessionJob, worker: EngineWorker | None = None, exclusive: bool = False
    ) -> EventStream:
        """Submit a job for a browser tab, or for one of its panels, to ``worker`` (default: the answer worker).

        A tab has one job at a time: its previous job is cancelled. An ``exclusive`` job runs alone. Returns the job's
        events.
        """
        self.stop(tab)
        stream = self._streams[tab] = (worker or self.answer_worker).submit(job, exclusive=exclusive)
        return stream

    def run_promptly(self, tab: str, job: SessionJob, worker: EngineWorker | None = None) -> Iterator[Any]:
        """Submits a job for a tab, and yields the job's events.

        Raises Cancelled soon after a stop, even if the job itself still runs.
        """
        stream = self.submit(tab, job, worker)
        for event in stream:
            if stream.cancelled.is_set():
                raise Cancelled
            yield event
        if not self.has_job(tab):
            raise Cancelled

    def has_job(self, tab: str) -> bool:
        """True if a job was submitted for the tab, and was not stopped."""
        return tab in self._streams

    def stop(self, tab: str) -> None:
        """Cancel the tab's job, if it has one."""
        if stream := self._streams.pop(tab, None):
            stream.cancel()

    def save_settings(self, changes: Mapping[str, Any]) -> None:
        """Write these settings to the settings file, and use them for new jobs. The value None restores a setting's
        default.

        Settings that the environment overrides are written too, but not used. Raises UserError and changes nothing if a
        value is invalid or the model is unknown.
        """
        settings = with_changes(self.settings, {k: v for k, v in changes.items() if k not in overrides()})
        make_keeper(settings.keep, 0)
        if (settings.model, settings.engine) != (self.settings.model, self.settings.engine):
            _check_model(settings)
        save_settings(settings.home, changes)
        self.change_settings(settings)

    def change_settings(self, settings: Settings) -> None:
        """Use these settings for jobs that have not started yet."""
        self.settings = settings = choose_model(settings)
        for worker in self._workers:
            worker.change_settings(settings)

    def close(self) -> None:
        """Cancel all jobs and end the workers."""
        self.downloads.close()
        self.table.close()
        self.batches.close()
        self.readings.close()
        self.answers.close()
        self.watcher.close()
        self.indexer.close()
        for worker in self._workers:
            worker.close()

    def _make_reading(self) -> TabReading:
        return TabReading(lambda: self.settings, self.library_worker, self.answer_worker, self.indexer.wake)

    @property
    def _workers(self) -> tuple[EngineWorker, ...]:
        return self.answer_worker, self.library_worker, self.upkeep_worker


def _check_model(settings: Settings) -> None:
    """Raise ModelError if the model is neither in the catalogue nor on this machine, or the engine cannot run it."""
    try:
        check_known(settings.model, settings.models)
        choose_engine(settings.model, settings.engine)
    except ModelError as e:
        raise ModelError(e.problem, "choose one of the list, or download it first") from e


def tab_id(request: "gr.Request", panel: str = "") -> str:
    """Returns the id of the browser tab that sent a request, or of a ``panel`` in it that has its own jobs."""
    return f"{request.session_hash} {panel}"
