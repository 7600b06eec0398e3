"""The chat page: questions, and streamed answers with their sources."""

import html
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from localctx.engine.events import Note
from localctx.errors import Cancelled, ChatFull
from localctx.serving.worker import SessionJob
from localctx.store.chats import Message
from localctx.store.store import Store
from localctx.ui import render
from localctx.ui.chat_documents import ChatDocuments
from localctx.ui.chat_list import ChatList
from localctx.ui.conversation import ChatOpened, StreamingAnswer, message_indices, message_parts, window_gauge
from localctx.ui.job_events import error_text, redraws
from localctx.ui.window import AppWindow, Updates, tab_id

if TYPE_CHECKING:  # importing torch takes seconds
    from localctx.session import Session
    from localctx.workflows.chat import FullChatAction

RETRY_TEMPERATURE = 0.8  # the temperature of another answer to the same question
FULL_CHAT_ACTIONS: "tuple[tuple[str, FullChatAction], ...]" = (
    ("Keep only its end", "sink-window"),
    ("Summarize the conversation", "summarize"),
    ("Begin a new chat", "new"),
)
SAMPLE = "Who lights the lamp of the harbour?"
SAMPLE_FILE = str(Path(__file__).with_name("sample.md"))
_CHAT_TO_URL = (
    "(chat) => { history.replaceState(null, '', chat ? '?chat=' + encodeURIComponent(chat) : location.pathname) }"
)


class ChatPage:
    """The page, built inside a gr.Blocks."""

    def __init__(self, window: AppWindow) -> None:
        self._window = window
        self.sidebar, self.about = ChatList(window, self._show_chat), ChatDocuments(window)

    def build(self) -> None:
        """Build the conversation, the status lines and the question; beside them the documents."""
        self.chat = gr.Textbox("", visible=False)
        with gr.Row(equal_height=False):
            with gr.Column(scale=4, min_width=300):
                self._build_conversation()
            with gr.Column(scale=1, min_width=240):
                self.about.build()
                self.gauge = gr.HTML("", elem_id="gauge")

    def _build_conversation(self) -> None:
        self.conversation = gr.Chatbot(
            label="Conversation",
            show_label=False,
            elem_id="conversation",
            height="60vh",
            render_markdown=False,  # texts go through render.chat_text: HTML tags are rendered all the same
            allow_tags=False,
            latex_delimiters=[],
            buttons=["copy"],
            editable="user",
            group_consecutive_messages=False,  # the sources of an answer have no buttons of their own
            examples=[{"text": SAMPLE, "display_text": f"Try it: {SAMPLE}"}],
            placeholder="Drop documents below and ask about them. They are read on this machine and stay on it.",
        )
        self.status = gr.HTML("", elem_id="status")
        with gr.Row(visible=False) as self.full_row:
            self.full_actions = [gr.Button(label, size="sm") for label, _ in FULL_CHAT_ACTIONS]
        self.question = gr.MultimodalTextbox(
            show_label=False,
            label="Question",
            placeholder="Ask, or drop files here",
            file_count="multiple",
            sources=["upload"],
            elem_id="question",
            autofocus=True,
            max_lines=8,
        )

    def wire(self, page: gr.Blocks) -> None:
        """Connect the components with their event handlers."""
        self.everything = [
            *(self.chat, *self.sidebar.outputs, self.conversation),
            *(self.status, self.full_row, self.question, *self.about.outputs, self.gauge),
        ]
        quick: dict[str, Any] = {"outputs": self.everything, "show_progress": "hidden", "api_visibility": "private"}
        slow = quick | {"concurrency_limit": None}  # the worker has a queue of its own
        question, until = [self.question, self.chat, *self.about.outputs], self.about.until
        self.question.submit(self._ask, question, **slow)
        self.conversation.edit(self._edit, [self.chat, until], **slow)
        self.conversation.retry(self._regenerate, [self.chat, until], **slow)
        self.conversation.example_select(self._ask_sample, None, **slow)
        for button, (_, action) in zip(self.full_actions, FULL_CHAT_ACTIONS, strict=True):
            button.click(self._continue_full(action), [self.chat, until], **slow)
        self.question.stop(self._stop, None, None, queue=False, api_visibility="private")
        page.load(self._open_from_url, None, **quick).then(self._load_model, None, **slow)
        page.unload(self._stop)
        self.sidebar.wire(self.chat, quick)
        self.about.wire(self.chat)
        self.chat.change(None, self.chat, None, js=_CHAT_TO_URL)

    # Questions

    def _ask(
        self,
        question: dict[str, Any],
        chat: str,
        documents: list[str],
        library: bool,
        until: str,
        request: gr.Request,
    ) -> Iterator[Updates]:
        text, files = (question["text"] or "").strip(), [_path(f) for f in question["files"] or []]
        added = list[str]()

        def add_files(session: "Session") -> Generator[Any, None, None]:
            added.extend(session.workflows.store(files))
            yield from ()

        def job(session: "Session") -> Generator[Any, None, None]:
            chat_id = chat or session.workflows.chats.start([]).id
            chats = session.store.chats
            chats.set_documents(chat_id, list(dict.fromkeys([*documents, *added])))
            chats.set(chat_id, {"library": library, "until": until})
            yield ChatOpened(chat_id)
            if text:
                yield from session.workflows.chats.ask(chat_id, text, until.strip())

        yield gr.skip()  # a generator without a value would clear all its outputs
        if text or files:
            yield from self._run(job, chat, self._messages(chat), text, request, add_files if files else None)

    def _ask_sample(self, request: gr.Request) -> Iterator[Updates]:
        yield from self._ask({"text": SAMPLE, "files": [SAMPLE_FILE]}, "", [], False, "", request)

    def _edit(self, chat: str, until: str, edited: gr.EditData, request: gr.Request) -> Iterator[Updates]:
        messages, text = self._messages(chat), html.unescape(str(edited.value))
        index = edited.index if isinstance(edited.index, int) else edited.index[0]
        edited_message = message_indices(messages)[index]
        of = messages[edited_message].id
        job: SessionJob = lambda session: session.workflows.chats.edit(chat, text, of, until.strip())  # noqa: E731
        yield from self._run(job, chat, messages[:edited_message], text, request)

    def _regenerate(self, chat: str, until: str, request: gr.Request) -> Iterator[Updates]:
        messages = self._messages(chat)
        last = max(i for i, m in enumerate(messages) if m.role == "user")
        job: SessionJob = lambda s: s.workflows.chats.regenerate(chat, RETRY_TEMPERATURE, until.strip())  # noqa: E731
        yield from self._run(job, chat, messages[:last], messages[last].text, request)

    def _continue_full(self, action: "FullChatAction") -> Any:
        def run(chat: str, until: str, request: gr.Request) -> Iterator[Updates]:
            messages = self._messages(chat)
            job: SessionJob = lambda session: session.workflows.chats.make_room(chat, action, until.strip())  # noqa: E731
            yield from self._run(job, chat, messages[:-1], messages[-1].text, request)

        return run

    def _run(
        self,
        job: SessionJob,
        chat: str,
        before: Sequence[Message],
        question: str,
        request: gr.Request,
        add_files: SessionJob | None = None,
    ) -> Iterator[Updates]:
        """Run a job and show its answer as it grows; at the end show the whole chat as stored.

        ``add_files`` runs before it in the library worker, so that other tabs' answers do not wait for the reading.
        """
        questions = [{"role": "user", "content": render.chat_text(question)}] if question else []
        answer = StreamingAnswer(chat, [*self._parts(before), *questions], question)
        yield self._show_answer(answer) | {
            self.question: gr.update(value={"text": "", "files": []}, submit_btn=False, stop_btn=True),
            self.full_row: gr.update(visible=False),
        }
        try:
            jobs = [(add_files, self._window.library_worker)] if add_files else []
            events = self._window.run_in_order(tab_id(request), [*jobs, (job, self._window.answer_worker)])
            for _ in redraws(events, answer.handle):
                yield self._show_answer(answer)
        except Cancelled:
            answer.status = render.note("stopped")
        except ChatFull as e:
            answer.full, answer.status = True, render.note(f"{e.problem}. How should the chat continue?", "error")
        except Exception as e:
            answer.status = render.note(error_text(e), "error")
        yield self._show_result(answer)

    def _show_answer(self, a: StreamingAnswer) -> Updates:
        text = a.quoted + a.text.lstrip()
        parts = [{"role": "assistant", "content": render.chat_text(text)}] if text else []
        return {
            self.chat: a.chat,
            self.conversation: [*a.before, *parts],
            self.status: a.status_lines,
            self.gauge: render.gauge(a.used, a.window),
        }

    def _show_result(self, a: StreamingAnswer) -> Updates:
        typed: dict[str, Any] = {"value": {"text": a.unsent, "files": []}} if a.unsent else {}
        return self._show_chat(a.chat) | {
            self.status: a.status_lines,
            self.full_row: gr.update(visible=a.full),
            self.question: gr.update(submit_btn=True, stop_btn=False, **typed),
        }

    def _load_model(self, request: gr.Request) -> Iterator[Updates]:
        """Download and load the model while the first question is being typed, and show the progress."""

        def job(session: "Session") -> Generator[Any, None, None]:
            yield Note(f"{session.settings.model} is ready: {session.model.context:,} tokens at most")

        yield gr.skip()
        if self._window.has_job(tab_id(request)):
            return  # a question was asked meanwhile, and its job loads the model
        answer = StreamingAnswer("", [])
        try:
            for _ in redraws(self._window.submit(tab_id(request), job), answer.handle):
                yield {self.status: answer.status}
            yield {self.status: answer.status_lines}
        except Cancelled:
            yield {self.status: ""}
        except Exception as e:
            yield {self.status: render.note(error_text(e), "error")}

    def _stop(self, request: gr.Request) -> None:
        self._window.stop(tab_id(request))

    # What is shown

    def new_chat_about(self, documents: Sequence[str]) -> Updates:
        """Show an empty chat with these documents (ids) chosen."""
        return self._show_chat("") | self.about.choose(documents)

    def _open_from_url(self, request: gr.Request) -> Updates:
        if self._window.has_job(tab_id(request)):
            return gr.skip()
        return self._show_chat(request.query_params.get("chat", ""))

    def _show_chat(self, chat: str) -> Updates:
        """Show all as stored, with this chat open; no chat if it was deleted."""
        with self._window.store() as store:
            opened = next((c for c in store.chats.all() if c.id == chat), None)
            messages = store.chats.messages(opened.id) if opened else []
            parts, sidebar = self._parts(messages, store), self.sidebar.show(store, opened)
        stats = next((m.stats for m in reversed(messages) if m.stats), None)
        return {
            **sidebar,
            **self.about.show(opened),
            self.chat: opened.id if opened else "",
            self.conversation: parts,
            self.status: "",
            self.full_row: gr.update(visible=False),
            self.question: gr.update(submit_btn=True, stop_btn=False),
            self.gauge: window_gauge(stats),
        }

    def _messages(self, chat: str) -> list[Message]:
        with self._window.store() as store:
            return store.chats.messages(chat) if chat else []

    def _parts(self, messages: Sequence[Message], store: Store | None = None) -> list[Any]:
        """Return messages as parts of the conversation, each answer followed by its sources."""
        if store is None:
            with self._window.store() as store:
                return self._parts(messages, store)
        return [part for m in messages for part in message_parts(m, store)]


def _path(file: Any) -> str:
    return str(file["path"] if isinstance(file, dict) else file)
