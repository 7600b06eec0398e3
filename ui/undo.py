"""Builds the components that undo deletions: a line about the last deletion, and a list of recent deletions."""

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from localctx.errors import UserError
from localctx.store.deletions import TRASH_DAYS, Deletion, left_in_trash
from localctx.store.store import Store
from localctx.ui import render
from localctx.ui.job_events import error_text
from localctx.ui.window import EVENT_OPTIONS, SMALL, AppWindow, Updates

MAX_NAMES = 3  # deleted items that are listed by name; the others are counted
HOW_LONG = f"{TRASH_DAYS} days"


class UndoLine:
    """A line that names the last deletion on a page, with an Undo button. The line stays until the next action on the
    page.
    """

    def __init__(self, elem_id: str) -> None:
        self._id = elem_id

    def build(self) -> None:
        """Build the line, hidden until something is deleted."""
        self.deletions = gr.Textbox("", visible=False)
        with gr.Row(visible=False, elem_classes="lc-undo") as self.row:
            self.line = gr.HTML("", elem_id=f"{self._id}-line")
            self.button = gr.Button("Undo", size="sm", min_width=60, scale=0, elem_id=self._id)

    @property
    def outputs(self) -> list[Any]:
        """The components that ``show`` and ``hidden`` update."""
        return [self.row, self.line, self.deletions]

    @property
    def hidden(self) -> Updates:
        """The updates that hide the line."""
        return {self.row: gr.update(visible=False), self.line: "", self.deletions: ""}

    def show(self, deletions: Sequence[Deletion], stays: str) -> Updates:
        """Returns updates that show the line for these ``deletions``.

        ``stays`` is a sentence for the user about the data that is kept.
        """
        return {
            self.row: gr.update(visible=True),
            self.line: render.note(f"Deleted {deleted_names(deletions)}. {stays}", "done"),
            self.deletions: " ".join(str(d.id) for d in deletions),
        }


class RecentlyDeleted:
    """The list of deletions that can still be restored, built inside a gr.Blocks."""

    def __init__(self, window: AppWindow) -> None:
        self._window = window

    def build(self) -> None:
        """Build the list, collapsed at first, and the buttons that act on the chosen rows."""
        with gr.Accordion("Recently deleted", open=False, elem_id="recently-deleted") as self.box:
            gr.HTML(
                f"<p>What is deleted, here or by a command, can be brought back for {HOW_LONG}; then it is gone "
                "for good. What comes back is read again when it is asked.</p>",
                padding=True,
            )
            self.chosen = gr.CheckboxGroup([], label="Deleted", elem_id="deleted")
            with gr.Row():
                self.restore = gr.Button("Restore", elem_id="restore", **SMALL)
                self.forget = gr.Button("Delete for good", variant="stop", elem_id="forget", **SMALL)
            self.status = gr.HTML("", elem_id="restored")

    def wire(self, tab: gr.Tab, refresh: Callable[[Any], Any]) -> None:
        """Connect the components. ``refresh`` is called with each event that changes the documents or chats."""
        both = [self.chosen, self.status]
        for event in (tab.select, self.box.expand):
            event(self.relisted, self.chosen, self.chosen, **EVENT_OPTIONS)
        refresh(self.restore.click(self._restore, self.chosen, both, **EVENT_OPTIONS))
        self.forget.click(self._forget, self.chosen, both, **EVENT_OPTIONS)

    def listed(self) -> Any:
        """Returns an update that lists the stored deletions and chooses none of them."""
        return gr.update(choices=self._rows(), value=[])

    def relisted(self, chosen: list[int]) -> Any:
        """Returns an update that lists the stored deletions. Deletions in ``chosen`` that are no longer stored are
        removed from the choice.

        If all of them are stored, the choice is not updated, because the user may have chosen more meanwhile.
        """
        choices = self._rows()
        there = [key for _, key in choices if key in chosen]
        return gr.update(choices=choices, value=there) if len(there) < len(chosen) else gr.update(choices=choices)

    def _rows(self) -> list[tuple[str, int]]:
        with self._window.store() as store:
            return [(_row(d), d.id) for d in store.deletions.all()]

    def _restore(self, chosen: list[int]) -> tuple[Any, str]:
        with self._window.store() as store:
            line = restored_line(store, chosen) if chosen else ""
        return self.listed(), line

    def _forget(self, chosen: list[int]) -> tuple[Any, str]:
        if not chosen:
            return self.listed(), ""
        with self._window.store() as store:
            store.forget_deleted(only=chosen)
            store.erase()
        return self.listed(), render.note("Deleted for good", "done")


def restored_line(store: Store, deletions: Sequence[int]) -> str:
    """Restore these deletions (ids). Returns HTML that names the restored items, and the error if one could not be
    restored.
    """
    back, failed = list[Deletion](), ""
    for deletion in sorted(deletions, reverse=True):
        try:
            back.append(store.deletions.restore(deletion))
        except UserError as e:
            failed = render.note(error_text(e), "error")
    return (render.note(f"Restored {deleted_names(back)}", "done") if back else "") + failed


def deleted_names(deletions: Sequence[Deletion]) -> str:
    """Returns the names of deleted items in quotation marks, at most MAX_NAMES."""
    names = [f"“{d.name}”" for d in deletions[:MAX_NAMES]]
    more = len(deletions) - MAX_NAMES
    return ", ".join(names) + (f" and {more:,} more" if more > 0 else "")


def _row(d: Deletion) -> str:
    return f"{d.name} ({d.kind}, {left_in_trash(d)} left)"
