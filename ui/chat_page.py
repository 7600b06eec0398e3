"""The chat page: questions and streamed answers, what they stand on, and the chats there are."""

import html
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from localctx.engine.events import Note
from localctx.errors import Cancelled, ChatFull
from localctx.serving.worker import SessionJob
from localctx.store.chats import Message
from localctx.store.store import Store
from localctx.store.transcript import transcript
from localctx.ui import render
from localctx.ui.conversation import ChatOpened, StreamingAnswer, gauge, owners, parts
from localctx.ui.job_events import follow, in_words
from localctx.ui.window import AppWindow, tab_of

if TYPE_CHECKING:  # torch, and seconds
    from localctx.session import Session
    from localctx.workflows.chat import FullChatAction

AGAIN = 0.8  # the temperature of another answer to the same question
WAYS: "tuple[tuple[str, FullChatAction], ...]" = (
    ("Remember only its end", "sink-window"),
    ("Summarize what was said", "summarize"),
    ("Begin a new chat", "new"),
)
SAMPLE = "Who lights the lamp of the harbour?"
SAMPLE_FILE = str(Path(__file__).with_name("sample.md"))
EXPORTS = {"Markdown": ".md", "JSON": ".json"}
_CLICK = "() => document.querySelector('#chat-file').click()"
_TO_URL = "(chat) => { history.replaceState(null, '', chat ? '?chat=' + encodeURIComponent(chat) : location.pathname) }"

Updates = dict[Any, Any]


class ChatPage:
    """The page, built inside a gr.Blocks."""

    def __init__(self, window: AppWindow) -> None:
        self._window = window

    def build_sidebar(self) -> None:
        """The chats there are, and what can be done with one of them."""
        self.new = gr.Button("New chat", variant="primary", elem_id="new-chat")
        self.chats = gr.Radio([], label="Chats", elem_id="chats", elem_classes="lc-list")
        with gr.Accordion("This chat", open=False, visible=False) as self.tools:
            self.title = gr.Textbox(label="Title", max_lines=1, elem_id="title", submit_btn="Rename")
            self.versions = gr.Dropdown([], label="Versions", elem_id="versions")
            with gr.Row():
                self.exports = [gr.Button(f"Export {kind}", size="sm", min_width=90) for kind in EXPORTS]
            self.file = gr.DownloadButton("The file", elem_id="chat-file", visible="hidden")
            self.remove = gr.Button("Delete this chat", size="sm", elem_id="delete-chat")
            with gr.Row(visible=False) as self.sure:
                self.yes = gr.Button("Delete it", variant="stop", size="sm", min_width=90, elem_id="delete-chat-yes")
                self.no = gr.Button("Keep it", size="sm", min_width=90)

    def build(self) -> None:
        """Conversation, status, question; beside them the documents."""
        self.chat = gr.Textbox("", visible=False)
        with gr.Row(equal_height=False):
            with gr.Column(scale=4, min_width=300):
                self._build_conversation()
            with gr.Column(scale=1, min_width=240):
                self.about = gr.Dropdown(
                    [], value=[], multiselect=True, label="Documents of this chat", elem_id="about", filterable=True
                )
                self.library = gr.Checkbox(label="Ask the whole library", elem_id="everything")
                self.gauge = gr.HTML("", elem_id="gauge")

    def _build_conversation(self) -> None:
        self.conversation = gr.Chatbot(
            label="Conversation",
            show_label=False,
            elem_id="conversation",
            height="60vh",
            render_markdown=False,  # and what is said goes through render.said: tags are rendered all the same
            allow_tags=False,
            latex_delimiters=[],
            buttons=["copy"],
            editable="user",
            group_consecutive_messages=False,  # what an answer stands on has no buttons of its own
            examples=[{"text": SAMPLE, "display_text": f"Try it: {SAMPLE}"}],
            placeholder="Drop documents below and ask about them. They are read on this machine and stay on it.",
        )
        self.status = gr.HTML("", elem_id="status")
        with gr.Row(visible=False) as self.full:
            self.ways = [gr.Button(label, size="sm") for label, _ in WAYS]
        self.box = gr.MultimodalTextbox(
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
        """Connect what was built with what it does."""
        self.everything = [
            *(self.chat, self.chats, self.tools, self.title, self.versions, self.sure, self.conversation),
            *(self.status, self.full, self.box, self.about, self.library, self.gauge),
        ]
        quick: dict[str, Any] = {"outputs": self.everything, "show_progress": "hidden", "api_visibility": "private"}
        slow = quick | {"concurrency_limit": None}  # the desk says whose turn it is
        question = [self.box, self.chat, self.about, self.library]
        self.box.submit(self._ask, question, **slow)
        self.conversation.edit(self._edit, [self.chat], **slow)
        self.conversation.retry(self._again, [self.chat], **slow)
        self.conversation.example_select(self._try, None, **slow)
        for button, (_, way) in zip(self.ways, WAYS, strict=True):
            button.click(self._way(way), [self.chat], **slow)
        self.box.stop(self._stop, None, None, queue=False, api_visibility="private")
        page.load(self._enter, None, **quick).then(self._warm, None, **slow)
        page.unload(self._leave)
        self.new.click(lambda: self._look(""), None, **quick)
        self.chats.input(self._look, [self.chats], **quick)
        self.title.submit(self._rename, [self.chat, self.title], **quick)
        self.versions.input(self._select, [self.chat, self.versions], **quick)
        for button, kind in zip(self.exports, EXPORTS, strict=True):
            button.click(self._export(kind), [self.chat], self.file, api_visibility="private").then(None, js=_CLICK)
        self.remove.click(lambda: gr.update(visible=True), None, self.sure, api_visibility="private")
        self.no.click(lambda: gr.update(visible=False), None, self.sure, api_visibility="private")
        self.yes.click(self._remove, [self.chat], **quick)
        self.about.focus(self._documents, None, self.about, show_progress="hidden", api_visibility="private")
        gr.on(
            [self.about.input, self.library.input],
            self._set,
            [self.chat, self.about, self.library],
            None,
            api_visibility="private",
        )
        self.chat.change(None, self.chat, None, js=_TO_URL)

    # What is asked for

    def _ask(
        self, box: dict[str, Any], chat: str, about: list[str], library: bool, request: gr.Request
    ) -> Iterator[Updates]:
        text, files = (box["text"] or "").strip(), [_path(f) for f in box["files"] or []]

        entered = list[str]()

        def enter(session: "Session") -> Generator[Any, None, None]:
            entered.extend(session.workflows.store(files))
            yield from ()

        def job(session: "Session") -> Generator[Any, None, None]:
            here = chat or session.workflows.chats.start([]).id
            chats = session.store.chats
            chats.set_documents(here, list(dict.fromkeys([*about, *entered])))
            chats.set(here, {"library": library})
            yield ChatOpened(here)
            if text:
                yield from session.workflows.chats.ask(here, text)

        yield gr.skip()  # what yields nothing empties all that it might have changed
        if text or files:
            yield from self._follow(job, chat, self._messages(chat), text, request, enter if files else None)

    def _try(self, request: gr.Request) -> Iterator[Updates]:
        yield from self._ask({"text": SAMPLE, "files": [SAMPLE_FILE]}, "", [], False, request)

    def _edit(self, chat: str, edited: gr.EditData, request: gr.Request) -> Iterator[Updates]:
        messages, text = self._messages(chat), html.unescape(str(edited.value))
        index = edited.index if isinstance(edited.index, int) else edited.index[0]
        place = owners(messages)[index]
        job: SessionJob = lambda session: session.workflows.chats.edit(chat, text, messages[place].id)  # noqa: E731
        yield from self._follow(job, chat, messages[:place], text, request)

    def _again(self, chat: str, request: gr.Request) -> Iterator[Updates]:
        messages = self._messages(chat)
        asked = max(i for i, m in enumerate(messages) if m.role == "user")
        job: SessionJob = lambda session: session.workflows.chats.regenerate(chat, AGAIN)  # noqa: E731
        yield from self._follow(job, chat, messages[:asked], messages[asked].text, request)

    def _way(self, way: "FullChatAction") -> Any:
        def go_on(chat: str, request: gr.Request) -> Iterator[Updates]:
            messages = self._messages(chat)
            job: SessionJob = lambda session: session.workflows.chats.make_room(chat, way)  # noqa: E731
            yield from self._follow(job, chat, messages[:-1], messages[-1].text, request)

        return go_on

    def _follow(
        self,
        job: SessionJob,
        chat: str,
        before: Sequence[Message],
        question: str,
        request: gr.Request,
        enter: SessionJob | None = None,
    ) -> Iterator[Updates]:
        """Pictures of a job, from its question on; the last of how everything is after it.

        Files are read by ``enter`` before, where other tabs' answers need not wait for it.
        """
        asked = [{"role": "user", "content": render.said(question)}] if question else []
        growing = StreamingAnswer(chat, [*self._shown(before), *asked], question)
        yield self._picture(growing) | {
            self.box: gr.update(value={"text": "", "files": []}, submit_btn=False, stop_btn=True),
            self.full: gr.update(visible=False),
        }
        try:
            turns = [(enter, self._window.shelver)] if enter else []
            events = self._window.ask_all(tab_of(request), [*turns, (job, self._window.desk)])
            for _ in follow(events, growing.hear):
                yield self._picture(growing)
        except Cancelled:
            growing.status = render.note("stopped")
        except ChatFull as e:
            growing.full, growing.status = True, render.note(f"{e.problem}. How shall it go on?", "error")
        except Exception as e:
            growing.status = render.note(in_words(e), "error")
        yield self._after(growing)

    def _picture(self, g: StreamingAnswer) -> Updates:
        shown = g.quoted + g.said.lstrip()
        answer = [{"role": "assistant", "content": render.said(shown)}] if shown else []
        return {
            self.chat: g.chat,
            self.conversation: [*g.before, *answer],
            self.status: g.lines,
            self.gauge: render.gauge(g.used, g.window),
        }

    def _after(self, g: StreamingAnswer) -> Updates:
        typed: dict[str, Any] = {"value": {"text": g.waits, "files": []}} if g.waits else {}
        return self._look(g.chat) | {
            self.status: g.lines,
            self.full: gr.update(visible=g.full),
            self.box: gr.update(submit_btn=True, stop_btn=False, **typed),
        }

    def _warm(self, request: gr.Request) -> Iterator[Updates]:
        """Fetch and load the model while the first question is being typed, and show how far that is."""

        def job(session: "Session") -> Generator[Any, None, None]:
            yield Note(f"{session.settings.model} is ready: {session.model.context:,} tokens at most")

        yield gr.skip()
        if self._window.has_asked(tab_of(request)):
            return  # who is quicker than the page has the model loaded by the question
        growing = StreamingAnswer("", [])
        try:
            for _ in follow(self._window.ask(tab_of(request), job), growing.hear):
                yield {self.status: growing.status}
            yield {self.status: growing.lines}
        except Cancelled:
            yield {self.status: ""}
        except Exception as e:
            yield {self.status: render.note(in_words(e), "error")}

    def _stop(self, request: gr.Request) -> None:
        self._window.stop(tab_of(request))

    # What is looked at

    def begin_about(self, documents: Sequence[str]) -> Updates:
        """An empty chat with these documents (ids) chosen."""
        choices = self._window.documents(documents)
        return self._look("") | {self.about: gr.update(choices=choices, value=list(documents))}

    def _enter(self, request: gr.Request) -> Updates:
        if self._window.has_asked(tab_of(request)):
            return gr.skip()
        return self._look(request.query_params.get("chat", ""))

    def _leave(self, request: gr.Request) -> None:
        self._window.stop(tab_of(request))

    def _look(self, chat: str) -> Updates:
        """Everything as it is kept, with this chat open; where it is gone, none."""
        with self._window.store() as store:
            chats = store.chats.all()
            here = next((c for c in chats if c.id == chat), None)
            messages = store.chats.messages(here.id) if here else []
            leaves = store.chats.branches(here.id)[::-1] if here else []
            shown = self._shown(messages, store)
        stats = next((m.stats for m in reversed(messages) if m.stats), None)
        about = [d.id for d in here.documents if not d.removed] if here else []
        return {
            self.chat: here.id if here else "",
            self.chats: gr.update(choices=[(c.title, c.id) for c in chats], value=here and here.id),
            self.tools: gr.update(visible=here is not None),
            self.title: here.title if here else "",
            self.versions: gr.update(
                choices=[(f"{i}: {_short(m.text)}", m.id) for i, m in enumerate(leaves, 1)],
                value=here and here.leaf,
                visible=len(leaves) > 1,
            ),
            self.sure: gr.update(visible=False),
            self.conversation: shown,
            self.status: "",
            self.full: gr.update(visible=False),
            self.box: gr.update(submit_btn=True, stop_btn=False),
            self.about: gr.update(choices=self._window.documents(), value=about),
            self.library: bool(here and here.settings.get("library")),
            self.gauge: gauge(stats),
        }

    def _messages(self, chat: str) -> list[Message]:
        with self._window.store() as store:
            return store.chats.messages(chat) if chat else []

    def _shown(self, messages: Sequence[Message], store: Store | None = None) -> list[Any]:
        """Messages as the conversation shows them, each answer followed by what it stands on."""
        if store is None:
            with self._window.store() as store:
                return self._shown(messages, store)
        return [part for m in messages for part in parts(m, store)]

    def _documents(self) -> Any:
        return gr.update(choices=self._window.documents())

    # What is changed

    def _set(self, chat: str, about: list[str], library: bool) -> None:
        if chat:
            with self._window.store() as store:
                store.chats.set_documents(chat, about)
                store.chats.set(chat, {"library": library})

    def _export(self, kind: str) -> Callable[[str], str]:
        def export(chat: str) -> str:
            with self._window.store() as store:
                about = store.chats.get(chat)
                file = self._window.file(about.title + EXPORTS[kind])
                file.write_text(transcript(store.chats, about, kind == "JSON"), encoding="utf-8")
            return str(file)

        return export

    def _rename(self, chat: str, title: str) -> Updates:
        with self._window.store() as store:
            store.chats.rename(chat, title)
        return self._look(chat)

    def _select(self, chat: str, leaf: int) -> Updates:
        with self._window.store() as store:
            store.chats.select(store.chats.message(leaf))
        return self._look(chat)

    def _remove(self, chat: str) -> Updates:
        with self._window.store() as store:
            store.remove_chat(chat)
        return self._look("")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 40 else f"{line[:39]}…"


def _path(file: Any) -> str:
    return str(file["path"] if isinstance(file, dict) else file)
