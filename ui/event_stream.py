"""Keeps each tab's event stream open, because gradio loses events that arrive while it closes a stream.

Gradio's server ends a tab's stream when the tab has no pending events. Gradio's client may already have sent a new
event before it learns of the end. Then no stream is opened for that event, or the event's messages are dropped with the
old stream. A page that is being closed may also open one more stream, which gradio ends with a KeyError or as not
found.
"""

from typing import Any

import gradio as gr
from gradio.utils import LRUCache

_STAYS = "stays open"
_TABS = 2000  # number of tabs whose messages are kept


class _OpenSessions(dict[str, set[str]]):
    """The ids of pending events by session (tab), for gradio's queue. Each session always has at least one id, so
    gradio never ends its stream.
    """

    def __setitem__(self, session: str, events: set[str]) -> None:
        super().__setitem__(session, events | {_STAYS})

    def __missing__(self, session: str) -> set[str]:  # a closed tab, whose stream ends by itself
        return {_STAYS}


class _Messages(LRUCache[str, Any]):
    """The message queue of each session, for gradio's queue. The queue of a closed session stays until it is the oldest
    and is evicted.
    """

    def __delitem__(self, session: str) -> None:
        """Do nothing, so that the messages stay: another stream of the same session may still need them."""

    def popitem(self, last: bool = True) -> tuple[str, Any]:
        session = next(reversed(self) if last else iter(self))
        messages = self[session]
        super().__delitem__(session)
        return session, messages


def keep_open(page: gr.Blocks) -> None:
    """Make event streams end only when their tabs close. Call this while the ``page`` is being built."""
    queue: Any = page._queue
    queue.pending_event_ids_session = sessions = _OpenSessions()
    queue.pending_messages_per_session = _Messages(_TABS)

    def forget(request: gr.Request) -> None:
        sessions.pop(str(request.session_hash), None)

    page.unload(forget)
