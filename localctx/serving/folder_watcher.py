"""FolderWatcher: a thread that has new files of watched folders parsed, indexed and, while nothing else is to be done,
read ahead. Its jobs give way to all others.
"""

import threading
import time
from collections.abc import Callable
from contextlib import closing

from localctx.error_log import explain
from localctx.errors import Cancelled, ModelError, StoreError, UserError
from localctx.idle import MachineMonitor, MachineReading
from localctx.library.folders.folder_events import FolderEvents
from localctx.serving.file_pipeline import FilePipeline, Task
from localctx.serving.watch_status import FileEvent, WatchStatus
from localctx.serving.worker import EngineWorker
from localctx.settings import Settings
from localctx.store.process_locks import is_at_work, the_watcher
from localctx.store.store import Store, store_errors

QUIET = 5.0  # seconds without a question before anything is read ahead
RESCAN = 60.0  # seconds between two looks at folders of which nothing is reported
POLL = 0.5  # seconds between two looks at the machine, the questions and the list of folders
RETRY = 30.0  # seconds after an error that the next file would meet too
ELSEWHERE = "another localctx watches these folders"


class FolderWatcher:
    """Watches the folders in the store of ``settings()``. One process watches at a time; others wait for its end.

    Files are parsed and indexed by ``library_worker`` and read ahead by ``answer_worker``. ``on_event`` gets the news
    of every file, in the watcher's thread. ``read_machine``, ``settle`` and ``quiet`` (seconds that a file must stay as
    it is, and without a question) are for tests.
    """

    def __init__(
        self,
        settings: Callable[[], Settings],
        library_worker: EngineWorker,
        answer_worker: EngineWorker,
        on_event: Callable[[FileEvent], None] = lambda event: None,
        *,
        read_machine: Callable[[], MachineReading] | None = None,
        settle: float = 2.0,
        quiet: float = QUIET,
    ) -> None:
        self._settings, self._library_worker, self._answer_worker = settings, library_worker, answer_worker
        self._on_event, self._settle, self._quiet = on_event, settle, quiet
        self._read_machine = read_machine or MachineMonitor().read
        self._events = FolderEvents(self._note_change)
        self._changed = threading.Condition()
        self._open, self._rescan, self._thread = True, True, threading.Thread()
        self._worked = -quiet  # when a question was last seen running
        self.status = WatchStatus()
        self.done = False  # nothing is left to be done

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if not self._thread.is_alive() and self._open:
            self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Look at the list of folders and at all files now."""
        self._note_change()

    def close(self) -> None:
        """Stop what is being done, and end the thread."""
        with self._changed:
            self._open = False
            self._changed.notify_all()
        self._events.close()
        if self._thread.is_alive():
            self._thread.join()

    def _note_change(self) -> None:
        with self._changed:
            self._rescan, self.done = True, False
            self._changed.notify_all()

    def _run(self) -> None:
        while self._open:
            home = self._settings().home
            if Store.is_at(home):
                try:
                    with the_watcher(home) as alone:
                        if alone:
                            self._watch()
                        else:
                            self._show_others()
                except (UserError, OSError) as e:
                    self.status = WatchStatus(self.status.folders, str(e))
                    self._wait(RETRY)
            self._wait(POLL)

    def _show_others(self) -> None:
        """Show what is known of the folders while another process watches them."""
        with closing(Store(self._settings().home)) as store, store_errors(store.home):
            pipeline = FilePipeline(store, self._settle)
            self.status = WatchStatus(pipeline.statuses(self._settings()), ELSEWHERE)

    def _watch(self) -> None:
        """Do what there is to do, until the watcher is closed. Raises StoreError."""
        is_at_work(self._settings().home)  # makes the file by which other processes say so
        with closing(Store(self._settings().home)) as store, store_errors(store.home):
            pipeline = FilePipeline(store, self._settle)
            pipeline.retry_failed()
            watched: tuple[object, ...] = ()
            scanned = -RESCAN
            while self._open:
                folders, settings = pipeline.folders_there(), self._settings()
                if (folders, settings) != watched:
                    watched = folders, settings
                    self._events.watch(folders)
                    self._note_change()
                if self._take_rescan() or time.monotonic() - scanned >= RESCAN or pipeline.is_settling:
                    scanned = time.monotonic()
                    for event in pipeline.scan(scanned):
                        self._on_event(event)
                elif self.done:  # nothing has changed since
                    self._wait(POLL)
                    continue
                self._step(pipeline)

    def _take_rescan(self) -> bool:
        with self._changed:
            rescan, self._rescan = self._rescan, False
            return rescan

    def _step(self, pipeline: FilePipeline) -> None:
        """Do the most urgent task that may be done now, or wait a moment."""
        settings = self._settings()
        task = pipeline.next_task(settings, time.monotonic())
        why_not = self._why_not(task, False)
        self._show(pipeline, settings, f"waiting: {why_not}" if task and why_not else "")
        self.done = task is None and not pipeline.is_settling
        if task is None or why_not:
            self._wait(min(POLL, self._settle / 2) if pipeline.is_settling else POLL)
            return
        self._show(pipeline, settings, task.doing)
        try:
            self._do(pipeline, task)
        except Cancelled:
            pass  # it is tried again when there is time
        except (ModelError, StoreError) as e:
            self._show(pipeline, settings, str(e))
            self._wait(RETRY)
        except Exception as e:
            self._on_event(pipeline.fail(task, str(explain(e))))

    def _do(self, pipeline: FilePipeline, task: Task) -> None:
        """Have a task done. Raises Cancelled as soon as something else is to be done; UserError."""
        worker = self._answer_worker if task.reads else self._library_worker
        stream = worker.submit(task.job, yielding=True)
        for _ in stream:  # comes by at least every tenth of a second
            if not self._open or self._why_not(task, True):
                stream.cancel()
        for event in pipeline.finish(task):
            self._on_event(event)

    def _why_not(self, task: Task | None, running: bool) -> str:
        """Why a task should not be done now, or not go on if it is ``running``; empty if it may."""
        settings, now = self._settings(), time.monotonic()
        if is_at_work(settings.home):
            self._worked = now
            return "a question is being answered"
        if task is None or not task.reads:
            return ""
        if now - self._worked < self._quiet:
            return "a question was just answered"
        return "" if settings.read_ahead == "always" else self._read_machine().why_not(running)

    def _show(self, pipeline: FilePipeline, settings: Settings, doing: str) -> None:
        self.status = WatchStatus(pipeline.statuses(settings), doing)

    def _wait(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._rescan or not self._open, seconds)
