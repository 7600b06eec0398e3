"""Builds the panel that adds documents: reads dropped or named files into the library and shows the progress."""

import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from localctx.batch.jobs import IgnoredFile, told
from localctx.errors import Cancelled
from localctx.file_names import stored_path
from localctx.library.folders.find import find_documents
from localctx.ui import render
from localctx.ui.job_events import error_text, redraws
from localctx.ui.library import library_table
from localctx.ui.library.library_table import IncomingFile
from localctx.ui.window import SLOW_EVENT_OPTIONS, AppWindow, Updates, tab_id

if TYPE_CHECKING:
    from localctx.session import Session

MAX_IGNORED_LINES = 5  # ignored files that are listed by name


def absolute_path(typed: str) -> str:
    """Returns a typed path as an absolute one. ``-`` means a file of that name; it never means the server's standard
    input.
    """
    return str(Path(os.path.expanduser(typed.strip())).absolute())  # noqa: PTH111 (pathlib's fails for ~nobody)


class AddingPanel:
    """The fields that add documents, built inside a gr.Blocks."""

    def __init__(self, window: AppWindow) -> None:
        self._window = window

    def build(self) -> None:
        """Build the drop field, the path field, and the list that shows the files' progress."""
        self.drop = gr.File(label="Drop documents here", file_count="multiple", elem_id="drop", height=180)
        self.path = gr.Textbox(
            "",
            label="Or enter a file or folder",
            placeholder="~/Documents/reports",
            elem_id="path",
            max_lines=1,
            submit_btn="Read",
        )
        self.cancel = gr.Button("Cancel", size="sm", visible=False, elem_id="cancel-adding")
        self.queue = gr.HTML("", elem_id="queue")

    def wire(self, refresh: Callable[[Any], Any]) -> None:
        """Connect the event handlers. ``refresh`` receives each event that changes the library's documents."""
        outputs = [self.queue, self.cancel, self.drop, self.path]
        refresh(self.drop.upload(self._dropped, self.drop, outputs, **SLOW_EVENT_OPTIONS))
        refresh(self.path.submit(self._named, self.path, outputs, **SLOW_EVENT_OPTIONS))
        self.cancel.click(self.stop, None, None, queue=False, api_visibility="private")

    def stop(self, request: gr.Request) -> None:
        """Stop reading files for the tab that sent ``request``. Files already read stay in the library."""
        self._window.stop(tab_id(request, "adding"))

    def _dropped(self, files: Sequence[str], request: gr.Request) -> Iterator[Updates]:
        yield from self._read([IncomingFile(f, Path(f).name) for f in map(str, files or [])], [], request)

    def _named(self, path: str, request: gr.Request) -> Iterator[Updates]:
        ignored = list[IgnoredFile]()
        sources = [absolute_path(path)] if path.strip() else []
        files = find_documents(sources, lambda file, why: ignored.append(IgnoredFile(stored_path(file), why)))
        yield from self._read([IncomingFile(f, f) for f in files], _ignored_lines(ignored), request)

    def _read(self, entries: list[IncomingFile], notes: list[str], request: gr.Request) -> Iterator[Updates]:
        """Read files and show their progress. Each file is a job of its own, so that jobs of other tabs can run in
        between.
        """
        if not entries:
            yield {self.queue: "".join(map(render.note, [*notes, "There is no document at that place."]))}
            return

        # all outputs each time, because a busy page may drop all updates except the last one
        def progress(more: str = "") -> Updates:
            buttons = {self.cancel: gr.update(visible=True), self.drop: gr.update(interactive=False)}
            return {self.queue: library_table.queue(entries) + more, self.path: gr.update(interactive=False), **buttons}

        yield progress()
        try:
            for entry in entries:
                for _ in self._read_one(entry, request):
                    yield progress()
            self._window.indexer.wake()
        except Cancelled:
            notes.append("Stopped; files already read stay")
            for entry in entries:
                entry.stop()
        except Exception as e:
            notes.append(error_text(e))
        yield {
            self.queue: library_table.queue(entries) + "".join(map(render.note, notes)),
            self.cancel: gr.update(visible=False),
            self.drop: gr.update(value=None, interactive=True),
            self.path: gr.update(interactive=True),
        }

    def _read_one(self, entry: IncomingFile, request: gr.Request) -> Iterator[None]:
        def job(session: "Session") -> Generator[Any, None, None]:
            with session.workflows.library() as workflow:
                yield from workflow.add([entry.path], session.settings.ocr)

        start, window = time.monotonic(), self._window
        events = window.run_promptly(tab_id(request, "adding"), job, window.library_worker)
        for _ in redraws(events, entry.handle):
            entry.seconds = entry.seconds if entry.id else time.monotonic() - start
            yield


def _ignored_lines(ignored: Sequence[IgnoredFile]) -> list[str]:
    """Returns a line for each of the first ignored files, then the number of the others."""
    lines = list(told(ignored))
    more = len(lines) - MAX_IGNORED_LINES
    return lines[:MAX_IGNORED_LINES] + ([f"{more:,} more ignored"] if more > 0 else [])
