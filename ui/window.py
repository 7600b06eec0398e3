"""Window: what all pages share: the desk that works, the store to look things up in, the settings."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from localctx.settings import Settings
from localctx.store.store import Store, told
from localctx.ui.desk import Desk, Job, Turn


class Window:
    """One running window. ``desk`` answers questions; ``shelver`` reads files into the library meanwhile."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.uploads = settings.home / "uploads"
        self.desk, self.shelver = Desk(settings, "answers"), Desk(settings, "library")
        self._turns: dict[str, Turn] = {}

    @contextmanager
    def store(self) -> Iterator[Store]:
        """The store, opened to look something up or change a line; from any thread. Raises StoreError."""
        with closing(Store(self.settings.home)) as store, told(self.settings.home):
            yield store

    def file(self, name: str) -> Path:
        """Where a file to be downloaded may be written; forgotten with the uploads."""
        folder = Path(tempfile.mkdtemp(dir=self.uploads))
        return folder / (re.sub(r"[^\w. -]", "_", name).strip(". ")[:100] or "file")

    def ask(self, tab: str, job: Job) -> Turn:
        """A turn at the desk for a browser tab, which has one at a time: what it asked before is stopped."""
        self.stop(tab)
        turn = self._turns[tab] = self.desk.take_turn(job)
        return turn

    def has_asked(self, tab: str) -> bool:
        """Whether a tab has asked for something, and not stopped it."""
        return tab in self._turns

    def stop(self, tab: str) -> None:
        """Stop what a tab asked for, if anything."""
        if turn := self._turns.pop(tab, None):
            turn.cancel()

    def change(self, settings: Settings) -> None:
        """Work under other settings from the next turn on."""
        self.settings = settings
        for desk in (self.desk, self.shelver):
            desk.change(settings)

    def close(self) -> None:
        """Stop all work."""
        for desk in (self.desk, self.shelver):
            desk.close()
