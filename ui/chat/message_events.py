"""Handles the events of a chat's messages: edited questions, repeated and continued answers, other versions, and
answers from whole documents.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import gradio as gr

from localctx.errors import ChatError
from localctx.ui.chat.asking import AnswerStarter
from localctx.ui.chat.shown_chat import ShownChat
from localctx.ui.window import AppWindow, Updates


class MessageEvents:
    """Handles the events of a chat's messages. The content of the question box is not changed.

    ``show_chat`` returns updates that show a chat or report its deletion. ``begin`` starts an answer in a chat and
    returns updates that show it.
    """

    def __init__(
        self,
        window: AppWindow,
        shown: ShownChat,
        starter: AnswerStarter,
        show_chat: Callable[[str], Updates],
        begin: Callable[[str, Callable[[], None]], Updates],
    ) -> None:
        self._window, self._shown, self._starter = window, shown, starter
        self._show_chat, self._begin = show_chat, begin

    def act(self, chat: str, until: str, chosen: gr.SelectData) -> Updates:
        """Do the action of the button that was clicked at a message. Returns updates that show the chat."""
        action, _, rest = str(chosen.value).partition(" ")
        match action:
            case "edit":
                message, _, text = rest.partition("\n")
                return self.edit(chat, until, message, text)
            case "retry":
                return self.again(self._starter.regenerate)(chat, until)
            case "summarize":
                return self.again(partial(self._starter.ask_whole, way="summarize"))(chat, until)
            case "everywhere":
                return self.again(partial(self._starter.ask_whole, way="everywhere"))(chat, until)
            case "continue":
                return self._continue(chat, rest)
            case "version":
                with self._window.store() as store, suppress(ChatError):  # showing the chat reports its deletion
                    store.chats.select(store.chats.message(int(rest)))
        return self._show_chat(chat)

    def edit(self, chat: str, until: str, message: str, text: str) -> Updates:
        """Answer the ``text`` of an edited question. ``message`` is its id."""
        messages = self._shown.messages(chat)
        of = next((i for i, m in enumerate(messages) if str(m.id) == message and m.role == "user"), None)
        if of is None:  # another tab changed the chat
            return self._show_chat(chat)
        return self._begin(chat, lambda: self._starter.edit(chat, messages[:of], messages[of], text, until))

    def again(self, begin: Callable[[str, str], None]) -> Callable[[str, str], Updates]:
        """Returns a handler that answers the last question of a chat again.

        The handler calls ``begin`` with the chat and the mark up to which the document is read.
        """

        def run(chat: str, until: str) -> Updates:
            if not self._shown.messages(chat):
                return self._show_chat(chat)
            return self._begin(chat, lambda: begin(chat, until))

        return run

    def _continue(self, chat: str, message: str) -> Updates:
        messages = self._shown.messages(chat)
        if not messages or str(messages[-1].id) != message:  # another tab has added messages
            return self._show_chat(chat)
        return self._begin(chat, lambda: self._starter.continue_answer(chat))
