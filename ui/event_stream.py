"""Keeps each tab's stream of events open: gradio loses events that come while it closes one.

Gradio's server ends the stream of a tab when none of the tab's events is left. Its client may know of a new event by
then, but not yet of the end: nothing opens a stream for that event, or its messages are dropped with the old stream.
And a page that is being left may open one more stream: gradio ends that with a KeyError, or as not found.
"""

from typing import Any

import gradio as gr
from gradio.utils import LRUCache

_STAYS = "stays open"
_TABS = 2000  # tabs whose messages are kept


class _OpenSessions(dict[str, set[str]]):
    """The ids of the events that are left of each session (tab), for gradio's queue: there is always one."""

    def __setitem__(self, session: str, events: set[str]) -> None:
        super().__setitem__(session, events | {_STAYS})

    def __missing__(self, session: str) -> set[str]:  # of a tab that is gone, whose stream ends by itself
        return {_STAYS}


class _Messages(LRUCache[str, Any]):
    """The queues of messages of each session, for gradio's queue. One that was left stays until later ones need its
    place.
    """

    def __delitem__(self, session: str) -> None:
        """Keep them: another stream of the same session may be about to end."""

    def popitem(self, last: bool = True) -> tuple[str, Any]:
        session = next(reversed(self) if last else iter(self))
        messages = self[session]
        super().__delitem__(session)
        return session, messages


def keep_open(page: gr.Blocks) -> None:
    """Have streams of events end only with their tabs. Called where the ``page`` is built."""
    queue: Any = page._queue
    queue.pending_event_ids_session = sessions = _OpenSessions()
    queue.pending_messages_per_session = _Messages(_TABS)

    def forget(request: gr.Request) -> None:
        sessions.pop(str(request.session_hash), None)

    page.unload(forget)
