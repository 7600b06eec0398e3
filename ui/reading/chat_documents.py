"""Builds the panel that chooses the sources of a chat: documents, a collection or the library, and a mark.

The mark is the place up to which the document is read.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import gradio as gr

from localctx.errors import ChatError
from localctx.store.chats import Chat
from localctx.ui.reading import source_list
from localctx.ui.window import EVENT_OPTIONS, AppWindow, Updates

LIBRARY = "library"  # the scope of the whole library; other scopes are "" (the chat's documents) and ids of collections

_TOGGLE = "() => document.querySelector('#add-sources').classList.toggle('lc-open')"
_CLOSE = "(scope, until) => document.querySelector('#add-sources').classList.toggle('lc-open', !!(scope || until))"
# In the browser, so that a question sent at once after a click is asked about the documents that are ticked.
_TICK = """chosen => [chosen.includes(window.lcTicked)
  ? chosen.filter(document => document !== window.lcTicked)
  : [...chosen, window.lcTicked]]"""
_THESE, _ALL = ("The ticked documents", ""), ("The whole library", LIBRARY)


def chat_choice(scope: str, until: str | None, listed: Sequence[str]) -> dict[str, Any]:
    """Returns the settings of a chat for the chosen ``scope`` ("", LIBRARY, or the id of a collection as text), the
    mark ``until``, and the documents ``listed`` (ids) in its checklist, ticked or not.
    """
    collection = int(scope) if scope not in ("", LIBRARY) else None
    return {"library": scope == LIBRARY, "collection": collection, "until": until or "", "listed": list(listed)}


class ChatDocuments:
    """The panel that shows and chooses the sources of a chat, built inside a gr.Blocks."""

    def __init__(self, window: AppWindow) -> None:
        self._window = window

    def build(self) -> None:
        """Build the checklist and, hidden at first, the fields for further documents, the scope and the mark."""
        with gr.Accordion("Sources", elem_id="chat-about"):  # can be closed only on narrow screens
            self.listed = gr.State(("", ()))  # the id of the chat, and the documents in its checklist, ticked or not
            self.list = gr.HTML("", elem_id="sources", js_on_load=source_list.ON_CHANGE)
            self.attached = gr.HTML("", elem_id="attached")  # files in the question box; ReadyCard fills this
            self.more = gr.Button("+ Add", size="sm", elem_id="more-sources")
            # hidden by style.css, because a closed accordion loses events
            with gr.Column(elem_id="add-sources") as self.add:
                self.documents = gr.Dropdown([], value=[], multiselect=True, label="From the library", elem_id="about")
                self.library = gr.Dropdown(
                    [_THESE, _ALL], value="", label="Ask about", elem_id="scope", filterable=False
                )
                self.until = gr.Textbox(
                    label="Read only up to",
                    info="Nothing after this place is used",
                    placeholder="40%, page 12, or words of the text",
                    elem_id="until",
                    max_lines=1,
                )

    @property
    def outputs(self) -> list[Any]:
        """The components that hold the sources of a question."""
        return [self.documents, self.library, self.until]

    @property
    def choice(self) -> list[Any]:
        """The components that hold the sources that a chat remembers, in the order of the parameters of ``save``."""
        return [*self.outputs, self.listed]

    @property
    def shown(self) -> list[Any]:
        """The components that ``show`` updates."""
        return [*self.choice, self.add, self.list]

    def wire(self, chat: gr.Textbox) -> None:
        """Connect the components. ``chat`` has the id of the open chat."""
        self.more.click(None, js=_TOGGLE)
        self.documents.focus(self._choices, self.documents, self.documents, **EVENT_OPTIONS)
        self.library.focus(lambda: gr.update(choices=self._scopes()), None, self.library, **EVENT_OPTIONS)
        self.documents.change(self._list, [self.documents, self.listed], [self.list, self.listed], **EVENT_OPTIONS)
        chat.change(None, [self.library, self.until], None, js=_CLOSE)
        ticked = self.list.select(None, self.documents, self.documents, js=_TICK)
        ticked.then(self.save, [chat, *self.choice], None, api_visibility="private")
        gr.on(
            [self.documents.input, self.library.input, self.until.blur],
            self.save,
            [chat, *self.choice],
            None,
            api_visibility="private",
        )

    def show(self, opened: Chat | None) -> Updates:
        """Returns updates that show the sources of the open chat, or no sources for a new chat (None)."""
        settings = opened.settings if opened else {}
        scope, until = self._scope(settings), settings.get("until", "")
        chosen = [d.id for d in opened.documents if not d.removed] if opened else []
        listed = list(dict.fromkeys([*settings.get("listed", ()), *chosen]))
        return {
            self.documents: gr.update(choices=self._window.document_choices(chosen), value=chosen),
            self.library: gr.update(choices=self._scopes(), value=scope),
            self.until: until,
            self.add: _opened(scope or until),  # opened if a scope or mark is set, so that the user sees it
            **self._listing(opened.id if opened else "", listed, chosen),
        }

    def read_until(self, until: str) -> Updates:
        """Returns updates that show the mark ``until``."""
        return {self.until: until} | ({self.add: _opened(until)} if until else {})

    def choose(self, documents: Sequence[str]) -> Updates:
        """Returns updates that choose these documents (ids), and not the library or a collection."""
        choices = self._window.document_choices(documents)
        return {self.documents: gr.update(choices=choices, value=list(documents)), self.library: ""}

    def choose_only(self, documents: Sequence[str]) -> Updates:
        """Returns updates that choose these documents (ids) for a new chat, and list no others."""
        return self.choose(documents) | self._listing("", documents, documents)

    def choose_collection(self, collection: int) -> Updates:
        """Returns updates that choose the collection with this id for a new chat."""
        return {
            self.library: gr.update(choices=self._scopes(), value=str(collection)),
            self.add: _opened(True),
        }

    def none_ticked(self, documents: Sequence[str], library: str, listed: tuple[str, Sequence[str]]) -> bool:
        """Returns True if there are documents in the checklist, but nothing to ask about is chosen."""
        if documents or library:
            return False
        with self._window.store() as store:
            return any(map(store.documents.get, listed[1]))

    def _list(self, chosen: list[str] | None, listed: tuple[str, Sequence[str]]) -> Updates:
        """Returns updates of the checklist. The ``chosen`` documents are ticked; documents that were ``listed`` before
        stay in the list.
        """
        chat, documents = listed
        return self._listing(chat, list(dict.fromkeys([*documents, *(chosen or ())])), chosen or ())

    def _listing(self, chat: str, documents: Sequence[str], ticked: Sequence[str]) -> Updates:
        asked, model = self._window.answers.files_of(chat), self._window.settings.model
        with self._window.store() as store:
            shown = source_list.sources(store, documents, ticked, model, asked)
        return {self.list: shown, self.listed: (chat, tuple(documents))}

    def _scopes(self) -> list[tuple[str, str]]:
        with self._window.store() as store:
            collections = [(f"Collection: {c.name} ({c.documents:,})", str(c.id)) for c in store.collections.all()]
        return [_THESE, *collections, _ALL]

    def _scope(self, settings: dict[str, Any]) -> str:
        if settings.get("library"):
            return LIBRARY
        chosen = str(settings.get("collection") or "")
        return chosen if chosen in (value for _, value in self._scopes()) else ""

    def _choices(self, chosen: list[str] | None) -> Any:
        return gr.update(choices=self._window.document_choices(chosen or ()))

    def save(
        self, chat: str, documents: list[str], library: str, until: str, listed: tuple[str, Sequence[str]]
    ) -> None:
        """Store the sources of the chat with this id. Does nothing if the id is "", because no chat is open yet."""
        if chat:
            with self._window.store() as store, suppress(ChatError):  # showing the chat reports its deletion
                store.chats.set_documents(chat, documents)
                store.chats.set(chat, chat_choice(library, until, listed[1]))


def _opened(is_open: object) -> Any:
    return gr.update(elem_classes="lc-open" if is_open else "")
