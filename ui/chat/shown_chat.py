"""Renders a stored chat for the chat page: the HTML of its messages, and notices about it."""

from collections.abc import Sequence, Set
from functools import cache, partial
from typing import Any

import gradio as gr

from localctx.errors import ChatError
from localctx.library.compare.outdated import outdated_texts
from localctx.store.chats import Chat, Message
from localctx.store.store import Store
from localctx.ui import render
from localctx.ui.answers.answer_card import CardContext, card
from localctx.ui.answers.conversation import question_html
from localctx.ui.answers.message_actions import question_row, retry_offer
from localctx.ui.window import AppWindow

DELETED = "This chat was deleted, maybe in another tab."
RECENT = 30  # messages shown at first; it is limited, because every update draws all shown messages again
EARLIER = 100  # further messages shown by each click on "Show earlier messages"


class ShownChat:
    """Reads the chats in the window's store and renders their messages."""

    def __init__(self, window: AppWindow) -> None:
        self._window = window
        self._compared = dict[tuple[frozenset[tuple[str, str]], frozenset[int]], dict[int, list[str]]]()

    def messages(self, chat: str) -> list[Message]:
        """Returns the messages of a chat, or [] if it was deleted."""
        if not chat:
            return []
        try:
            with self._window.store() as store:
                return store.chats.messages(chat)
        except ChatError:
            return []

    def exists(self, chat: str) -> bool:
        """True if the chat is stored, False if it was deleted."""
        with self._window.store() as store:
            return store.chats.stored(chat) is not None

    def html(self, messages: Sequence[Message], store: Store | None = None, whole: bool = False) -> str:
        """Returns the HTML of messages of one chat.

        ``whole`` is True if ``messages`` include the chat's last message, which then has more actions. In place of a
        missing answer, the HTML says that it was stopped, and offers to try again.
        """
        if store is None:
            with self._window.store() as store:
                return self.html(messages, store, whole)
        if not messages:
            return ""
        versions, outdated = store.chats.versions(messages[0].chat), self._outdated(store, messages)
        context = CardContext(cache(partial(_text, store)), outdated)
        parts, question = list[str](), ""
        for m, following in zip(messages, [*messages[1:], None], strict=True):
            others, last = versions.get(m.parent, ()), whole and following is None
            if m.role == "user":
                question = m.text
                parts.append(question_html(question, question_row(m, others), m.id))
                parts += [retry_offer(m, last)] if following is None or following.role == "user" else []
            else:
                parts.append(card(m, context, others, last, question))
        return "".join(parts)

    def _outdated(self, store: Store, messages: Sequence[Message]) -> dict[int, list[str]]:
        """Maps the id of a message to lines about the cited text that newer versions of its documents have changed. The
        last result is kept, so that the same versions are not compared again.
        """
        cited = {c["document"] for m in messages for c in m.citations}
        newer = {(id, row.superseded) for id in cited if (row := store.documents.get(id)) and row.superseded}
        key = frozenset(newer), frozenset(m.id for m in messages)
        if newer and key not in self._compared:
            found = outdated_texts(store, [id for id, _ in newer])
            self._compared = {key: {text.message: text.lines for text in found}}
        return self._compared[key] if newer else {}

    def was_asked(self, chat: str, question: str, known: Set[int]) -> bool:
        """Returns True if the chat has ``question`` in a message whose id is not in ``known``."""
        return any(m.role == "user" and m.text == question and m.id not in known for m in self.messages(chat))


def _text(store: Store, document: str) -> str | None:
    return store.documents.text(document) if store.documents.has(document) else None


def first_shown(messages: Sequence[Message], count: int = RECENT) -> int:
    """Returns the index of the first message to show, so that about the last ``count`` are shown.

    The index is always that of a question, or 0.
    """
    first = max(0, len(messages) - count)
    return next((i for i in range(first, -1, -1) if messages[i].role == "user"), 0) if messages else 0


def earlier_button(first: int) -> Any:
    """Returns an update of the button that shows earlier messages. ``first`` is the number of hidden messages."""
    return gr.update(visible=first > 0, value=f"Show earlier messages ({first:,})")


def chat_notice(chat: str, opened: Chat | None) -> str:
    """Returns a warning as HTML if the chat with the id ``chat`` was deleted (``opened`` is None), or if its documents
    were removed from the library. Returns "" otherwise.
    """
    if chat and not opened:
        return render.note(DELETED, "error")
    names = opened.removed_documents if opened else ""
    ways = "Drop it here again, choose another document, or go on without it"
    return render.note(f"Removed from the library: {names}. {ways}.", "error") if names else ""
