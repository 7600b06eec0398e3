"""Records which chat each browser tab shows, so that a tab gets no updates about a chat that it showed earlier."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gradio.context import LocalContext

from localctx.ui.window import tab_id

MAX_WAIT = 2.0  # most seconds to wait until a tab's earlier updates end; the updates of a closed tab never end


@dataclass(eq=False)
class ChatView:
    """A period in which a tab shows a chat. It begins when the chat is opened or a question is asked, and ends when the
    tab's next view begins.

    ``number`` is different for each view. ``answers_begun`` is how many answers had begun in the chat when the tab was
    last updated.
    """

    chat: str
    number: int
    answers_begun: int


class ChatViews:
    """The current view of each tab.

    Updates belong to one view of a tab. Once a new view has begun, the tab gets no updates of the earlier view.
    """

    def __init__(self) -> None:
        self._views: dict[str, ChatView] = {}  # by tab
        self._followed: dict[str, ChatView] = {}
        self._changed = threading.Condition()
        self._number = 0

    def show(self, tab: str, chat: str, answers_begun: int) -> ChatView:
        """Record that a tab shows a chat, and return the new view.

        Waits until the updates of the tab's previous view have ended, at most MAX_WAIT seconds.
        """
        with self._changed:
            self._number += 1
            view = self._views[tab] = ChatView(chat, self._number, answers_begun)
            self._changed.notify_all()
            self._changed.wait_for(lambda: tab not in self._followed, MAX_WAIT)
        return view

    def get(self, tab: str) -> ChatView | None:
        """Returns the view of a tab; None before it shows anything and after it is closed."""
        with self._changed:
            return self._views.get(tab)

    def close(self, tab: str) -> None:
        """Forget a tab that was closed."""
        with self._changed:
            self._views.pop(tab, None)
            self._changed.notify_all()

    @contextmanager
    def following(self, tab: str) -> Iterator[ChatView | None]:
        """Mark a tab's view as followed by updates while the ``with`` block runs.

        Yields the view, or None if the tab has no view or the view is already followed.
        """
        with self._changed:
            view = self._views.get(tab)
            view = None if self._followed.get(tab) is view else view  # another follower belongs to an earlier view
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
        """True if a ``following`` block runs for the tab."""
        with self._changed:
            return tab in self._followed

    def wait(self, tab: str, view: ChatView, seconds: float) -> bool:
        """Wait ``seconds``, or until the tab shows another view. Returns True if the tab still shows ``view``."""
        with self._changed:
            return not self._changed.wait_for(lambda: self._views.get(tab) is not view, seconds)


def current_tab() -> str:
    """Returns the id of the browser tab whose event is being handled; "" outside an event handler."""
    request = LocalContext.request.get(None)
    return tab_id(request) if request else ""
