"""The chat that each browser tab shows, and which updates a tab still gets of it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gradio.context import LocalContext

from localctx.ui.window import tab_id

MAX_WAIT = 2.0  # seconds that a tab's earlier updates may take to end; those of a tab that is gone never do


@dataclass(eq=False)
class ChatView:
    """A chat shown in a tab, from when it is opened or asked until another is; ``number`` counts all views.

    The tab knows of ``begun`` answers of the chat.
    """

    chat: str
    number: int
    begun: int


class ChatViews:
    """The views of all tabs. A tab's updates follow one view; no update of an earlier view comes after it."""

    def __init__(self) -> None:
        self._views: dict[str, ChatView] = {}  # by tab
        self._followed: dict[str, ChatView] = {}
        self._changed = threading.Condition()
        self._number = 0

    def show(self, tab: str, chat: str, begun: int) -> ChatView:
        """Note that a tab shows a chat from now on. Returns when the updates of its previous view have ended."""
        with self._changed:
            self._number += 1
            view = self._views[tab] = ChatView(chat, self._number, begun)
            self._changed.notify_all()
            self._changed.wait_for(lambda: tab not in self._followed, MAX_WAIT)
        return view

    def get(self, tab: str) -> ChatView | None:
        """Return what a tab shows; None before it shows anything, and once it is closed."""
        with self._changed:
            return self._views.get(tab)

    def close(self, tab: str) -> None:
        """Forget a tab that was closed."""
        with self._changed:
            self._views.pop(tab, None)
            self._changed.notify_all()

    @contextmanager
    def following(self, tab: str) -> Iterator[ChatView | None]:
        """Follow what a tab shows while the ``with`` block runs; None if it shows nothing or is followed already."""
        with self._changed:
            view = self._views.get(tab)
            view = None if self._followed.get(tab) is view else view  # else its last follower was of an earlier view
            if view:
                self._followed[tab] = view
        try:
            yield view
        finally:
            with self._changed:
                if view and self._followed.get(tab) is view:
                    del self._followed[tab]
                    self._changed.notify_all()

    def is_followed(self, tab: str) -> bool:
        """True if updates follow what a tab shows."""
        with self._changed:
            return tab in self._followed

    def wait(self, tab: str, view: ChatView, seconds: float) -> bool:
        """Wait, at most until the tab shows something else. Returns True if it still shows ``view``."""
        with self._changed:
            return not self._changed.wait_for(lambda: self._views.get(tab) is not view, seconds)


def current_tab() -> str:
    """Return the id of the browser tab whose event is being handled; "" outside an event handler."""
    request = LocalContext.request.get(None)
    return tab_id(request) if request else ""
