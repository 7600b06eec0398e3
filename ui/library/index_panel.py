"""Builds the line that shows how far the library is indexed for search, with a button to stop or continue."""

from typing import Any

import gradio as gr

from localctx.serving.background_index import IndexStatus
from localctx.ui import render
from localctx.ui.everyday import in_everyday_words
from localctx.ui.window import AppWindow, Updates

REFRESH_INTERVAL = 1.0  # seconds between two reads of the status, while something is indexed
TAB = "Library"
STOPPED = "Not all documents are searchable yet: you stopped it."


class IndexPanel:
    """The line and its button, built inside a gr.Blocks."""

    def __init__(self, window: AppWindow) -> None:
        self._window = window

    def build(self) -> None:
        """Build the line, which is empty while there is nothing to index, and its button."""
        self.line = gr.HTML("", elem_id="indexing")
        self.button = gr.Button("Stop", size="sm", visible=False, elem_id="stop-indexing")
        self.timer = gr.Timer(REFRESH_INTERVAL, active=False)

    def wire(self, page: gr.Blocks, tabs: gr.Tabs) -> None:
        """Connect the event handlers. The line is kept up to date while its tab is shown."""
        quick: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        shown = [self.line, self.button, self.timer]
        tabs.select(self._tab_selected, None, shown, **quick)
        self.timer.tick(self.show, None, shown, **quick)
        self.button.click(self._press, None, shown, **quick)

    def show(self) -> Updates:
        """Returns updates that show the status. The timer runs while the tab is shown, as documents may come."""
        status = self._window.indexer.status
        return {
            self.line: status_line(status),
            self.button: gr.update(
                value="Go on" if status.stopped else "Stop", visible=bool(status.progress) or status.stopped
            ),
            self.timer: gr.Timer(active=True),
        }

    def _tab_selected(self, selected: gr.SelectData) -> Updates:
        return self.show() if selected.value == TAB else {self.timer: gr.Timer(active=False)}

    def _press(self) -> Updates:
        if self._window.indexer.status.stopped:
            self._window.indexer.wake()
        else:
            self._window.indexer.stop()
        return self.show()


def status_line(status: IndexStatus) -> str:
    """Returns the HTML of a status of the indexer; "" if there is nothing to index."""
    if status.problem:
        return render.note(in_everyday_words(status.problem), "error")
    if status.stopped:
        return render.note(STOPPED)
    return render.progress_bar(status.progress) if status.progress else ""
