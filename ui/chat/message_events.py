"""Event handlers for the messages of a chat: edited questions, other answers, and versions."""

import html
from collections.abc import Callable
from contextlib import suppress

import gradio as gr

from localctx.errors import ChatError
from localctx.ui.chat.asking import Asking
from localctx.ui.chat.shown_chat import ShownChat
from localctx.ui.window import AppWindow, Updates


class MessageEvents:
    """The handlers. ``show_chat`` returns updates that show a chat or report its deletion.

    ``begin`` starts an answer in a chat and returns updates that show it. The question box keeps its content.
    """

    def __init__(
        self,
        window: AppWindow,
        shown: ShownChat,
        asking: Asking,
        show_chat: Callable[[str], Updates],
        begin: Callable[[str, Callable[[], None]], Updates],
    ) -> None:
        self._window, self._shown, self._asking = window, shown, asking
        self._show_chat, self._begin = show_chat, begin

    def edit(self, chat: str, until: str, hidden: int, edited: gr.EditData) -> Updates:
        """Answer an edited question."""
        messages, text = self._shown.messages(chat), html.unescape(str(edited.value))
        if not messages:
            return self._show_chat(chat)
        index = edited.index if isinstance(edited.index, int) else edited.index[0]
        try:
            of = hidden + self._shown.index_of(messages[hidden:], index)
        except IndexError:  # the question is queued and not stored yet, or another tab changed the chat
            return self._show_chat(chat)
        return self._begin(chat, lambda: self._asking.edit(chat, messages[:of], messages[of], text, until))

    def again(self, begin: Callable[[str, str], None]) -> Callable[[str, str], Updates]:
        """Return a handler that calls ``begin`` with the chat and the mark to read up to, to answer again."""

        def run(chat: str, until: str) -> Updates:
            if not self._shown.messages(chat):
                return self._show_chat(chat)
            return self._begin(chat, lambda: begin(chat, until))

        return run

    def act(self, chat: str, chosen: gr.SelectData) -> Updates:
        """Show another version of a message, or continue the last answer."""
        action, _, message = str(chosen.value).partition(" ")
        if action == "continue":
            messages = self._shown.messages(chat)
            if not messages or str(messages[-1].id) != message:  # another tab has added messages
                return self._show_chat(chat)
            return self._begin(chat, lambda: self._asking.continue_answer(chat))
        with self._window.store() as store, suppress(ChatError):  # showing the chat reports its deletion
            store.chats.select(store.chats.message(int(message)))
        return self._show_chat(chat)
