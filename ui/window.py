"""Window: what all pages share: the desk that works, the store to look things up in, the settings."""

import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localctx.errors import Cancelled
from localctx.kv.keepers import make_keeper
from localctx.serving.worker import EngineWorker, EventStream, SessionJob
from localctx.settings import Settings, overrides, save_settings, with_changes
from localctx.store.store import Store, store_errors
from localctx.ui.batch_runs import BatchRuns

if TYPE_CHECKING:
    import gradio as gr

TOGETHER = 8  # questions answered at a time, where there is memory for them: each makes the others a little slower


class AppWindow:
    """One running window. ``desk`` answers questions; meanwhile ``shelver`` reads files into the library, and
    ``porter`` fetches models and looks after what is kept. ``batches`` has the batch there is.
    """

    def __init__(self, settings: Settings, together: int = TOGETHER) -> None:
        self.settings = settings
        self.uploads = settings.home / "uploads"
        self.desk, self.shelver = EngineWorker(settings, "answers", together), EngineWorker(settings, "library")
        self.porter = EngineWorker(settings, "upkeep")
        self.batches = BatchRuns(self.desk, self.shelver, together)
        self._turns: dict[str, EventStream] = {}

    @contextmanager
    def store(self) -> Iterator[Store]:
        """The store, opened to look something up or change a line; from any thread. Raises StoreError."""
        with closing(Store(self.settings.home)) as store, store_errors(self.settings.home):
            yield store

    def documents(self, also: Collection[str] = ()) -> list[tuple[str, str]]:
        """What may be chosen from, by name and id: every document but older versions, of which ``also`` these."""
        with self.store() as store:
            return [(d.name, d.id) for d in store.documents.all() if not d.superseded or d.id in also]

    def file(self, name: str) -> Path:
        """Where a file to be downloaded may be written; forgotten with the uploads."""
        folder = Path(tempfile.mkdtemp(dir=self.uploads))
        return folder / (re.sub(r"[^\w. -]", "_", name).strip(". ")[:100] or "file")

    def ask(self, tab: str, job: SessionJob, desk: EngineWorker | None = None) -> EventStream:
        """A turn at a desk (where answers are made, unless told) for a browser tab, or a panel of it.

        Each has one at a time: what it asked before is stopped.
        """
        self.stop(tab)
        turn = self._turns[tab] = (desk or self.desk).take_turn(job)
        return turn

    def ask_all(self, tab: str, jobs: Sequence[tuple[SessionJob, EngineWorker]]) -> Iterator[Any]:
        """The events of several turns, each taken when the one before has ended. Raises Cancelled between them, too."""
        for i, (job, desk) in enumerate(jobs):
            if i and not self.has_asked(tab):
                raise Cancelled
            yield from self.ask(tab, job, desk)

    def ask_promptly(self, tab: str, job: SessionJob, desk: EngineWorker | None = None) -> Iterator[Any]:
        """The events of a turn. Raises Cancelled as soon as it is stopped: the job may take a moment to notice."""
        turn = self.ask(tab, job, desk)
        for event in turn:
            if turn.cancelled.is_set():
                raise Cancelled
            yield event
        if not self.has_asked(tab):
            raise Cancelled

    def has_asked(self, tab: str) -> bool:
        """Whether a tab has asked for something, and not stopped it."""
        return tab in self._turns

    def stop(self, tab: str) -> None:
        """Stop what a tab asked for, if anything."""
        if turn := self._turns.pop(tab, None):
            turn.cancel()

    def choose(self, changes: Mapping[str, Any]) -> None:
        """Keep these settings in the file, and work under them from the next turn on; None is a default.

        Those that the environment says are kept as well, and wait for it to be silent. Raises UsageError, with nothing
        done.
        """
        settings = with_changes(self.settings, {k: v for k, v in changes.items() if k not in overrides()})
        make_keeper(settings.keep, 0)
        save_settings(settings.home, changes)
        self.change(settings)

    def change(self, settings: Settings) -> None:
        """Work under other settings from the next turn on."""
        self.settings = settings
        for desk in self._desks:
            desk.change(settings)

    def close(self) -> None:
        """Stop all work."""
        self.batches.close()
        for desk in self._desks:
            desk.close()

    @property
    def _desks(self) -> tuple[EngineWorker, ...]:
        return self.desk, self.shelver, self.porter


def tab_of(request: "gr.Request", panel: str = "") -> str:
    """The browser tab that asks, or a ``panel`` of it that asks for itself."""
    return f"{request.session_hash} {panel}"
