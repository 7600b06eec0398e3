"""``table --watch``: keeps a table up to date while files are added, changed, renamed and deleted."""

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING

from localctx.cli.batch.batch_command import BatchOptions, OpenBatch
from localctx.cli.printing import print_error, print_line
from localctx.errors import INTERRUPTED, UsageError, UserError

if TYPE_CHECKING:
    from localctx.batch.table.corrections import Correction
    from localctx.batch.table.row_changes import RowChange
    from localctx.batch.table.standing_table import StandingTable
    from localctx.batch.table.table_file import AnswerTable, TableFile

POLL = 2.0  # seconds between checks for corrections by another command
RESCAN = 60.0  # seconds between scans of folders without change events
RETRY = 30.0  # seconds to wait after an error, such as a full disk


def check_watched(paths: Sequence[str], rows: "AnswerTable", options: BatchOptions) -> "TableFile":
    """Check that a table can be watched: its ``rows`` are written to a file, and all ``paths`` are folders. Returns
    ``rows``. Raises UsageError.
    """
    from localctx.batch.table.table_file import TableFile

    if not isinstance(rows, TableFile):
        raise UsageError("--watch keeps a file current", "name it with -o")
    if options.workers:
        raise UsageError("--watch does not use workers", "leave --workers and --ray out")
    if other := next((path for path in paths if not Path(path).is_dir()), None):
        raise UsageError(f"{other} is not a folder", "--watch follows folders: name the folder of the file")
    return rows


def watch_table(
    folders: Sequence[str],
    rows: "TableFile",
    corrections: "Sequence[Correction]",
    opened: AbstractContextManager[OpenBatch],
    home: Path,
    as_json: bool,
) -> None:
    """Write the table of ``rows`` and keep it up to date until Ctrl-C, with exit code 130. ``home`` is the data folder.
    Changes are printed as lines, or as JSON.

    Raises UsageError if another process keeps the same file up to date, and UserError for an error before the table is
    complete. A later error is printed, and the update is tried again.
    """
    from localctx.batch.table.corrections import find_corrected
    from localctx.batch.table.standing_table import StandingTable, common_folder
    from localctx.store.process_locks import the_table_writer

    gc.enable()  # the command switches it off until a model is loaded, which --server never does
    with the_table_writer(home, rows.file) as alone:
        if not alone:
            raise UsageError(f"another localctx keeps {rows.file} current", "end it, or choose another file with -o")
        with opened as batch:
            jobs = batch.plan(folders, batch.report()) if corrections else []
            corrected = find_corrected(corrections, folders, jobs)
            table, below = StandingTable(rows, folders, batch.session.store), common_folder(folders)
            try:
                TableWatcher(batch, table, rows, corrected).run(lambda change: _print(change, below, as_json))
            except KeyboardInterrupt:
                batch.terminal.say("stopped; the answers are kept, and the same command goes on with them")
                sys.exit(INTERRUPTED)


class TableWatcher:
    """Keeps a table up to date: updates it whenever files of its folders or corrections change.

    ``corrected`` are corrections with the paths of their documents. They are stored after the documents are read.
    """

    def __init__(
        self,
        batch: OpenBatch,
        table: "StandingTable",
        rows: "AnswerTable",
        corrected: "Iterable[tuple[str, Correction]]",
    ) -> None:
        self._batch, self._table, self._rows, self._corrected = batch, table, rows, list(corrected)
        self._changed, self._scanned, self._force = threading.Event(), -RESCAN, batch.options.force
        self._watched: list[str] = []

    def run(self, print_change: "Callable[[RowChange], object]") -> None:
        """Keep the table up to date until KeyboardInterrupt, and call ``print_change`` with each change. Raises
        UserError and OSError until the table was complete once.
        """
        from localctx.library.folders.folder_events import FolderEvents

        with closing(FolderEvents(self._changed.set)) as events:
            while True:
                if (there := self._table.folders.there) != self._watched:
                    self._watched = there
                    events.watch(there)
                    self._changed.set()
                self._try(print_change)

    def _try(self, print_change: "Callable[[RowChange], object]") -> None:
        """Update the table and wait for the next change."""
        was_complete = self._table.is_complete
        try:
            self._update(print_change)
        except BrokenPipeError:  # stdout was closed
            raise
        except (UserError, OSError) as e:
            if not was_complete:
                raise
            self._batch.terminal.clear()
            print_error(f"localctx: {e}")
            time.sleep(RETRY)
            return
        if self._table.is_complete and not was_complete:
            self._batch.terminal.say("the table is complete and is kept current; Ctrl-C ends it")
        self._wait()

    def _update(self, print_change: "Callable[[RowChange], object]") -> None:
        """Read new and changed files, and report the changes of the table. Raises UserError, OSError,
        KeyboardInterrupt.
        """
        if self._must_scan():
            self._scanned = time.monotonic()
            if jobs := self._table.scan(self._scanned):
                end = self._batch.run(jobs, self._batch.report(), self._force)
                self._table.note(end.report.outcomes)
                self._correct({outcome.job.path for outcome in end.report.outcomes})
                if end.report.stopped:
                    raise KeyboardInterrupt
                if end.error:
                    raise end.error
                self._force = False
        for change in self._table.update():
            self._batch.terminal.clear()
            print_change(change)

    def _must_scan(self) -> bool:
        changed = self._changed.is_set()
        self._changed.clear()
        return changed or self._is_settling or time.monotonic() - self._scanned >= RESCAN

    def _correct(self, read: set[str]) -> None:
        """Store the corrections of the documents at the paths ``read``."""
        from localctx.batch.table.corrections import store_corrections

        now = [one for one in self._corrected if one[0] in read]
        self._corrected = [one for one in self._corrected if one[0] not in read]
        if now:
            store_corrections(self._batch.session.store, now, self._rows.in_order(read))

    def _wait(self) -> None:
        from localctx.library.folders.folder_scan import SETTLE

        self._changed.wait(SETTLE / 2 if self._is_settling else POLL)

    @property
    def _is_settling(self) -> bool:
        return self._table.folders.is_beginning or self._table.folders.is_settling


def _print(change: "RowChange", folder: str, as_json: bool) -> None:
    """Print a change on stdout. ``folder`` is the folder that contains all files of the table."""
    from localctx.cli.terminal import print_json

    if as_json:
        print_json(change.to_json(), None)
    else:
        print_line(change.line(folder))
