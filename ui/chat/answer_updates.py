"""Makes the updates that show the answer in a chat in every browser tab that shows this chat, whichever tab asked the
question.
"""

import time
from collections.abc import Iterator
from typing import Any, Protocol

import gradio as gr

from localctx.ui.chat.chat_views import ChatView, ChatViews
from localctx.ui.chat.shown_chat import ShownChat
from localctx.ui.job_events import REDRAW_INTERVAL
from localctx.ui.running.running_answers import RunningAnswer, TypedQuestion
from localctx.ui.window import AppWindow, Updates, tab_id

POLL_INTERVAL = 0.2  # seconds between two checks for answers that other tabs started
SLOWER_FROM = 5000  # letters; an answer of this length is redrawn half as often as a short one
KEEP_ALIVE = 10.0  # seconds; a tab gets an update at least this often, even without news


def redraw_interval(text: str) -> float:
    """Returns the number of seconds between two redraws of an answer. It grows with the answer's length.

    Gradio and the browser process every letter on each redraw, and a page that cannot keep up ignores clicks.
    """
    return REDRAW_INTERVAL * (1 + len(text) / SLOWER_FROM)


class AnswerPage(Protocol):
    """The page that shows answers. Each method returns updates of its components."""

    def show_running(self, answer: RunningAnswer) -> Updates:
        """Show a running answer, and hide the components of an ended one."""

    def show_answer(self, answer: RunningAnswer) -> Updates:
        """Show the text so far, and the button that stops the answer."""

    def show_result(self, answer: RunningAnswer, unsent: TypedQuestion | None) -> Updates:
        """Show the result. ``unsent`` is the question if it was not stored in the chat."""

    def stored_chat(self, chat: str) -> Updates:
        """Show a chat as it is stored."""


class AnswerUpdates:
    """Makes the updates of all tabs. ``views`` records the chat that each tab shows."""

    def __init__(self, window: AppWindow, shown: ShownChat, views: ChatViews, page: AnswerPage) -> None:
        self._answers, self._shown, self._views, self._page = window.answers, shown, views, page

    def follow(self, request: gr.Request) -> Iterator[Updates]:
        """Yields updates that show the growing answer in a tab's chat. When the answer has ended, yields an update that
        shows the whole chat.
        """
        yield gr.skip()  # gradio clears all outputs of a generator that yields nothing
        tab = tab_id(request)
        with self._views.following(tab) as view:
            if not view:
                return
            known, view.answers_begun = view.answers_begun, self._answers.begun(view.chat)
            if answer := self._answers.of(view.chat):
                yield from self._follow_answer(answer, view, tab)
            elif known != view.answers_begun:  # an answer has started and ended meanwhile
                yield self._page.stored_chat(view.chat)

    def watch(self, request: gr.Request) -> Iterator[tuple[Any, str]]:
        """Yields pairs while the tab is open: the state of the tab's chat, and the chats with a running answer. A pair
        is yielded when it changes.

        The state is a text that changes when another tab starts an answer in the chat.
        """
        tab, state, told, idle = tab_id(request), "", None, 0.0
        while self._views.get(tab):
            state, chats = self._changed_state(tab) or state, " ".join(sorted(self._answers.chats))
            if (state, chats) != told or idle > KEEP_ALIVE:
                told, idle = (state, chats), 0.0
                yield state or gr.skip(), chats
            time.sleep(POLL_INTERVAL)
            idle += POLL_INTERVAL

    def _changed_state(self, tab: str) -> str:
        """Returns the state of a tab's chat as text if the tab does not show that state yet, else ""."""
        view = self._views.get(tab)
        if not view or self._views.is_followed(tab):
            return ""
        begun = self._answers.begun(view.chat)
        return f"{view.number}/{begun}" if begun != view.answers_begun else ""

    def _follow_answer(self, answer: RunningAnswer, view: ChatView, tab: str) -> Iterator[Updates]:
        yield self._page.show_running(answer)
        version = answer.version
        while answer.running:
            if not self._views.wait(tab, view, redraw_interval(answer.shown.text)):
                return
            if answer.version != version:
                version = answer.version
                yield self._page.show_answer(answer)
        if self._views.wait(tab, view, 0):
            view.chat = answer.shown.chat
            view.answers_begun = self._answers.begun(view.chat)
            unsent = self._unsent(answer, tab)
            self._answers.note_shown(answer)
            yield self._page.show_result(answer, unsent)

    def _unsent(self, answer: RunningAnswer, tab: str) -> TypedQuestion | None:
        """Returns the typed question if it was not stored in the chat and this tab should show it in the question box
        again; else None.

        The tab where the question was typed shows it again. If that tab no longer shows the chat, any tab does.
        """
        typed = answer.typed
        if not typed or not answer.failed or self._shown.was_asked(answer.shown.chat, typed.text, answer.known):
            return None
        view = self._views.get(typed.tab)
        return typed if typed.tab == tab or not view or view.chat != answer.chat else None
