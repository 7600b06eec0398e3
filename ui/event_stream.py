"""Keeps each tab's event stream open, because gradio loses events that arrive while it closes a stream.

Gradio's server ends a tab's stream when the tab has no pending events. Its client may already have sent a new event
without knowing of the end. Then no stream is opened for that event, or its messages are dropped with the old stream. A
page that is being left may also open one more stream, which gradio ends with a KeyError or as not found.
"""

from typing import Any

import gradio as gr
from gradio.utils import LRUCache

_STAYS = "stays open"
_TABS = 2000  # tabs whose messages are kept


class _OpenSessions(dict[str, set[str]]):
    """The ids of pending events by session (tab), for gradio's queue. Each session always has at least one."""

    def __setitem__(self, session: str, events: set[str]) -> None:
        super().__setitem__(session, events | {_STAYS})

    def __missing__(self, session: str) -> set[str]:  # a closed tab, whose stream ends by itself
        return {_STAYS}


class _Messages(LRUCache[str, Any]):
    """The message queue of each session, for gradio's queue. A closed session's queue stays until evicted as the
    oldest.
    """

    def __delitem__(self, session: str) -> None:
        """Keep the messages: another stream of the same session may be about to end."""

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
