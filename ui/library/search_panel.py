"""Builds the panel that searches all documents of the library. A line shows how many documents are searchable
already.
"""

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import gradio as gr

from localctx.engine.events import Note, Progress
from localctx.library.search.search import SearchResult
from localctx.serving.background_index import IndexStatus
from localctx.serving.worker import Queued
from localctx.ui import render
from localctx.ui.everyday import in_everyday_words
from localctx.ui.job_events import error_text, progress_line, redraws
from localctx.ui.library import library_table
from localctx.ui.window import EVENT_OPTIONS, SLOW_EVENT_OPTIONS, AppWindow, Updates, tab_id

if TYPE_CHECKING:
    from localctx.session import Session

MAX_PASSAGES = 10
PAUSED = "Paused: not all documents are searchable yet."


class SearchPanel:
    """The panel with the search field and the results, built inside a gr.Blocks. ``ticks`` is a JavaScript expression
    for the ids of ticked documents.
    """

    def __init__(self, window: AppWindow, ticks: str) -> None:
        self._window, self._ticks = window, ticks

    def build(self) -> None:
        """Build the search field, the line about the index (empty while there is nothing to index), and the list of
        passages found.
        """
        self.words = gr.Textbox(
            "",
            label="Search in all documents",
            placeholder="Words, or a question",
            elem_id="words",
            max_lines=1,
            submit_btn="Search",
        )
        self.line = gr.HTML("", elem_id="indexing")
        self.button = gr.Button("Pause", size="sm", visible=False, elem_id="stop-indexing")
        self.only = gr.Checkbox(label="Only in the selected documents", elem_id="only")
        self.hits = gr.HTML("", elem_id="hits")

    @property
    def outputs(self) -> list[Any]:
        """The components that ``show`` updates."""
        return [self.line, self.button]

    def wire(self, ticked: gr.Textbox) -> None:
        """Connect the event handlers."""
        sent = f"(words, only, _) => [words, only, {self._ticks}]"
        self.words.submit(self._search, [self.words, self.only, ticked], self.hits, js=sent, **SLOW_EVENT_OPTIONS)
        self.button.click(self._press, None, self.outputs, **EVENT_OPTIONS)

    def show(self) -> Updates:
        """Returns updates that show how much of the library is searchable already."""
        status = self._window.indexer.status
        label, visible = "Resume" if status.stopped else "Pause", bool(status.progress) or status.stopped
        return {self.line: status_line(status), self.button: gr.update(value=label, visible=visible)}

    def stop(self, request: gr.Request) -> None:
        """Stop the search of the tab that sent ``request``."""
        self._window.stop(tab_id(request, "search"))

    def _press(self) -> Updates:
        if self._window.indexer.status.stopped:
            self._window.indexer.wake()
        else:
            self._window.indexer.stop()
        return self.show()

    def _search(self, words: str, only: bool, ticked: str, request: gr.Request) -> Iterator[str]:
        """Search the documents, as far as they are indexed already. Yields the progress, then the passages found."""
        if not words.strip():
            yield ""
            return
        results, notes, bar = list[SearchResult](), list[str](), ""

        def job(session: "Session") -> Generator[Any, None, None]:
            with session.workflows.library() as workflow:
                result, why = workflow.search(words, (only and ticked.split()) or None, MAX_PASSAGES, wait=False)
            yield result
            if why:
                yield Note(why)

        def handle(event: Any) -> None:
            nonlocal bar
            match event:
                case Queued() | Progress():
                    bar = progress_line(event) or bar
                case SearchResult():
                    results.append(event)
                case Note():
                    notes.append(render.note(in_everyday_words(event.text)))

        try:
            events = self._window.run_promptly(tab_id(request, "search"), job, self._window.library_worker)
            for _ in redraws(events, handle):
                yield bar
            with self._window.store() as store:
                yield library_table.hits(results[0], words, store.documents.text) + "".join(notes)
        except Exception as e:
            yield render.note(error_text(e), "error")


def status_line(status: IndexStatus) -> str:
    """Returns the indexer's ``status`` as HTML; "" if there is nothing to index."""
    if status.problem:
        return render.note(in_everyday_words(status.problem), "error")
    if status.stopped:
        return render.note(PAUSED)
    return render.progress_bar(status.progress) if status.progress else ""
