"""Keeps the window's table current without a page too: new documents are asked while the machine is idle."""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import Any

from localctx.batch.jobs import DocumentJob
from localctx.batch.table.cells import AnswerRow
from localctx.batch.table.columns import TableColumn
from localctx.batch.table.kept_table import KeptTable, forget, news_of, note_seen, note_told
from localctx.batch.table.row_changes import RowChange
from localctx.errors import UsageError, UserError
from localctx.settings import Settings
from localctx.store.documents import DocumentRow
from localctx.store.store import Store
from localctx.ui.running.batch_item import FINISHED, BatchItem
from localctx.ui.running.batch_runs import BatchRuns

POLL = 1.0  # seconds between checks of the library
RETRY = 30.0  # seconds after an error that would also hit the next document


class TableKeeper:
    """Gives ``batches`` the documents of the table that the store of ``settings()`` says to keep current.

    Summaries and other tables go first: while one of them is shown, this table waits. New documents wait until
    ``why_not()`` returns "".
    """

    def __init__(
        self,
        settings: Callable[[], Settings],
        open_store: Callable[[], AbstractContextManager[Store]],
        batches: BatchRuns,
        why_not: Callable[[], str],
    ) -> None:
        self._settings, self._open_store, self._batches, self._why_not = settings, open_store, batches, why_not
        self._lock, self._closed = threading.RLock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="table", daemon=True)
        self._table: KeptTable | None = None
        self._loaded = False  # True once the store said whether there is a table
        self._followed: Any = None  # the state of the store, settings and batch that were compared last

    def start(self) -> None:
        """Start the thread. It continues with the table that the store records."""
        self._thread.start()

    def turn_on(self, columns: Sequence[TableColumn], collection: int | None) -> None:
        """Keep a table of ``columns`` current with a collection (None: with the whole library), instead of the previous
        table. Raises UsageError while a batch runs.
        """
        from localctx.batch.table.fill import questions_of

        questions_of(columns)
        if self._batches.running:
            raise UsageError("other documents are being read", "pause that first, or wait for its end")
        with self._lock, self._open_store() as store:
            name = _name_of(store, collection)
            self.turn_off()
            self._batches.forget()
            self._table, self._loaded, self._followed = KeptTable(tuple(columns), name), True, None
            self._table.save(store)
            self.update()

    def turn_off(self) -> None:
        """Stop keeping the table current. Its rows stay shown, and its answers stay in the store."""
        with self._lock, self._open_store() as store:
            if self._table:
                self._table = None
                forget(store)
            if self._batches.kept:
                self._batches.kept = ""
                self._batches.pause()

    def update(self) -> None:
        """Compare the table with the library: new documents get a row, and removed ones lose theirs. Raises
        StoreError.
        """
        with self._lock:
            if self._table and (self._batches.kept or not self._batches.items):
                self._follow_library(self._table)
                self._run_more()

    def _follow_library(self, table: KeptTable) -> None:
        state = self._state()
        if state == self._followed:
            return
        with self._open_store() as store:
            if table.is_gone(store):
                self.turn_off()
                return
            self._follow(store, table)
            self._note_filled(store, table)
        self._followed = state

    def _state(self) -> Any:
        """Returns a value that differs after each change of the store, of the settings, and of the batch."""
        settings = self._settings()
        return Store.state_at(settings.home), settings, self._batches.version

    def _run_more(self) -> None:
        """While the machine is idle, run documents that wait for that, and try again some time after an error."""
        batches = self._batches
        failed = batches.why and time.monotonic() - batches.stopped_at >= RETRY
        if (failed or any(item.state == "later" for item in batches.items)) and not self._why_not():
            if failed:
                batches.run_waiting()
            else:
                batches.run_next_idle()

    def unseen_changes(self, store: Store, rows: Mapping[str, AnswerRow]) -> list[RowChange]:
        """Returns what is new in ``rows`` (by path) since the user last said to have seen them. Raises StoreError."""
        if not self._batches.kept or not self._table or not self._table.filled:
            return []
        return news_of(store, rows, [item.job.path for item in self._batches.items])

    def note_seen(self, changes: Collection[RowChange]) -> None:
        """Record that the user has seen these ``changes``. Raises StoreError."""
        batches = self._batches
        with self._lock, self._open_store() as store:
            note_told(store, batches.rows(store), changes)
            batches.version += 1  # pages show it

    @contextmanager
    def leaving_out(self, documents: Collection[str]) -> Iterator[None]:
        """While the block runs, ask these documents (ids) nothing, because the block deletes them."""
        with self._lock:
            self._batches.leave_out(documents)
            yield

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            with suppress(UserError, OSError):  # the store may be in use, or the disk full: the next try is soon
                if not self._loaded:
                    self._load()
                self.update()
            if self._closed.wait(POLL):
                return

    def _load(self) -> None:
        with self._lock:
            if Store.is_at(self._settings().home):
                with self._open_store() as store:
                    self._table = KeptTable.load(store)
            self._loaded = True

    def _follow(self, store: Store, table: KeptTable) -> None:
        from localctx.batch.table.fill import questions_of

        task, settings = questions_of(table.columns), self._settings()
        recipe, known = task.recipe(task.adapted(settings)), {item.job for item in self._batches.items}

        def item(row: DocumentRow) -> BatchItem:
            job = DocumentJob.stored(row)
            at_once = not table.filled or job in known or store.results.get(row.id, recipe)
            return BatchItem(job, row.name, "waiting" if at_once else "later")

        self._batches.show_kept_table([*map(item, table.documents(store))], task, table.columns, table.scope)

    def _note_filled(self, store: Store, table: KeptTable) -> None:
        """Once the first documents have rows, record that the user has seen these."""
        batches = self._batches
        if batches.kept and not table.filled and all(item.state in FINISHED for item in batches.items):
            note_seen(store, [*batches.rows(store).values()])
            self._table = replace(table, filled=True)
            self._table.save(store)


def _name_of(store: Store, collection: int | None) -> str:
    """Returns the name of a collection, "" for None or 0. Raises UsageError if it was deleted."""
    names = {one.id: one.name for one in store.collections.all()}
    if collection and collection not in names:
        raise UsageError("this collection was deleted", "choose another one, or all documents")
    return names[collection] if collection else ""
