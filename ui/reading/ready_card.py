"""Builds the card above the question box. It shows how far each document is read ahead, and suggests questions.

Documents are read as soon as they are dropped or chosen.
"""

from collections.abc import Callable
from typing import Any

import gradio as gr

from localctx.ui.reading import ready_text, source_list
from localctx.ui.reading.chat_documents import ChatDocuments
from localctx.ui.running.tab_reading import ReadingState, ReadingTarget, TabReading
from localctx.ui.uploads import uploaded_files
from localctx.ui.window import EVENT_OPTIONS, AppWindow, Updates, tab_id
from localctx.workflows.ahead.suggested_questions import COUNT

SUMMARIZE = "Summarize this document"
FAST, SLOW = 0.4, 3.0  # seconds between two refreshes: while documents are read, and afterwards
_WANTED = """(question, chat, documents, scope, until) => [JSON.stringify(
    [(question?.files ?? []).map(file => file.path), chat, documents, scope, until])]"""


class ReadyCard:
    """The card, built inside a gr.Blocks. Attached files are also listed in ``about``, the panel of sources."""

    def __init__(self, window: AppWindow, about: ChatDocuments) -> None:
        self._window, self._about = window, about
        self._sent: dict[str, str] = {}  # the content that each tab shows, by tab

    def build(self) -> None:
        """Build the card, its button to cancel, and the buttons with suggested questions."""
        self.wanted = gr.Textbox("", visible=False)
        self.timer = gr.Timer(FAST, active=False)
        with gr.Column(visible=False, elem_id="ready") as self.box:
            with gr.Row(elem_id="ready-row"):
                self.card = gr.HTML("", elem_id="ready-card")
                self.cancel = gr.Button("Cancel", size="sm", elem_id="ready-cancel", scale=0, min_width=90)
            with gr.Row(elem_id="suggestions", visible=False) as self.row:
                self.suggestions = [gr.Button("", size="sm") for _ in range(COUNT + 1)]

    @property
    def outputs(self) -> list[Any]:
        """The components that are updated while documents are read."""
        return [self.timer, self.box, self.card, self._about.attached, self.cancel, self.row, *self.suggestions]

    def wire(
        self,
        page: gr.Blocks,
        question: gr.MultimodalTextbox,
        chat: gr.Textbox,
        ask: Callable[[Any], Any],
    ) -> None:
        """Connect the components. ``ask`` is called with each event after which the ``question`` box is submitted."""
        how = EVENT_OPTIONS | {"queue": False}
        about = self._about
        sources = [question, chat, *about.outputs]
        changes = [question.change, chat.change, about.documents.change, about.library.change, about.until.change]
        gr.on(changes, None, sources, self.wanted, js=_WANTED)
        self.wanted.change(self._want, sources, self.outputs, **how)
        self.timer.tick(self._tick, None, self.outputs, **how)
        self.cancel.click(self._stop, None, self.outputs, **how)
        for button in self.suggestions:
            ask(button.click(_fill, [button, question], question, **how))
        page.unload(self._leave)

    def _want(
        self, question: dict[str, Any], chat: str, documents: list[str], scope: str, until: str, request: gr.Request
    ) -> Updates:
        files, until = tuple(uploaded_files(question)), (until or "").strip()
        wanted = ReadingTarget() if scope else ReadingTarget(files, tuple(documents), until, self._has_messages(chat))
        reading = self._reading(request)
        reading.want(wanted)
        return self._show(reading.state, request)

    def _has_messages(self, chat: str) -> bool:
        with self._window.store() as store:
            stored = store.chats.stored(chat)
        return stored is not None and stored.leaf is not None

    def _tick(self, request: gr.Request) -> Updates:
        reading = self._reading(request)
        reading.refresh()
        shown = self._show(reading.state, request, changed_only=True)
        return shown or gr.skip()

    def _stop(self, request: gr.Request) -> Updates:
        reading = self._reading(request)
        reading.stop()
        return self._show(reading.state, request)

    def _leave(self, request: gr.Request) -> None:
        self._sent.pop(tab_id(request), None)
        self._window.readings.leave(tab_id(request))

    def _reading(self, request: gr.Request) -> TabReading:
        return self._window.readings.of(tab_id(request))

    def _show(self, state: ReadingState, request: gr.Request, changed_only: bool = False) -> Updates:
        """Returns updates that show the card. With ``changed_only``, returns {} if the tab already shows the same
        card.
        """
        html, busy = ready_text.card(state), state.busy
        asked = self._suggested(state)
        shown = "\n".join([html, *asked])
        if changed_only and self._sent.get(tab_id(request)) == shown:
            return {}
        self._sent[tab_id(request)] = shown
        questions = [*asked, *[""] * (len(self.suggestions) - len(asked))]
        return {
            self.timer: gr.Timer(FAST if busy else SLOW, active=bool(state.documents)),
            self.box: gr.update(visible=bool(html)),
            self.card: html,
            self._about.attached: source_list.attached(self._attached(state)),
            self.cancel: gr.update(visible=busy and not state.ready and not state.wanted.has_messages),
            self.row: gr.update(visible=bool(asked)),
            **{
                button: gr.update(value=text, visible=bool(text))
                for button, text in zip(self.suggestions, questions, strict=True)
            },
        }

    def _attached(self, state: ReadingState) -> list[tuple[str, str, str, bool]]:
        """Returns (name, id of the document, facts, whether it can be read) of each file in the question box. The id is
        "" until the document is stored.
        """
        files = [d for d in state.documents if d.source in state.wanted.files]
        return [(d.name, d.document, ready_text.facts(d, state), not d.error) for d in files]

    def _suggested(self, state: ReadingState) -> list[str]:
        """Returns the questions to suggest, and in a chat without messages the summary of its only document, if that is
        no table.
        """
        if state.wanted.has_messages:
            return self._not_asked(state)[:COUNT] if state.wanted.files else []
        has_prose = len(state.documents) == 1 and state.questions and state.documents[0].part != "row"
        return [*state.questions[:COUNT], *([SUMMARIZE] if has_prose else [])]

    def _not_asked(self, state: ReadingState) -> list[str]:
        """Returns the suggested questions that were not asked yet in any chat about these documents."""
        ids = {d.document for d in state.documents}
        with self._window.store() as store:
            chats = [c.id for c in store.chats.all() if ids & {d.id for d in c.documents}]
            said = {m.text for chat in chats for m in store.chats.messages(chat)}
        return [question for question in state.questions if question not in said]


def _fill(suggestion: str, question: dict[str, Any]) -> dict[str, Any]:
    """Put a suggested question into the question box. The files in the box stay."""
    return {"text": suggestion, "files": (question or {}).get("files") or []}
