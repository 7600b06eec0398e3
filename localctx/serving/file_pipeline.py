"""Takes each watched file through its steps: the file settles, is parsed, indexed and read ahead.

A file has settled when it no longer changes. The next step is derived from the store, so that after a process was
killed, the next process continues at the same step.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localctx.library.folders.folder_scan import GONE, FileStamp, SettlingFiles, scan_folders
from localctx.serving.watch_status import FileEvent, FileNews, FolderStatus, folder_statuses
from localctx.serving.worker import SessionJob
from localctx.settings import Settings
from localctx.store.documents import DocumentRow
from localctx.store.store import Store
from localctx.store.watch_list import WatchedFile, WatchedFolder, is_below

if TYPE_CHECKING:
    from localctx.session import Session
    from localctx.workflows.ahead.ingest import IngestedFile
    from localctx.workflows.ahead.read_ahead import ReadAheadResult


@dataclass
class Task:
    """The next job for one file; ``doing`` describes the job for the user.

    ``reads`` is True if the job reads the file ahead; such a job waits until the machine is idle. ``result`` is the
    result of the job after it has ended.
    """

    path: str
    doing: str
    job: SessionJob
    reads: bool = False
    document: str = ""
    stamp: FileStamp | None = None
    recipe: str = ""
    result: Any = None
    started: float = field(default_factory=time.perf_counter)


class FilePipeline:
    """Takes the files of the watched folders in ``store`` through their steps: each file settles, is parsed, indexed
    and read ahead.

    A file settles when it has not changed for ``settle`` seconds. Only one thread may use this object.
    """

    def __init__(self, store: Store, settle: float) -> None:
        self._store, self._settle = store, settle
        self._new = SettlingFiles(settle)
        self._missed = dict[str, float]()  # by path: since when a file is missing

    @property
    def is_settling(self) -> bool:
        """True while the pipeline waits for files that may still change, or that are missing and may come back."""
        return bool(self._new.paths or self._missed)

    def retry_failed(self) -> None:
        """Forget which files failed, so that they are tried again. The program that parses them may be installed
        now.
        """
        for file in self._store.watch_list.files():
            if not file.document:
                self._store.watch_list.forget(file.path)

    def folders_there(self) -> list[str]:
        """Returns the watched folders that exist and are not paused."""
        return [folder.path for folder in self._folders if Path(folder.path).is_dir()]

    def scan(self, now: float) -> Iterator[FileEvent]:
        """Scan the watched folders at the time ``now``. Yields an event for each deleted file."""
        folders = self.folders_there()
        found, known = self._found(folders), {file.path: file for file in self._store.watch_list.files()}
        fresh = {p: s for p, s in found.items() if not _is_same(known.get(p), s)}
        self._new.see(fresh, now)
        self._store.watch_list.note_gone([p for p in found if p in known and known[p].gone], 0.0)
        missed = [f for p, f in known.items() if p not in found and not f.gone and _is_below(p, folders)]
        self._missed = {file.path: self._missed.get(file.path, now) for file in missed}
        yield from self._deleted([f for f in missed if now - self._missed[f.path] >= GONE * self._settle])

    def _found(self, folders: Sequence[str]) -> dict[str, FileStamp]:
        """Returns the current files of the folders, except those in localctx's own data folder."""
        ours = [str(self._store.home), str(self._store.home.resolve())]  # watched folders are resolved
        return {path: stamp for path, stamp in scan_folders(folders).items() if not _is_below(path, ours)}

    def look(self) -> None:
        """Scan all files to find the new ones, without changing the store."""
        known = {file.path: file for file in self._store.watch_list.files()}
        found = self._found(self.folders_there())
        self._new.see({p: s for p, s in found.items() if not _is_same(known.get(p), s)}, 0.0)

    def next_task(self, settings: Settings, now: float) -> Task | None:
        """Returns the most urgent task at the time ``now``, or None if there is none. Indexing a file is most urgent,
        then parsing a settled file, then reading a file ahead.
        """
        waiting = [file for file in self._store.watch_list.files() if self._is_active(file.path)]
        rows = {row.id: row for row in self._store.documents.all()}
        for file in waiting:
            if not file.indexed and file.document in rows:
                return self._index(file)
        for path, stamp in self._new.settled(now):
            return self._ingest(path, stamp)
        recipe = self._recipe(settings)
        unread = [f for f in waiting if recipe and f.recipe != recipe and not f.gone and _is_current(f, rows)]
        if not unread:
            return None
        return self._read_ahead(max(unread, key=lambda f: _recency(f, rows[f.document])), recipe)

    def finish(self, task: Task) -> Iterator[FileEvent]:
        """Record the result of a task. Yields the events of the task's file."""
        if task.reads:
            yield self._note_read(task)
        elif task.stamp:
            yield from self._note_ingested(task.path, task.stamp, task.result)
        else:
            yield from self._note_indexed(task)

    def fail(self, task: Task, why: str) -> FileEvent:
        """Record that a task failed because of its file, for the reason ``why``. The file is not tried again until it
        changes.
        """
        if task.stamp:
            return self._note_failed(task.path, task.stamp, why)
        self._store.watch_list.note_indexed(task.document)
        if task.reads:
            self._store.watch_list.note_read(task.document, task.recipe, why)
        return FileEvent(task.path, "searchable" if task.reads else "failed", task.document, why)

    def statuses(self, settings: Settings) -> list[FolderStatus]:
        """Returns the status of each watched folder."""
        missing = [folder.path for folder in self._folders if not Path(folder.path).is_dir()]
        return folder_statuses(self._store, self._recipe(settings), self._new.paths, missing)

    @property
    def _folders(self) -> list[WatchedFolder]:
        return [folder for folder in self._store.watch_list.folders() if not folder.paused]

    def _is_active(self, path: str) -> bool:
        return _is_below(path, [folder.path for folder in self._folders])

    def _recipe(self, settings: Settings) -> str:
        from localctx.workflows.ahead.read_ahead import reading_recipe  # imports torch

        return "" if settings.read_ahead == "off" else reading_recipe(settings)

    def _deleted(self, files: Sequence[WatchedFile]) -> Iterator[FileEvent]:
        from localctx.workflows.ahead.ingest import note_missing

        for file in files:
            del self._missed[file.path]
            if file.document:
                yield FileEvent(file.path, "deleted", file.document, note_missing(self._store, file))
            else:
                self._store.watch_list.forget(file.path)

    # Tasks

    def _ingest(self, path: str, stamp: FileStamp) -> Task:
        def job(session: "Session") -> Generator[Any, None, None]:
            with session.workflows.watched_files() as files:
                task.result = files.ingest(path, stamp)
            yield from ()

        task = Task(path, f"parsing {Path(path).name}", job, stamp=stamp)
        return task

    def _note_ingested(self, path: str, stamp: FileStamp, ingested: "IngestedFile | None") -> Iterator[FileEvent]:
        if ingested is None:  # the file changed meanwhile
            return
        self._new.drop(path)
        if ingested.status == "failed":
            yield self._note_failed(path, stamp, ingested.why)
        elif ingested.status in ("moved", "copy"):
            self._missed.pop(ingested.why, None)
            news: FileNews = "moved" if ingested.status == "moved" else "copy"
            yield FileEvent(path, news, ingested.document, ingested.why, ingested.characters)

    def _note_failed(self, path: str, stamp: FileStamp, why: str) -> FileEvent:
        self._new.drop(path)
        self._store.watch_list.put(WatchedFile(path, stamp.bytes, stamp.modified, "", "", note=why))
        return FileEvent(path, "failed", why=why)

    def _index(self, file: WatchedFile) -> Task:
        def job(session: "Session") -> Generator[Any, None, None]:
            with session.workflows.watched_files() as files:
                task.result = files.index(file.document)
            yield from ()

        task = Task(file.path, f"indexing {Path(file.path).name}", job, document=file.document)
        return task

    def _note_indexed(self, task: Task) -> Iterator[FileEvent]:
        row = self._store.documents.find(task.document)
        seconds = time.perf_counter() - task.started
        yield FileEvent(task.path, "found", row.id, task.result or "", row.chars, 0, round(seconds, 3))

    def _read_ahead(self, file: WatchedFile, recipe: str) -> Task:
        def job(session: "Session") -> Generator[Any, Any, None]:
            task.result = yield from session.workflows.reading_ahead.read(file.document)

        doing = f"reading {Path(file.path).name} ahead"
        task = Task(file.path, doing, job, reads=True, document=file.document, recipe=recipe)
        return task

    def _note_read(self, task: Task) -> FileEvent:
        result: ReadAheadResult = task.result
        self._store.watch_list.note_read(task.document, task.recipe, result.note)
        row = self._store.documents.find(task.document)
        seconds = round(time.perf_counter() - task.started, 3)
        news: FileNews = "searchable" if result.note else "ready"
        return FileEvent(task.path, news, row.id, result.note, row.chars, result.tokens, seconds)


def _is_same(file: WatchedFile | None, stamp: FileStamp) -> bool:
    return file is not None and (file.bytes, file.modified) == (stamp.bytes, stamp.modified)


def _is_below(path: str, folders: Sequence[str]) -> bool:
    return any(is_below(path, folder) for folder in folders)


def _is_current(file: WatchedFile, rows: dict[str, DocumentRow]) -> bool:
    return file.document in rows and not rows[file.document].superseded


def _recency(file: WatchedFile, row: DocumentRow) -> tuple[float, str]:
    """Returns a sort key: the time at which a document was last used or its file was modified, and the path. Adding a
    document does not count as using it.
    """
    used = row.used if row.used > row.added else 0.0
    return max(used, file.modified / 1e9), file.path
