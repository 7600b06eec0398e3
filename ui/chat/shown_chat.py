"""A stored chat as the chat page shows it: its messages as parts of the conversation, and notices about it."""

from collections.abc import Iterator, Sequence, Set
from typing import Any

import gradio as gr

from localctx.errors import ChatError
from localctx.store.chats import Chat, Message
from localctx.store.store import Store
from localctx.ui import render
from localctx.ui.conversation import message_parts
from localctx.ui.window import AppWindow

DELETED = "This chat was deleted, maybe in another tab."
RECENT = 30  # messages shown at first: gradio sends and draws all shown messages with every update
EARLIER = 100  # further messages shown by each click on "Show earlier messages"
UNANSWERED = "(not answered yet)"


class ShownChat:
    """Reads chats from the store of a window."""

    def __init__(self, window: AppWindow) -> None:
        self._window = window

    def messages(self, chat: str) -> list[Message]:
        """Return the messages of a chat; none if it was deleted."""
        if not chat:
            return []
        try:
            with self._window.store() as store:
                return store.chats.messages(chat)
        except ChatError:
            return []

    def exists(self, chat: str) -> bool:
        """True unless a chat was deleted."""
        with self._window.store() as store:
            return any(c.id == chat for c in store.chats.all())

    def parts(self, messages: Sequence[Message], store: Store | None = None, whole: bool = False) -> list[Any]:
        """Return messages as parts of the conversation, each answer followed by its sources.

        An unanswered last question gets a placeholder answer, because only answers have a retry button. ``whole``:
        the messages include the chat's last one, which may then be continued.
        """
        if store is None:
            with self._window.store() as store:
                return self.parts(messages, store, whole)
        parts = [part for m in self._parts(messages, store, whole) for part in m]
        unanswered = messages and messages[-1].role == "user"
        return [*parts, {"role": "assistant", "content": UNANSWERED}] if unanswered else parts

    def index_of(self, messages: Sequence[Message], part: int) -> int:
        """Return the index of the message that a part of the conversation belongs to."""
        with self._window.store() as store:
            parts = self._parts(messages, store, True)
            return [i for i, of_message in enumerate(parts) for _ in of_message][part]

    def _parts(self, messages: Sequence[Message], store: Store, whole: bool) -> Iterator[list[Any]]:
        """Yield the parts of each message."""
        versions = store.chats.versions(messages[0].chat) if messages else {}
        for m in messages:
            yield list(message_parts(m, store, versions.get(m.parent, ()), whole and m is messages[-1]))

    def was_asked(self, chat: str, question: str, known: Set[int]) -> bool:
        """True if a chat has this question in a message outside ``known`` (ids)."""
        return any(m.role == "user" and m.text == question and m.id not in known for m in self.messages(chat))


def answered_messages(messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages without an unanswered last question, which the next question will replace."""
    return messages[:-1] if messages and messages[-1].role == "user" else messages


def first_shown(messages: Sequence[Message], count: int = RECENT) -> int:
    """Return the index of the first message to show: a question, so that about the last ``count`` are shown."""
    first = max(0, len(messages) - count)
    return next((i for i in range(first, -1, -1) if messages[i].role == "user"), 0) if messages else 0


def earlier_button(first: int) -> Any:
    """Return an update of the button that shows earlier messages. The ``first`` messages are hidden."""
    return gr.update(visible=first > 0, value=f"Show earlier messages ({first:,})")


def chat_notice(chat: str, opened: Chat | None) -> str:
    """Return a warning as HTML if a ``chat`` was deleted (``opened`` is None) or lost documents; else ""."""
    if chat and not opened:
        return render.note(DELETED, "error")
    names = opened.removed_documents if opened else ""
    ways = "Drop it here again, choose another document, or go on without it"
    return render.note(f"Removed from the library: {names}. {ways}.", "error") if names else ""


def unsent_notice() -> str:
    """Return the HTML notice that a chat was deleted before its question was asked."""
    return render.note(f"{DELETED} Your question is still below: ask it in a new chat.", "error")
