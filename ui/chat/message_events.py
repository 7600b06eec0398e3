"""Events of the messages of a chat: edited questions, other answers, versions, and a chat that is full."""

import html
from collections.abc import Callable
from contextlib import suppress

import gradio as gr

from localctx.errors import ChatError
from localctx.ui.chat.asking import Asking
from localctx.ui.chat.shown_chat import ShownChat
from localctx.ui.window import AppWindow, Updates


class MessageEvents:
    """The handlers. ``show_chat`` returns updates that show a chat, and tells one that was deleted; ``begin`` has an
    answer begun in it, and shows that. The question box stays as it is.
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
        """Answer a question in other words."""
        messages, text = self._shown.messages(chat), html.unescape(str(edited.value))
        if not messages:
            return self._show_chat(chat)
        index = edited.index if isinstance(edited.index, int) else edited.index[0]
        try:
            of = hidden + self._shown.index_of(messages[hidden:], index)
        except IndexError:  # it waits and is not stored yet, or another tab changed the chat
            return self._show_chat(chat)
        return self._begin(chat, lambda: self._asking.edit(chat, messages[:of], messages[of], text, until))

    def again(self, begin: Callable[[str, str], None]) -> Callable[[str, str], Updates]:
        """Return a handler that has ``begin`` answer the last question of a chat, read up to a mark."""

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
            if not messages or str(messages[-1].id) != message:  # it is not the last any more, in another tab
                return self._show_chat(chat)
            return self._begin(chat, lambda: self._asking.continue_answer(chat))
        with self._window.store() as store, suppress(ChatError):  # a chat that was deleted is told when it is shown
            store.chats.select(store.chats.message(int(message)))
        return self._show_chat(chat)
