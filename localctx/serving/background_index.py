"""Makes documents searchable in a thread of its own, while there is no other work.

An indexing job gives way to other jobs after each small step. Finished steps are kept.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from localctx.engine.events import Progress
from localctx.error_log import explain
from localctx.errors import Cancelled, UserError
from localctx.serving.worker import EngineWorker
from localctx.settings import Settings
from localctx.store.process_locks import is_at_work
from localctx.store.store import Store

if TYPE_CHECKING:
    from localctx.session import Session

POLL = 0.1  # seconds between checks whether a question is being answered
STEP = 1  # chunks of a step, so that a search waits for a tenth of a second at most


@dataclass(frozen=True)
class IndexStatus:
    """The state of indexing: its ``progress``, or None if there is nothing to do.

    ``stopped`` is True if the user stopped the indexing. ``problem`` is the error that ended it, or "".
    """

    progress: Progress | None = None
    stopped: bool = False
    problem: str = ""


class BackgroundIndexer:
    """Indexes the library of ``settings()`` with jobs that ``worker`` runs.

    ``is_busy(settings)`` returns True while other work runs; indexing waits until that work has ended.
    """

    def __init__(
        self,
        settings: Callable[[], Settings],
        worker: EngineWorker,
        is_busy: Callable[[Settings], bool] = lambda settings: is_at_work(settings.home),
    ) -> None:
        self._settings, self._worker, self._is_busy = settings, worker, is_busy
        self._changed = threading.Condition()
        self._open, self._wanted, self._left_out = True, False, Counter[str]()
        self._thread = threading.Thread()
        self.status = IndexStatus()

    def wake(self) -> None:
        """Index the documents that are not indexed yet. Indexing continues even if ``stop`` had stopped it."""
        with self._changed:
            self._wanted, self.status = self._open, IndexStatus(self.status.progress)
            if self._open and not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="index", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop indexing until ``wake`` is called. The finished part of the index stays."""
        with self._changed:
            self._wanted, self.status = False, IndexStatus(self.status.progress, stopped=bool(self.status.progress))
            self._changed.notify_all()

    @contextmanager
    def leaving_out(self, documents: Collection[str]) -> Iterator[None]:
        """While the block runs, do not index these documents (ids), because the block deletes them."""
        with self._changed:
            self._left_out += Counter(documents)
        try:
            yield
        finally:
            with self._changed:
                self._left_out -= Counter(documents)

    def close(self) -> None:
        """Stop indexing, and end the thread."""
        with self._changed:
            self._open = self._wanted = False
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while self._open:
            try:
                if self._wait_for_work():
                    self._index(frozenset(self._left_out))
            except Cancelled:
                continue  # a question or a deletion came first
            except Exception as e:
                self._end(IndexStatus(problem=str(e if isinstance(e, UserError) else explain(e))))

    def _wait_for_work(self) -> bool:
        """Wait until there are documents to index and there is no other work. Returns False once this object is
        closed.
        """
        with self._changed:
            while self._open:
                self._changed.wait_for(lambda: self._wanted or not self._open)
                if not self._open or not self._is_busy(self._settings()):
                    return self._open
                self._changed.wait(POLL)
        return False

    def _index(self, left_out: frozenset[str]) -> None:
        """Run one job until all documents are indexed. Raises Cancelled as soon as other work arrives."""
        if not Store.is_at(self._settings().home):
            self._end(IndexStatus())
            return
        stream = self._worker.submit(_indexing(left_out), yielding=True)
        for event in stream:  # iterates at least every tenth of a second
            if not self._wanted or frozenset(self._left_out) != left_out or self._is_busy(self._settings()):
                stream.cancel()
                raise Cancelled
            if isinstance(event, Progress):
                self._show(event)
        if left_out:
            with self._changed:
                self._changed.wait(POLL)  # the rest comes once they are deleted
        else:
            self._end(IndexStatus())

    def _show(self, progress: Progress) -> None:
        with self._changed:
            if self._wanted:
                self.status = IndexStatus(progress)

    def _end(self, status: IndexStatus) -> None:
        with self._changed:
            self._wanted, self.status = False, status


def _indexing(left_out: Collection[str]) -> Callable[["Session"], Generator[Any, Any, None]]:
    def job(session: "Session") -> Generator[Any, Any, None]:
        with session.workflows.library() as library:
            ids = [row.id for row in session.store.documents.all() if row.id not in left_out]
            yield from library.index_steps(ids, STEP)

    return job
