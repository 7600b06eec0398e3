"""Builds the card above the question box. It shows how far each document is read ahead, and suggests questions. In a
new chat, a guide tells what the documents are about.

Documents are read as soon as they are dropped or chosen.
"""

from typing import Any

import gradio as gr

from localctx.ui.reading import guide, ready_text, source_list
from localctx.ui.reading.chat_documents import ChatDocuments
from localctx.ui.running.tab_reading import ReadingState, ReadingTarget, TabReading
from localctx.ui.uploads import uploaded_files
from localctx.ui.window import EVENT_OPTIONS, AppWindow, Updates, tab_id
from localctx.workflows.ahead.suggested_questions import COUNT

FAST, SLOW = 0.4, 3.0  # seconds between two refreshes: while documents are read, and afterwards
_WANTED = """(question, chat, documents, scope, until) => [JSON.stringify(
    [(question?.files ?? []).map(file => file.path), chat, documents, scope, until])]"""


class ReadyCard:
    """The card, built inside a gr.Blocks. Attached files are also listed in ``about``, the panel of sources."""

    def __init__(self, window: AppWindow, about: ChatDocuments) -> None:
        self._window, self._about = window, about
        self._sent: dict[str, Updates] = {}  # what each tab shows, by tab

    def build_guide(self) -> None:
        """Build the guide, which stands in the conversation."""
        self.guide = gr.HTML("", elem_id="guide", apply_default_css=False)

    def build(self) -> None:
        """Build the suggested questions, and below them the card and its button to cancel."""
        self.wanted = gr.Textbox("", visible=False)
        self.timer = gr.Timer(FAST, active=False)
        self.suggestions = gr.HTML("", elem_id="suggestions", apply_default_css=False)
        with gr.Row(visible=False, elem_id="ready") as self.box:
            self.card = gr.HTML("", elem_id="ready-card")
            self.cancel = gr.Button("Cancel", size="sm", elem_id="ready-cancel", scale=0, min_width=90)

    @property
    def outputs(self) -> list[Any]:
        """The components that are updated while documents are read."""
        return [self.timer, self.guide, self.suggestions, self.box, self.card, self._about.attached, self.cancel]

    def wire(self, page: gr.Blocks, question: gr.MultimodalTextbox, chat: gr.Textbox) -> None:
        """Connect the components. conversation.js handles the clicks on suggestions and in the guide."""
        how = EVENT_OPTIONS | {"queue": False}
        about = self._about
        sources = [question, chat, *about.outputs]
        changes = [question.change, chat.change, about.documents.change, about.library.change, about.until.change]
        gr.on(changes, None, sources, self.wanted, js=_WANTED)
        self.wanted.change(self._want, sources, self.outputs, **how)
        self.timer.tick(self._tick, None, self.outputs, **how)
        self.cancel.click(self._stop, None, self.outputs, **how)
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
        return stored is not None and (stored.leaf is not None or self._window.answers.is_running(chat))

    def _tick(self, request: gr.Request) -> Updates:
        """Returns updates of what has changed, so that the tab draws nothing else anew."""
        reading, before = self._reading(request), self._sent.get(tab_id(request), {})
        reading.refresh()
        shown = self._show(reading.state, request)
        return {part: value for part, value in shown.items() if before.get(part) != value} or gr.skip()

    def _stop(self, request: gr.Request) -> Updates:
        reading = self._reading(request)
        reading.stop()
        return self._show(reading.state, request)

    def _leave(self, request: gr.Request) -> None:
        self._sent.pop(tab_id(request), None)
        self._window.readings.leave(tab_id(request))

    def _reading(self, request: gr.Request) -> TabReading:
        return self._window.readings.of(tab_id(request))

    def _show(self, state: ReadingState, request: gr.Request) -> Updates:
        """Returns updates that show the card, the guide and the suggestions."""
        html, busy = ready_text.card(state), state.busy
        shown = self._sent[tab_id(request)] = {
            self.timer: gr.update(value=FAST if busy else SLOW, active=bool(state.documents)),
            self.guide: guide.guide(state),
            self.suggestions: guide.suggestions(self._suggested(state)),
            self.box: gr.update(visible=bool(html)),
            self.card: html,
            self._about.attached: source_list.attached(self._attached(state)),
            self.cancel: gr.update(visible=busy and not state.is_ready and not state.wanted.has_messages),
        }
        return shown

    def _attached(self, state: ReadingState) -> list[tuple[str, str, str, bool]]:
        """Returns (name, id of the document, facts, whether it can be read) of each file in the question box. The id is
        "" until the document is stored.
        """
        files = [d for d in state.distinct.values() if d.source in state.wanted.files]
        return [(d.name, d.document, ready_text.facts(d, state), not d.error) for d in files]

    def _suggested(self, state: ReadingState) -> list[str]:
        """Returns the questions to suggest, in a chat with messages only if it has a new file."""
        if state.wanted.has_messages:
            return self._not_asked(state)[:COUNT] if state.wanted.files else []
        return list(state.questions[:COUNT])

    def _not_asked(self, state: ReadingState) -> list[str]:
        """Returns the suggested questions that were not asked yet in any chat about these documents."""
        ids = {d.document for d in state.documents}
        with self._window.store() as store:
            chats = [c.id for c in store.chats.all() if ids & {d.id for d in c.documents}]
            said = {m.text for chat in chats for m in store.chats.messages(chat)}
        return [question for question in state.questions if question not in said]
