"""What a chat is about, beside the conversation: its documents, or the library, and how far they are read."""

from collections.abc import Sequence
from typing import Any

import gradio as gr

from localctx.store.chats import Chat
from localctx.ui.window import AppWindow, Updates


class ChatDocuments:
    """The choice of documents, built inside a gr.Blocks."""

    def __init__(self, window: AppWindow) -> None:
        self._window = window

    def build(self) -> None:
        """Build the list of documents, the choice of the whole library, and the mark up to which they are read."""
        self.documents = gr.Dropdown(
            [], value=[], multiselect=True, label="Documents of this chat", elem_id="about", filterable=True
        )
        self.library = gr.Checkbox(label="Ask the whole library", elem_id="everything")
        self.until = gr.Textbox(
            label="Read only up to",
            info="40%, page 12 (its end), or words where you stopped: nothing later is seen",
            elem_id="until",
            max_lines=1,
        )

    @property
    def outputs(self) -> list[Any]:
        """The components that ``show`` updates."""
        return [self.documents, self.library, self.until]

    def wire(self, chat: gr.Textbox) -> None:
        """Connect the components; ``chat`` has the id of the open chat."""
        self.documents.focus(self._choices, None, self.documents, show_progress="hidden", api_visibility="private")
        gr.on(
            [self.documents.input, self.library.input, self.until.blur],
            self._save,
            [chat, *self.outputs],
            None,
            api_visibility="private",
        )

    def show(self, opened: Chat | None) -> Updates:
        """Return what the open chat is about; nothing for a new chat."""
        settings = opened.settings if opened else {}
        return {
            self.documents: gr.update(
                choices=self._window.document_choices(),
                value=[d.id for d in opened.documents if not d.removed] if opened else [],
            ),
            self.library: bool(settings.get("library")),
            self.until: settings.get("until", ""),
        }

    def choose(self, documents: Sequence[str]) -> Updates:
        """Return the list with these documents (ids) chosen, for a new chat."""
        choices = self._window.document_choices(documents)
        return {self.documents: gr.update(choices=choices, value=list(documents))}

    def _choices(self) -> Any:
        return gr.update(choices=self._window.document_choices())

    def _save(self, chat: str, documents: list[str], library: bool, until: str) -> None:
        if chat:
            with self._window.store() as store:
                store.chats.set_documents(chat, documents)
                store.chats.set(chat, {"library": library, "until": until})
