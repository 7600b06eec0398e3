"""Builds the chat page: questions, and streamed answers with their sources."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from localctx.errors import UsageError
from localctx.ui import render
from localctx.ui.chat import empty_chat, shown_chat
from localctx.ui.chat.answer_updates import AnswerUpdates
from localctx.ui.chat.asking import AnswerStarter
from localctx.ui.chat.chat_list import ChatList
from localctx.ui.chat.chat_views import ChatViews, current_tab
from localctx.ui.chat.message_events import MessageEvents
from localctx.ui.chat.model_loading import load_model
from localctx.ui.chat.shown_chat import ShownChat
from localctx.ui.job_events import error_text
from localctx.ui.models.model_picker import ModelPicker
from localctx.ui.reading.chat_documents import ChatDocuments
from localctx.ui.reading.ready_card import ReadyCard
from localctx.ui.running.running_answers import RunningAnswer, TypedQuestion
from localctx.ui.uploads import uploaded_files
from localctx.ui.viewer.document_viewer import DocumentViewer
from localctx.ui.window import EVENT_OPTIONS, SLOW_EVENT_OPTIONS, AppWindow, Updates, tab_id

if TYPE_CHECKING:  # importing torch takes seconds
    from localctx.workflows.chat.chat import FullChatAction

FULL_CHAT_ACTIONS: "tuple[tuple[str, FullChatAction], ...]" = (
    ("Remember only its end", "sink-window"),
    ("Summarize the conversation", "summarize"),
    ("Start a new chat", "new"),
)
NONE_TICKED = "No document is ticked: tick one in the sources, or begin a new chat."
UNSENT = f"{shown_chat.DELETED} Your question is still below: ask it in a new chat."
_SCRIPT = (Path(__file__).parents[1] / "conversation.js").read_text("utf-8")
_NOTHING = {"text": "", "files": []}  # in the question box
_CHAT_TO_URL = "(chat) => { window.lcDrafts.toAddress(chat) }"


class ChatPage:
    """The chat page, built inside a gr.Blocks."""

    def __init__(self, window: AppWindow) -> None:
        self._window, self._shown, self._views = window, ShownChat(window), ChatViews()
        self._starter = AnswerStarter(window, self._shown)
        self._messages = MessageEvents(window, self._shown, self._starter, self._show_chat, self._begin)
        self._updates = AnswerUpdates(window, self._shown, self._views, self)
        self.sidebar, self.about = ChatList(window, self._show_chat), ChatDocuments(window)
        self.viewer = DocumentViewer(window, self.about)
        self.picker = ModelPicker(window)
        self.ready = ReadyCard(window, self.about)

    def build(self) -> None:
        """Build the conversation, the status lines and the question box, and beside them the documents."""
        self.chat, self.following = gr.Textbox("", visible=False), gr.Textbox("", visible=False)
        self.unsent = gr.MultimodalTextbox(visible=False, file_count="multiple")  # goes back into the question box
        with gr.Row(equal_height=False, elem_id="chat-page"):
            with gr.Column(scale=4, min_width=300, elem_id="chat-main"):
                self.picker.build()
                self._build_conversation()
            with gr.Column(scale=1, min_width=260, elem_id="chat-side"):
                self.about.build()
                self.viewer.build()

    def _build_conversation(self) -> None:
        self.hidden = gr.State(0)  # number of earlier messages that are not shown
        self.earlier = gr.Button("", size="sm", elem_id="earlier", visible=False)
        with gr.Column(elem_id="conversation"):
            self.conversation = gr.HTML(empty_chat.WELCOME, elem_id="said", js_on_load=_SCRIPT, apply_default_css=False)
            self.ready.build_guide()
            self.growing = gr.HTML("", elem_id="growing", apply_default_css=False)
            self.status = gr.HTML("", elem_id="status")  # below the question, where the answer will appear
        self.notice = gr.HTML("", elem_id="notice")
        self.go_on = gr.Button("Continue without it", size="sm", elem_id="go-on", visible=False)
        with gr.Row(visible=False) as self.full_row:
            self.full_actions = [gr.Button(label, size="sm") for label, _ in FULL_CHAT_ACTIONS]
        self.ready.build()
        self.question = gr.MultimodalTextbox(
            show_label=False,
            label="Question",
            placeholder="Ask, or drop files here",
            file_count="multiple",
            sources=["upload"],
            elem_id="question",
            max_lines=8,
        )

    def wire(self, page: gr.Blocks) -> None:
        """Connect the components with their event handlers."""
        self.everything = [
            *(self.chat, *self.sidebar.outputs, self.hidden, self.earlier, self.conversation, self.growing),
            *(self.following, self.notice, self.go_on, self.status, self.full_row, self.question, self.unsent),
            *self.about.shown,
        ]
        quick, slow = (options | {"outputs": self.everything} for options in (EVENT_OPTIONS, SLOW_EVENT_OPTIONS))
        question, until = [self.question, self.chat, *self.about.choice], self.about.until
        self.question.submit(self._ask, question, **slow)
        self.conversation.select(self._act, [self.chat, until], **slow)
        for button, (_, action) in zip(self.full_actions, FULL_CHAT_ACTIONS, strict=True):
            make_room = self._messages.again(partial(self._starter.make_room, action=action))
            button.click(make_room, [self.chat, until], **slow)
        self.earlier.click(self._show_earlier, [self.chat, self.hidden], **quick)
        self.go_on.click(self._forget_removed, [self.chat], **quick)
        self.question.stop(self._stop, self.chat, None, queue=False, api_visibility="private")
        watch = slow | {"outputs": [self.following, self.sidebar.answering]}
        opened = page.load(self._open_from_url, None, **quick)
        opened.then(self._updates.watch, None, **watch)
        opened.then(self._load_model, self.chat, **slow)
        self.following.change(self._updates.follow, None, trigger_mode="multiple", **slow)
        page.unload(self._leave)
        self.sidebar.wire(self.chat, quick)
        self.about.wire(self.chat)
        self.picker.wire(page, self.chat)
        self.ready.wire(page, self.question, self.chat)
        self.chat.change(None, self.chat, None, js=_CHAT_TO_URL)
        self._wire_drafts(opened)

    def _wire_drafts(self, opened: Any) -> None:
        """Keep the question that is typed in each chat in the browser, and show it when the chat is opened again; see
        page.js.
        """
        draft: dict[str, Any] = {"fn": None, "inputs": [self.chat, self.question]}
        self.question.change(**draft, outputs=None, js="(...draft) => window.lcDrafts.keep(...draft)")
        entered = [self.unsent, self.question]
        self.unsent.change(None, entered, self.question, js="(...entered) => window.lcDrafts.putBack(...entered)")
        show = draft | {"outputs": self.question}
        opened.then(**show, js="(...draft) => window.lcDrafts.back(...draft)")
        for event in self.sidebar.opened:
            event.then(**show, js="(...draft) => window.lcDrafts.show(...draft)")

    # Questions

    def _ask(
        self,
        question: dict[str, Any],
        chat: str,
        documents: list[str],
        library: str,
        until: str,
        listed: tuple[str, Sequence[str]],
        request: gr.Request,
    ) -> Updates:
        typed = TypedQuestion((question["text"] or "").strip(), uploaded_files(question), tab_id(request))
        if not (typed.text or typed.files):
            return gr.skip()
        if chat and not self._shown.exists(chat):
            return self._show_deleted(typed, documents)
        if not typed.files and self.about.none_ticked(documents, library, listed):
            return {self.notice: render.note(NONE_TICKED, "error")}
        chat = chat or self._starter.begin_chat(documents)
        emptied = {self.question: gr.update(value=_NOTHING, submit_btn=False, stop_btn=True), self.unsent: _NOTHING}
        return self._begin(chat, lambda: self._starter.ask(typed, chat, documents, library, until, listed[1]), emptied)

    def _act(self, chat: str, until: str, chosen: gr.SelectData, request: gr.Request) -> Updates:
        if chosen.value == empty_chat.SAMPLE:
            sample = {"text": empty_chat.SAMPLE_QUESTION, "files": [empty_chat.SAMPLE_FILE]}
            return self._ask(sample, "", [], "", "", ("", ()), request)
        return self._messages.act(chat, until, chosen)

    def _begin(self, chat: str, begin: Callable[[], None], more: Updates | None = None) -> Updates:
        """Begin an answer, and show the chat with ``more`` updates. If no answer can begin now, show the chat with the
        error.
        """
        self._window.stop(current_tab())  # stop loading the model, because the answer's job loads it
        try:
            begin()
        except UsageError as e:
            return self._show_chat(chat) | {self.notice: render.note(error_text(e), "error")}
        return self._show_chat(chat) | (more or {})

    def _stop(self, chat: str) -> None:
        self._window.answers.stop(chat)

    # Running answers

    def show_running(self, answer: RunningAnswer) -> Updates:
        """Returns updates that show a running answer, and hide components that belong to an answer that has ended."""
        hidden = gr.update(visible=False)
        return {
            **self.show_answer(answer),
            **{self.notice: "", self.go_on: hidden, self.earlier: hidden, self.full_row: hidden},
        }

    def show_answer(self, answer: RunningAnswer) -> Updates:
        """Returns updates that show the text of an answer so far, and the button that stops it.

        The button is updated every time, because gradio loses updates of components that are not drawn yet, for example
        while the page is opening.
        """
        a = answer.shown
        return {
            self.chat: a.chat,
            self.conversation: a.before,
            self.growing: a.html,
            self.status: a.status_lines,
            self.question: gr.update(submit_btn=False, stop_btn=True),
        }

    def show_result(self, answer: RunningAnswer, unsent: TypedQuestion | None) -> Updates:
        """Returns updates that show the stored chat after an answer ended.

        ``unsent`` is the question if it was not stored in the chat; it is put into the question box again.
        """
        a = answer.shown
        empty = unsent and self._shown.exists(a.chat) and not self._shown.messages(a.chat)
        return (self._forget_empty(a.chat) if empty else self.stored_chat(a.chat)) | {
            self.status: a.status_lines,
            self.full_row: gr.update(visible=a.full),
            self.unsent: {"text": unsent.text, "files": list(unsent.files)} if unsent else gr.skip(),
        }

    def _forget_empty(self, chat: str) -> Updates:
        """Delete a chat without messages, and show a new one about the same documents."""
        with self._window.store() as store:
            documents = [d.id for d in store.chats.get(chat).documents]
            store.remove_chat(chat)
        return self.stored_chat("") | self.about.choose_only(documents)

    def _leave(self, request: gr.Request) -> None:
        self._window.stop(tab_id(request))
        self._views.close(tab_id(request))

    def _show_deleted(self, typed: TypedQuestion, documents: Sequence[str]) -> Updates:
        """Returns updates for a question that was typed in a deleted chat: they show a new chat about the same
        documents, with the question in the question box.
        """
        draft = {"text": typed.text, "files": list(typed.files)}
        return self.new_chat_about(documents) | {
            self.notice: render.note(UNSENT, "error"),
            self.question: gr.update(value=draft, submit_btn=True, stop_btn=False),
        }

    def _forget_removed(self, chat: str) -> Updates:
        with self._window.store() as store:
            store.chats.forget_removed(chat)
        return self._show_chat(chat)

    def _load_model(self, chat: str, request: gr.Request) -> Iterator[Updates]:
        yield gr.skip()
        if not self._window.answers.is_running(chat):  # otherwise the job of the running answer loads the model
            yield from load_model(self._window, self.status, request)

    # Showing chats

    def new_chat_about(self, documents: Sequence[str]) -> Updates:
        """Returns updates that show an empty chat with these documents (ids) chosen."""
        return self._show_chat("") | self.about.choose_only(documents)

    def _show_earlier(self, chat: str, hidden: int) -> Updates:
        messages = self._shown.messages(chat)
        first = shown_chat.first_shown(messages, len(messages) - hidden + shown_chat.EARLIER)
        shown = (
            {self.conversation: self._shown.html(messages[first:], whole=True)} if messages else self._show_chat(chat)
        )
        return shown | {self.hidden: first, self.earlier: shown_chat.earlier_button(first)}

    def _open_from_url(self, request: gr.Request) -> Updates:
        if self._views.get(tab_id(request)):  # a question was asked meanwhile
            return gr.skip()
        return self._show_chat(request.query_params.get("chat", ""))

    def _show_chat(self, chat: str) -> Updates:
        """Returns updates that show a stored chat and its running answer in the current tab.

        If the chat was deleted, an empty chat is shown.
        """
        answers = self._window.answers
        view = self._views.show(current_tab(), chat, answers.begun(chat))
        shown, answer = self.stored_chat(chat), answers.of(chat)
        if answer:
            shown |= {self.following: str(view.number)} | (self.show_running(answer) if answer.running else {})
        return shown

    def stored_chat(self, chat: str) -> Updates:
        """Returns updates that show the chat with this id as it is stored. If it was deleted, an empty chat is
        shown.
        """
        with self._window.store() as store:
            opened = store.chats.stored(chat)
            messages = store.chats.messages(opened.id) if opened else []
            first, sidebar = shown_chat.first_shown(messages), self.sidebar.show(store, opened)
            said = self._shown.html(messages[first:], store, whole=True) or empty_chat.WELCOME
        return {
            **sidebar,
            **self.about.show(opened),
            self.chat: opened.id if opened else "",
            **{self.conversation: said, self.growing: ""},
            **{self.hidden: first, self.earlier: shown_chat.earlier_button(first)},
            **{self.notice: shown_chat.chat_notice(chat, opened), self.status: ""},
            self.go_on: gr.update(visible=bool(opened and opened.removed_documents)),
            self.full_row: gr.update(visible=False),
            self.question: gr.update(submit_btn=True, stop_btn=False),
        }
