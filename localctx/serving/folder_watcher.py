"""Watches folders in a thread: has new files parsed, indexed and, while the machine is idle, read ahead.

Its jobs give way to all others.
"""

import threading
import time
from collections.abc import Callable
from contextlib import closing

from localctx.error_log import explain
from localctx.errors import Cancelled, ModelError, StoreError, UserError
from localctx.idle import MachineMonitor, MachineReading
from localctx.library.folders.folder_events import FolderEvents
from localctx.library.folders.folder_scan import SETTLE
from localctx.serving.file_pipeline import FilePipeline, Task
from localctx.serving.watch_status import FileEvent, WatchStatus
from localctx.serving.worker import EngineWorker
from localctx.settings import Settings
from localctx.store.process_locks import is_at_work, the_watcher
from localctx.store.store import Store, store_errors

QUIET = 5.0  # seconds without a question before anything is read ahead
RESCAN = 60.0  # seconds between scans of folders without change events
POLL = 0.5  # seconds between checks of the machine, the questions and the folder list
RETRY = 30.0  # seconds to wait after an error that would also hit the next file
ELSEWHERE = "another localctx watches these folders"


class FolderWatcher:
    """Watches the folders in the store of ``settings()``.

    One process watches at a time; all other processes wait until it ends. ``library_worker`` parses and indexes files,
    ``answer_worker`` reads them ahead. ``on_event`` is called with the events of every file, in the watcher's thread.
    ``read_machine``, ``settle`` (seconds that a file must stay unchanged) and ``quiet`` (seconds without a question)
    are for tests.
    """

    def __init__(
        self,
        settings: Callable[[], Settings],
        library_worker: EngineWorker,
        answer_worker: EngineWorker,
        on_event: Callable[[FileEvent], None] = lambda event: None,
        *,
        read_machine: Callable[[], MachineReading] | None = None,
        settle: float = SETTLE,
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
        """Start the thread, unless it is running."""
        if not self._thread.is_alive() and self._open:
            self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Check the folder list and scan all files now."""
        self._note_change()

    def close(self) -> None:
        """Stop the current task and end the thread."""
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
        """Show the known state of the folders while another process watches them."""
        with closing(Store(self._settings().home)) as store, store_errors(store.home):
            pipeline = FilePipeline(store, self._settle)
            self.status = WatchStatus(pipeline.statuses(self._settings()), ELSEWHERE)

    def _watch(self) -> None:
        """Do all pending tasks until the watcher is closed. Raises StoreError."""
        is_at_work(self._settings().home)  # creates the lock file that other processes use to report work
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
                elif self.done:  # nothing has changed since the last task
                    self._wait(POLL)
                    continue
                self._step(pipeline)

    def _take_rescan(self) -> bool:
        with self._changed:
            rescan, self._rescan = self._rescan, False
            return rescan

    def _step(self, pipeline: FilePipeline) -> None:
        """Run the most urgent task that may run now, or wait a moment."""
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
            pass  # retried when there is time
        except (ModelError, StoreError) as e:
            self._show(pipeline, settings, str(e))
            self._wait(RETRY)
        except Exception as e:
            self._on_event(pipeline.fail(task, str(explain(e))))

    def _do(self, pipeline: FilePipeline, task: Task) -> None:
        """Run a task. Raises Cancelled as soon as other work arrives, and UserError."""
        worker = self._answer_worker if task.reads else self._library_worker
        stream = worker.submit(task.job, yielding=True)
        for _ in stream:  # iterates at least every tenth of a second
            if not self._open or self._why_not(task, True):
                stream.cancel()
        for event in pipeline.finish(task):
            self._on_event(event)

    def _why_not(self, task: Task | None, running: bool) -> str:
        """Returns why a task must not start, or must stop if it is ``running``. Empty if it may run."""
        return self.why_not_read(running) if task and task.reads else self._who_works()

    def _who_works(self) -> str:
        """Returns that a question is being answered, or ""."""
        if not is_at_work(self._settings().home):
            return ""
        self._worked = time.monotonic()
        return "a question is being answered"

    def why_not_read(self, running: bool = False) -> str:
        """Returns why no document must be read ahead now, or why that must stop if it is ``running``. Empty if it may
        run.
        """
        if why_not := self._who_works():
            return why_not
        settings, now = self._settings(), time.monotonic()
        if now - self._worked < self._quiet:
            return "a question was just answered"
        return "" if settings.read_ahead == "always" else self._read_machine().why_not(running)

    def _show(self, pipeline: FilePipeline, settings: Settings, doing: str) -> None:
        self.status = WatchStatus(pipeline.statuses(settings), doing)

    def _wait(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._rescan or not self._open, seconds)
