"""Builds the part of the library page in which collections are shown, filled, asked and deleted."""

from collections.abc import Callable
from typing import Any

import gradio as gr

from localctx.errors import UserError
from localctx.ui import render
from localctx.ui.job_events import error_text
from localctx.ui.window import EVENT_OPTIONS, SMALL, AppWindow, Updates

EVERYTHING = ""  # the value of the choice "All documents"
CHOOSE_FIRST = "Choose documents in the table first."


class CollectionsPanel:
    """The choice of a collection, and the buttons that act on the collection, built inside a gr.Blocks.

    ``ticks`` is a JavaScript expression for the ids of the ticked documents.
    """

    def __init__(self, window: AppWindow, ticks: str) -> None:
        self._window, self._ticks = window, ticks

    def build_choice(self) -> None:
        """Build the dropdown that chooses which collection the table of documents shows."""
        self.shown = gr.Dropdown(
            [("All documents", EVERYTHING)], value=EVERYTHING, label="Collection", elem_id="collection"
        )

    def build_tools(self) -> None:
        """Build the buttons that act on the shown collection, and the line with the result of an action."""
        with gr.Row(visible=False) as self.tools:
            self.ask = gr.Button("Ask this collection", elem_id="collection-ask", **SMALL)
            self.take_out = gr.Button("Remove from it", elem_id="collection-take-out", **SMALL)
            self.remove = gr.Button("Delete collection", elem_id="collection-delete", **SMALL)
        self.message = gr.HTML("", elem_id="collection-said")

    def build_adding(self) -> None:
        """Build the section, collapsed at first, in which the ticked documents are added to a collection."""
        with gr.Accordion("Add to a collection", open=False, elem_id="collections"), gr.Row():
            self.name = gr.Dropdown(
                [],
                value=None,
                label="Collection",
                info="choose one, or type the name of a new one",
                allow_custom_value=True,
                elem_id="collection-name",
            )
            self.put = gr.Button("Add", elem_id="collection-put", **SMALL)

    def wire(self, ticked: gr.Textbox, refresh: Callable[[Any], Any], ask: Callable[..., Any]) -> None:
        """Connect the event handlers. ``refresh`` is called with each event after which the table must be redrawn.

        ``ask`` is called with the button that begins a chat, and the dropdown that chooses the collection.
        """
        outputs = [*self.choosing, self.message]
        shown_ticked = f"(shown, _) => [shown, {self._ticks}]"
        refresh(self.shown.input(self.show, [self.shown], outputs, **EVENT_OPTIONS))
        refresh(
            self.put.click(self._put, [self.shown, self.name, ticked], outputs, **EVENT_OPTIONS, js=self._with_name)
        )
        refresh(self.take_out.click(self._take_out, [self.shown, ticked], outputs, **EVENT_OPTIONS, js=shown_ticked))
        refresh(self.remove.click(self._remove, [self.shown], outputs, **EVENT_OPTIONS))
        ask(self.ask, self.shown)

    @property
    def _with_name(self) -> str:
        return f"(shown, name, _) => [shown, name, {self._ticks}]"

    @property
    def choosing(self) -> list[Any]:
        """The components that ``choices`` updates."""
        return [self.shown, self.name, self.tools]

    def choices(self, shown: str | None) -> Updates:
        """Returns updates of the lists of collections. ``shown`` is the id, as text, of the collection that is chosen.

        If this collection was deleted, all documents are shown. Values that the user typed or chose meanwhile stay.
        """
        with self._window.store() as store:
            collections = store.collections.all()
        chosen = shown if shown in [str(c.id) for c in collections] else EVERYTHING
        choices = [("All documents", EVERYTHING), *((f"{c.name} ({c.documents:,})", str(c.id)) for c in collections)]
        return {
            self.shown: gr.update(choices=choices) | ({} if chosen == shown else {"value": chosen}),
            self.name: gr.update(choices=[c.name for c in collections]),
            self.tools: gr.update(visible=chosen != EVERYTHING),
        }

    def show(self, shown: str | None) -> Updates:
        """Returns updates after a collection was chosen or changed. They also clear the name and the message."""
        updates = self.choices(shown)
        updates[self.name] |= {"value": None}
        updates[self.shown] = {"value": shown} | updates[self.shown]
        return updates | {self.message: ""}

    def _put(self, shown: str, name: str | None, ticked: str) -> Updates:
        if not ticked:
            return {self.message: render.note(CHOOSE_FIRST)}
        try:
            with self._window.store() as store:
                store.collections.add(name or "", ticked.split())
        except UserError as e:
            return {self.message: render.note(error_text(e), "error")}
        return self.show(shown) | {self.message: render.note(f"In the collection “{name}” now.", "done")}

    def _take_out(self, shown: str, ticked: str) -> Updates:
        with self._window.store() as store:
            store.collections.take_out(int(shown), ticked.split())
        said = render.note("Removed from the collection; they stay in the library." if ticked else CHOOSE_FIRST, "done")
        return self.show(shown) | {self.message: said}

    def _remove(self, shown: str) -> Updates:
        with self._window.store() as store:
            store.collections.remove(int(shown))
        return self.show(EVERYTHING) | {
            self.message: render.note("The collection was deleted; its documents stay.", "done")
        }
