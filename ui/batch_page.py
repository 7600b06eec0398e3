"""The batch page: many documents summarized, or asked the same; how far that is, and what was made of each."""

import os
import threading
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from localctx.batch.jobs import DocumentJob, plan_jobs, shown
from localctx.batch.markdown import SummaryTemplate
from localctx.batch.outputs import file_name
from localctx.errors import DocumentError, UserError
from localctx.ui import batch_table, render
from localctx.ui.add_documents import PassedOver, place_of
from localctx.ui.batch_runs import BatchItem
from localctx.ui.window import AppWindow, tab_of
from localctx.workflows.summary_task import LENGTHS, STYLES, SummaryTask

TAB = "Batch"
EVERY = 0.5  # seconds between two looks at a batch
_OPEN = """
element.addEventListener('click', event => {
    const row = event.target.closest('.lc-open')
    if (row) trigger('select', { index: Number(row.dataset.row), value: row.innerText })
})
"""
_CLICK = "() => document.querySelector('#batch-file').click()"

Updates = dict[Any, Any]


@dataclass
class _Watch:
    """Somebody shows a tab the batch: the documents with ``filtered`` in their name or state."""

    filtered: str


class BatchPage:
    """The page, built inside a gr.Blocks. It looks at ``AppWindow.batches``, which go on without it."""

    def __init__(self, window: AppWindow) -> None:
        self._window, self._batches = window, window.batches
        self._watching = dict[str, _Watch]()  # by tab
        self._lock = threading.Lock()

    def build(self) -> None:
        """Beside each other: which documents and what of them, and how far they are."""
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
            info="one a line",
            lines=2,
            elem_id="batch-paths",
        )
        self.library = gr.Dropdown(
            [], value=[], multiselect=True, label="Or choose from the library", elem_id="batch-library"
        )

    def _build_task(self) -> None:
        with gr.Accordion("How", open=False, elem_id="batch-how"):
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
            info="one a line",
            lines=2,
            elem_id="batch-questions",
        )
        self.begin = gr.Button("Begin", variant="primary", elem_id="batch-begin")
        self.said = gr.HTML("", elem_id="batch-said")

    def _build_documents(self) -> None:
        self.progress = gr.HTML("", elem_id="batch-progress")
        with gr.Row():
            small: dict[str, Any] = {"size": "sm", "min_width": 120, "scale": 0, "interactive": False}
            self.pause = gr.Button("Pause", elem_id="batch-pause", **small)
            self.resume = gr.Button("Go on", elem_id="batch-resume", variant="primary", **small)
            self.retry = gr.Button("Try failed again", elem_id="batch-retry", **small)
            self.save = gr.Button("Download all", elem_id="batch-save", **small)
            self.file = gr.DownloadButton("The file", elem_id="batch-file", visible="hidden")
        self.filter = gr.Textbox(
            "", label="Documents", placeholder="part of a name, or a state", elem_id="batch-filter", max_lines=1
        )
        self.table = gr.HTML("", elem_id="batch-table", js_on_load=_OPEN)
        self.result = gr.HTML("", elem_id="batch-result")

    def wire(self, page: gr.Blocks, tabs: gr.Tabs) -> None:
        """Connect what was built with what it does."""
        quick: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        live = [self.progress, self.pause, self.resume, self.retry, self.save, self.table]
        watch = quick | {"fn": self._watch, "inputs": [self.filter], "outputs": live, "concurrency_limit": None}
        chosen, how = [self.drop, self.paths, self.library], [self.length, self.style, self.language, self.refine]
        begin = self.begin.click(
            self._begin, [*chosen, *how, self.questions], [*chosen, self.said, self.result], **quick
        )
        pause = self.pause.click(self._batches.pause, None, None, **quick)
        resume = self.resume.click(self._batches.resume, None, None, **quick)
        retry = self.retry.click(self._batches.retry, None, None, **quick)
        for event in (begin.then, pause.then, resume.then, retry.then, self.filter.change):
            event(**watch)
        tabs.select(self._turned, [self.filter], [*live, self.library], concurrency_limit=None, **quick)
        page.unload(self._leave)
        self.save.click(self._zip, None, self.file, **quick).then(None, js=_CLICK)
        self.table.select(self._open, None, [self.result], **quick)

    # What is looked at

    def _turned(self, filtered: str, at: gr.SelectData, request: gr.Request) -> Iterator[Updates]:
        self._leave(request)
        yield gr.skip()
        if at.value == TAB:
            yield self._look(filtered) | {self.library: gr.update(choices=self._window.documents())}
            yield from self._watch(filtered, request)

    def _watch(self, filtered: str, request: gr.Request) -> Iterator[Updates]:
        """The batch as it is and, while something happens in it, as it goes on, until this tab looks elsewhere.

        One stream for each tab, so that nothing older comes after something newer: who watches already hears of another
        filter.
        """
        yield gr.skip()  # what yields nothing empties all that it might have changed
        tab, seen = tab_of(request), None
        with self._lock:
            if tab in self._watching:
                self._watching[tab].filtered = filtered
                return
            me = self._watching[tab] = _Watch(filtered)
        while self._watching.get(tab) is me:
            now = me.filtered, self._batches.version
            if now != seen:
                seen = now
                yield self._look(me.filtered)
            elif self._ended(tab, me, seen):
                return
            time.sleep(EVERY)

    def _ended(self, tab: str, me: _Watch, seen: tuple[str, int]) -> bool:
        """Stop watching, where nothing has happened since and nothing happens."""
        with self._lock:
            over = not self._batches.busy and seen == (me.filtered, self._batches.version)
            if over and self._watching.get(tab) is me:
                del self._watching[tab]
            return over

    def _leave(self, request: gr.Request) -> None:
        with self._lock:
            self._watching.pop(tab_of(request), None)

    def _look(self, filtered: str) -> Updates:
        """The batch as it is now."""
        batches = self._batches
        states = {item.state for item in batches.items}
        return {
            self.progress: batch_table.progress(batches),
            self.pause: gr.update(interactive=batches.running),
            self.resume: gr.update(interactive=not batches.running and not states <= {*batch_table.OVER}),
            self.retry: gr.update(interactive=not batches.running and "failed" in states),
            self.save: gr.update(interactive=bool(states & {"done", "skipped"})),
            self.table: batch_table.table(batches.items, filtered),
        }

    def _open(self, at: gr.SelectData) -> str:
        """What was made of the document whose row was chosen."""
        items = self._batches.items
        if not isinstance(at.index, int) or not 0 <= at.index < len(items):
            return ""  # of a batch that is gone
        with self._window.store() as store:
            has, text = store.documents.has, store.documents.text
            return batch_table.result(items[at.index], lambda d: text(d) if has(d) else None)

    def _zip(self) -> str:
        """All there is so far as one file of Markdown files, as ``localctx summarize -o`` writes them."""
        file, page = self._window.file("summaries.zip"), SummaryTemplate()
        entries = {file_name(item.job.path): item.entry for item in self._batches.items if item.entry}
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, entry in entries.items():
                packed.writestr(name, page.render(entry))
        return str(file)

    # What is begun

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
        yield {self.said: render.note("looking for documents ...")}
        passed_over = PassedOver()
        try:
            task = _task(length, style, language, refine, questions)
            items = [*self._dropped(files or []), *_named(paths, passed_over), *self._chosen(documents)]
            if not items:
                raise DocumentError("there is no document in that", "drop some, or name a folder that holds some")
            self._batches.begin(items, task)
        except UserError as e:
            yield {self.said: render.note(str(e), "error")}
            return
        yield {
            self.drop: None,
            self.paths: "",
            self.library: [],
            self.said: "".join(map(render.note, passed_over.lines)),
            self.result: "",
        }

    def _dropped(self, files: Sequence[str]) -> list[BatchItem]:
        """Uploads: where they lie says nothing, and is nobody's business."""
        uploads = self._window.uploads.resolve()
        paths = [Path(file).resolve() for file in files]
        return [BatchItem(DocumentJob(str(p), str(p.relative_to(uploads)), p.stat().st_size), p.name) for p in paths]

    def _chosen(self, documents: Sequence[str]) -> Iterator[BatchItem]:
        with self._window.store() as store:
            for row in map(store.documents.find, filter(store.documents.has, documents)):
                path = row.path if row.path != "-" else row.id  # of standard input there may be several
                yield BatchItem(DocumentJob(row.id, path, row.bytes), row.name, row.id, "ready")


def _named(paths: str, passed_over: PassedOver) -> list[BatchItem]:
    """Files of this machine, by their names from the folder on that all of them are in."""
    places = [place_of(line) for line in paths.splitlines() if line.strip()]
    jobs = plan_jobs(places, bytes, passed_over)
    folder = os.path.commonpath([Path(job.path).parent for job in jobs]) if jobs else ""
    return [BatchItem(job, shown(str(Path(job.path).relative_to(folder)))) for job in jobs]


def _task(length: str, style: str, language: str, refine: bool, questions: str) -> SummaryTask:
    """What is wanted; how long a summary is counts only where there is one. Raises UsageError."""
    asked = tuple(line.strip() for line in questions.splitlines() if line.strip())
    if asked:
        return SummaryTask(questions=asked)
    return SummaryTask(str(length).strip(), style, " ".join(language.split()), refine)
