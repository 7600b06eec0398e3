"""Builds the batch page, which summarizes many documents or asks them the same questions, and shows the results."""

import os
import threading
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from localctx.batch.jobs import DocumentJob, plan_jobs
from localctx.batch.markdown import SummaryTemplate
from localctx.batch.outputs import file_name
from localctx.errors import DocumentError, UserError
from localctx.ui import render
from localctx.ui.batch import batch_table
from localctx.ui.job_events import error_text
from localctx.ui.library.add_documents import IgnoredFiles, absolute_path
from localctx.ui.running.batch_runs import BatchItem
from localctx.ui.window import AppWindow, Updates, tab_id
from localctx.workflows.summary_task import LENGTHS, STYLES, SummaryTask

TAB = "Summaries"
POLL_INTERVAL = 0.5  # seconds between two checks for changes of the batch
_ON_ROW_CLICK = """
element.addEventListener('click', event => {
    const row = event.target.closest('.lc-open')
    if (row) trigger('select', { index: Number(row.dataset.row), value: row.innerText })
})
"""
_CLICK_DOWNLOAD = "() => document.querySelector('#batch-file').click()"


@dataclass
class _Viewer:
    """A tab that shows the batch, filtered to documents with ``filter`` in their name or state."""

    filter: str


class BatchPage:
    """The page, built inside a gr.Blocks.

    It shows ``AppWindow.batches``, a batch that runs even if no page is open.
    """

    def __init__(self, window: AppWindow) -> None:
        self._window, self._batches = window, window.batches
        self._viewers = dict[str, _Viewer]()  # by tab
        self._lock = threading.Lock()

    def build(self) -> None:
        """Build the choice of documents and the task, and beside them the progress and results."""
        with gr.Row(equal_height=False):
            with gr.Column(scale=2, min_width=300):
                self._build_choice()
                self._build_task()
            with gr.Column(scale=5, min_width=300):
                self._build_documents()

    def _build_choice(self) -> None:
        self.drop = gr.File(label="Drop documents here", file_count="multiple", elem_id="batch-drop", height=180)
        self.paths = gr.Textbox(
            "",
            label="Or name files, folders or patterns of this machine",
            placeholder="~/Documents/reports",
            info="one on each line",
            lines=2,
            elem_id="batch-paths",
        )
        self.library = gr.Dropdown(
            [], value=[], multiselect=True, label="Or choose from the library", elem_id="batch-library"
        )

    def _build_task(self) -> None:
        with gr.Accordion("Options", open=False, elem_id="batch-how"):
            self.length = gr.Dropdown(
                list(LENGTHS),
                value="medium",
                allow_custom_value=True,
                label="Length",
                info="or a number of words",
                elem_id="batch-length",
            )
            self.style = gr.Radio(list(STYLES), value="prose", label="Style", elem_id="batch-style")
            self.language = gr.Textbox(
                "", label="Language", placeholder="as German", max_lines=1, elem_id="batch-language"
            )
            self.refine = gr.Checkbox(
                label="Carry the summary through a long document, section by section", elem_id="batch-refine"
            )
        self.questions = gr.Textbox(
            "",
            label="Or ask each of them questions, in place of a summary",
            info="one on each line",
            lines=2,
            elem_id="batch-questions",
        )
        self.begin = gr.Button("Start", variant="primary", elem_id="batch-begin")
        self.message = gr.HTML("", elem_id="batch-said")

    def _build_documents(self) -> None:
        self.progress = gr.HTML("", elem_id="batch-progress")
        with gr.Row():
            small: dict[str, Any] = {"size": "sm", "min_width": 120, "scale": 0, "interactive": False}
            self.pause = gr.Button("Pause", elem_id="batch-pause", **small)
            self.resume = gr.Button("Resume", elem_id="batch-resume", variant="primary", **small)
            self.retry = gr.Button("Retry failed", elem_id="batch-retry", **small)
            self.save = gr.Button("Download all", elem_id="batch-save", **small)
            self.file = gr.DownloadButton("The file", elem_id="batch-file", visible="hidden")
        self.filter = gr.Textbox(
            "", label="Documents", placeholder="part of a name, or a state", elem_id="batch-filter", max_lines=1
        )
        self.table = gr.HTML("", elem_id="batch-table", js_on_load=_ON_ROW_CLICK)
        self.result = gr.HTML("", elem_id="batch-result")

    def wire(self, page: gr.Blocks, tabs: gr.Tabs, from_chat: gr.Button, chat: gr.Textbox) -> None:
        """Connect the components with their event handlers.

        The button ``from_chat`` opens this page with the documents of the open chat, whose id is in ``chat``.
        """
        quick: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        live = [self.progress, self.pause, self.resume, self.retry, self.save, self.table]
        watch = quick | {"fn": self._watch, "inputs": [self.filter], "outputs": live, "concurrency_limit": None}
        chosen, options = [self.drop, self.paths, self.library], [self.length, self.style, self.language, self.refine]
        begin = self.begin.click(
            self._begin, [*chosen, *options, self.questions], [*chosen, self.message, self.result], **quick
        )
        pause = self.pause.click(self._batches.pause, None, None, **quick)
        resume = self.resume.click(self._batches.resume, None, None, **quick)
        retry = self.retry.click(self._batches.retry, None, None, **quick)
        for event in (begin.then, pause.then, resume.then, retry.then, self.filter.change):
            event(**watch)
        tabs.select(self._tab_selected, [self.filter], [*live, self.library], concurrency_limit=None, **quick)
        self.library.focus(self._choices, None, self.library, **quick)
        opened = from_chat.click(self._choose_those_of, [chat], [self.library, self.message], **quick)
        opened.then(lambda: gr.update(selected="batch"), None, tabs, **quick)
        page.unload(self._unwatch)
        self.save.click(self._zip, None, self.file, **quick).then(None, js=_CLICK_DOWNLOAD)
        self.table.select(self._show_result, None, [self.result], **quick)

    # Showing the batch

    def _tab_selected(self, text: str, selected: gr.SelectData, request: gr.Request) -> Iterator[Updates]:
        self._unwatch(request)
        yield gr.skip()
        if selected.value == TAB:
            yield self._show(text) | {self.library: self._choices()}
            yield from self._watch(text, request)

    def _choices(self) -> Any:
        return gr.update(choices=self._window.document_choices())

    def _choose_those_of(self, chat: str) -> Updates:
        """Returns updates that choose the documents of a chat (its id)."""
        try:
            with self._window.store() as store:
                documents = [d.id for d in store.chats.get(chat).documents]
        except UserError as e:
            return {self.message: render.note(error_text(e), "error")}
        choices = self._window.document_choices()
        return {self.library: gr.update(choices=choices, value=[d for _, d in choices if d in documents])}

    def _watch(self, text: str, request: gr.Request) -> Iterator[Updates]:
        """Yields updates of the batch while it runs, until this tab shows another page.

        Each tab has one stream of updates, so that no update overtakes a newer one. An existing stream gets the new
        filter ``text``.
        """
        yield gr.skip()  # a generator without a value would clear all its outputs
        tab, seen = tab_id(request), None
        with self._lock:
            if tab in self._viewers:
                self._viewers[tab].filter = text
                return
            viewer = self._viewers[tab] = _Viewer(text)
        while self._viewers.get(tab) is viewer:
            now = viewer.filter, self._batches.version
            if now != seen:
                seen = now
                yield self._show(viewer.filter)
            elif self._close_if_idle(tab, viewer, seen):
                return
            time.sleep(POLL_INTERVAL)

    def _close_if_idle(self, tab: str, viewer: _Viewer, seen: tuple[str, int]) -> bool:
        """Stop watching and return True if nothing runs and the tab has shown the last change."""
        with self._lock:
            idle = not self._batches.busy and seen == (viewer.filter, self._batches.version)
            if idle and self._viewers.get(tab) is viewer:
                del self._viewers[tab]
            return idle

    def _unwatch(self, request: gr.Request) -> None:
        with self._lock:
            self._viewers.pop(tab_id(request), None)

    def _show(self, text: str) -> Updates:
        """Returns updates that show the batch, with its table filtered by ``text``."""
        batches = self._batches
        states = {item.state for item in batches.items}
        return {
            self.progress: batch_table.progress(batches),
            self.pause: gr.update(interactive=batches.running),
            self.resume: gr.update(interactive=not batches.running and not states <= {*batch_table.FINISHED}),
            self.retry: gr.update(interactive=not batches.running and "failed" in states),
            self.save: gr.update(interactive=bool(states & {"done", "skipped"})),
            self.table: batch_table.table(batches.items, text),
        }

    def _show_result(self, row: gr.SelectData) -> str:
        """Returns the result of the document in the clicked row."""
        items = self._batches.items
        if not isinstance(row.index, int) or not 0 <= row.index < len(items):
            return ""  # a row of an earlier batch
        with self._window.store() as store:
            has, text = store.documents.has, store.documents.text
            return batch_table.result(items[row.index], lambda d: text(d) if has(d) else None)

    def _zip(self) -> str:
        """Write the results so far as a zip of Markdown files, as ``localctx summarize -o`` writes them."""
        file, template = self._window.download_path("summaries.zip"), SummaryTemplate()
        entries = {file_name(item.job.path): item.entry for item in self._batches.items if item.entry}
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, entry in entries.items():
                archive.writestr(name, template.render(entry))
        return str(file)

    # A new batch

    def _begin(
        self,
        files: Sequence[str] | None,
        paths: str,
        documents: Sequence[str],
        length: str,
        style: str,
        language: str,
        refine: bool,
        questions: str,
    ) -> Iterator[Updates]:
        yield {self.message: render.note("Looking for documents …")}
        ignored = IgnoredFiles()
        try:
            task = _task(length, style, language, refine, questions)
            items = [*self._dropped(files or []), *_named(paths, ignored), *self._chosen(documents)]
            if not items:
                raise DocumentError("no documents were found", "drop some, or name a folder that has some")
            self._batches.begin(items, task)
        except UserError as e:
            yield {self.message: render.note(error_text(e), "error")}
            return
        yield {
            self.drop: None,
            self.paths: "",
            self.library: [],
            self.message: "".join(map(render.note, ignored.lines)),
            self.result: "",
        }

    def _dropped(self, files: Sequence[str]) -> list[BatchItem]:
        """Returns uploaded files as items, named without their upload folder."""
        uploads = self._window.uploads.resolve()
        paths = [Path(file).resolve() for file in files]
        return [BatchItem(DocumentJob(str(p), str(p.relative_to(uploads)), p.stat().st_size), p.name) for p in paths]

    def _chosen(self, documents: Sequence[str]) -> Iterator[BatchItem]:
        with self._window.store() as store:
            for row in map(store.documents.find, filter(store.documents.has, documents)):
                path = row.path if row.path != "-" else row.id  # several documents may come from standard input
                yield BatchItem(DocumentJob(row.id, path, row.bytes), row.name, row.id, "ready")


def _named(paths: str, ignored: IgnoredFiles) -> list[BatchItem]:
    """Returns the files at ``paths`` as items, named relative to their deepest common folder."""
    sources = [absolute_path(line) for line in paths.splitlines() if line.strip()]
    jobs = plan_jobs(sources, bytes, ignored)
    folder = os.path.commonpath([Path(job.path).parent for job in jobs]) if jobs else ""
    return [BatchItem(job, str(Path(job.path).relative_to(folder))) for job in jobs]


def _task(length: str, style: str, language: str, refine: bool, questions: str) -> SummaryTask:
    """Returns the task. Questions replace the summary and its options. Raises UsageError."""
    given = tuple(line.strip() for line in questions.splitlines() if line.strip())
    if given:
        return SummaryTask(questions=given)
    return SummaryTask(str(length).strip(), style, " ".join(language.split()), refine)
