"""A stored chat as the chat page shows it: its messages as parts of the conversation, and what is missing of it."""

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
RECENT = 30  # messages of a chat that are shown at first: gradio sends and draws all that is shown with every update
EARLIER = 100  # messages that are shown more when they are asked for
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
        """Return messages as parts of the conversation, each answer followed by its sources. A last question without an
        answer gets a part in its place: only answers have a button to try again. If they are ``whole``, up to the last
        of the chat, that can be continued.
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
        """True if a chat has a question that is not one of its ``known`` messages (ids)."""
        return any(m.role == "user" and m.text == question and m.id not in known for m in self.messages(chat))


def answered_messages(messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages without a last question that has no answer; a next question takes its place."""
    return messages[:-1] if messages and messages[-1].role == "user" else messages


def first_shown(messages: Sequence[Message], count: int = RECENT) -> int:
    """Return the index of the first message that is shown, a question, where about the last ``count`` are."""
    first = max(0, len(messages) - count)
    return next((i for i in range(first, -1, -1) if messages[i].role == "user"), 0) if messages else 0


def earlier_button(first: int) -> Any:
    """Return an update of the button that shows more; ``first`` messages are not shown."""
    return gr.update(visible=first > 0, value=f"Show earlier messages ({first:,})")


def chat_notice(chat: str, opened: Chat | None) -> str:
    """Return as HTML what must be known of a ``chat`` before anything is asked in it; ``opened`` is None if it was
    deleted.
    """
    if chat and not opened:
        return render.note(DELETED, "error")
    names = opened.removed_documents if opened else ""
    ways = "Drop it here again, choose another document, or go on without it"
    return render.note(f"Removed from the library: {names}. {ways}.", "error") if names else ""


def unsent_notice() -> str:
    """Return as HTML that a chat was deleted before a question was asked in it."""
    return render.note(f"{DELETED} Your question is still below: ask it in a new chat.", "error")
