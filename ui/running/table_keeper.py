"""Keeps the window's table current without a page too: new documents are asked while the machine is idle."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace

from localctx.batch.jobs import DocumentJob
from localctx.batch.table.cells import AnswerRow
from localctx.batch.table.columns import TableColumn
from localctx.batch.table.kept_table import KeptTable, forget, news_of, note_seen
from localctx.batch.table.row_changes import RowChange
from localctx.errors import UsageError, UserError
from localctx.settings import Settings
from localctx.store.documents import DocumentRow
from localctx.store.store import Store
from localctx.ui.running.batch_item import FINISHED, BatchItem
from localctx.ui.running.batch_runs import BatchRuns

POLL = 1.0  # seconds between checks of the library


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
        self._thread = threading.Thread()
        self._table: KeptTable | None = None

    def start(self) -> None:
        """Continue with the table that the store records, in a thread; the thread ends if there is none."""
        if Store.is_at(self._settings().home):
            with self._lock, self._open_store() as store:
                self._table = KeptTable.load(store)
        if self._table and not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="table", daemon=True)
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
            self.turn_off()
            self._batches.forget()
            name = next((c.name for c in store.collections.all() if c.id == collection), "")
            KeptTable(tuple(columns), name).save(store)
            self.start()
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
            if not self._table:
                return
            with self._open_store() as store:
                if self._table.is_gone(store):
                    self.turn_off()
                    return
                self._follow(store, self._table)
                self._note_filled(store, self._table)
        if any(item.state == "later" for item in self._batches.items) and not self._why_not():
            self._batches.release()

    def news(self, store: Store, rows: Mapping[str, AnswerRow]) -> list[RowChange]:
        """Returns what is new in ``rows`` (by path) since the user last said to have seen them. Raises StoreError."""
        if not self._batches.kept or not self._table or not self._table.filled:
            return []
        return news_of(store, rows, [item.job.path for item in self._batches.items])

    def note_seen(self, changes: Collection[RowChange]) -> None:
        """Record that the user has seen these ``changes``. Raises StoreError."""
        told, batches = {(change.path, change.document) for change in changes}, self._batches
        with self._lock, self._open_store() as store:
            rows = [row for row in batches.rows(store).values() if (row.path, row.document) in told]
            note_seen(store, rows, [item.job.path for item in batches.items])
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
        while not self._closed.wait(POLL):
            with suppress(UserError):  # the store may be in use, or the disk full: the next try is soon
                self.update()

    def _follow(self, store: Store, table: KeptTable) -> None:
        from localctx.batch.table.fill import questions_of

        task, settings = questions_of(table.columns), self._settings()
        recipe, known = task.recipe(task.adapted(settings)), {item.job for item in self._batches.items}

        def item(row: DocumentRow) -> BatchItem:
            job = DocumentJob.stored(row)
            at_once = not table.filled or job in known or store.results.get(row.id, recipe)
            return BatchItem(job, row.name, "waiting" if at_once else "later")

        self._batches.follow([*map(item, table.documents(store))], task, table.columns, table.scope)

    def _note_filled(self, store: Store, table: KeptTable) -> None:
        """Once the first documents have rows, record that the user has seen these."""
        batches = self._batches
        if batches.kept and not table.filled and all(item.state in FINISHED for item in batches.items):
            note_seen(store, [*batches.rows(store).values()], [item.job.path for item in batches.items])
            self._table = replace(table, filled=True)
            self._table.save(store)
