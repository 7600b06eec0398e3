"""Watches the folders of a table: finds missing files, and new and changed files once they are completely written."""

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from localctx.batch.jobs import DocumentJob, plan_jobs
from localctx.file_names import real_path
from localctx.library.folders.folder_scan import GONE, SETTLE, FileStamp, SettlingFiles, stamp_of


class TableFolders:
    """Watches the documents below ``folders``, and remembers in which state each was read.

    A new or changed file must not have changed for ``settle`` seconds before it is read. A missing file counts as gone
    only after ``settle`` times GONE seconds, because it may have moved. If a folder does not exist now, its files stay
    as they were. ``is_output`` is a function that returns True for files that are results and not documents.
    """

    def __init__(self, folders: Sequence[str], is_output: Callable[[Path], bool], settle: float = SETTLE) -> None:
        self.folders, self._is_output = folders, is_output
        self._roots = [os.path.abspath(folder) for folder in folders]  # noqa: PTH100 (as of the jobs)
        self._new, self._missing = SettlingFiles(settle), SettlingFiles(GONE * settle)
        self._settle, self._begun, self._now = settle, math.inf, -math.inf  # times of the first scan and the last
        self._found, self._read = dict[str, FileStamp](), dict[str, FileStamp]()  # stamps by path

    @property
    def there(self) -> list[str]:
        """The folders that exist now."""
        return [folder for folder in self.folders if Path(folder).is_dir()]

    @property
    def is_beginning(self) -> bool:
        """True until the files that the first scan found had time to settle."""
        return self._now - self._begun < self._settle

    @property
    def is_settling(self) -> bool:
        """True while files may still be written, or are missing and may come back."""
        return bool(self._new.paths or self._missing.paths)

    @property
    def missing(self) -> list[str]:
        """The paths of documents that are not there now but may come back."""
        return self._missing.paths

    def assume(self, path: str) -> None:
        """Record that the document at ``path`` was read in an earlier run, in an unknown state. The document then
        counts as changed.
        """
        self._read[path] = FileStamp(0, 0)

    def scan(self, now: float) -> list[DocumentJob]:
        """Returns the new and changed files that have settled at the time ``now``, in the order of the table."""
        jobs = {job.path: job for job in plan_jobs(self.there, lambda: b"", lambda path, why: None, self._is_output)}
        self._begun, self._now = min(self._begun, now), now
        self._found = {path: stamp for path in jobs if (stamp := stamp_of(path))}
        self._new.see({p: stamp for p, stamp in self._found.items() if self._read.get(p) != stamp}, now)
        there = [root for root in self._roots if Path(root).is_dir()]
        self._missing.see({p: s for p, s in self._read.items() if p not in self._found and _is_below(p, there)}, now)
        return [jobs[path] for path in sorted((path for path, _ in self._new.settled(now)), key=self._place)]

    @property
    def gone(self) -> list[str]:
        """The paths of documents that counted as gone at the last scan."""
        return [path for path, _ in self._missing.settled(self._now)]

    def note_read(self, path: str) -> None:
        """Record that the file at ``path`` was read, in the state that the last scan found."""
        self._read[path] = self._found[path]
        self._new.drop(path)

    def forget(self, path: str) -> None:
        """Forget a document that is gone."""
        del self._read[path]
        self._missing.drop(path)

    def is_unchanged(self, path: str) -> bool:
        """Returns True if the file at ``path`` is still in the state that the last scan found."""
        return stamp_of(path) == self._found.get(path)

    def in_order(self) -> list[str]:
        """Returns the paths of the documents that were read, in the order in which ``plan_jobs`` lists them."""
        return sorted(self._read, key=self._place)

    def _place(self, path: str) -> tuple[int, list[tuple[int, str]]]:
        """Returns the sort key of a document: the folders of the table in order, and in each folder files before
        subfolders.
        """
        real = real_path(path)
        first = next((i for i, root in enumerate(self._roots) if real.is_relative_to(root)), len(self._roots))
        return first, [*((1, part) for part in real.parent.parts), (0, real.name)]


def _is_below(path: str, folders: Sequence[str]) -> bool:
    return any(real_path(path).is_relative_to(folder) for folder in folders)
