"""Builds the library page, where documents are added, listed, read ahead, pinned, deleted, exported, imported and
searched.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from localctx.engine.events import Done, Note, Planned, Progress
from localctx.errors import Cancelled, format_bytes
from localctx.serving.worker import Queued, SessionJob
from localctx.store.bundle import export_document
from localctx.ui import render
from localctx.ui.chat.chat_page import ChatPage
from localctx.ui.everyday import in_everyday_words
from localctx.ui.job_events import error_text, progress_line, progress_lines, redraws
from localctx.ui.library import library_table
from localctx.ui.library.add_documents import AddingPanel
from localctx.ui.library.collections_panel import CHOOSE_FIRST, CollectionsPanel
from localctx.ui.library.search_panel import SearchPanel
from localctx.ui.library.summaries_panel import SummariesPanel
from localctx.ui.library.watched_folders import WatchedFoldersPanel
from localctx.ui.running.library_jobs import import_bundle, prepared_line
from localctx.ui.undo import RecentlyDeleted, UndoLine, restored_line
from localctx.ui.window import EVENT_OPTIONS, SLOW_EVENT_OPTIONS, SMALL, AppWindow, Updates, tab_id

TAB = "Library"
REFRESH_INTERVAL = 2.0  # seconds between two refreshes of the parts that change without a click
STAYS = "Your own files are not touched."
_TICKED = "[...document.querySelectorAll('#documents .lc-pick:checked')].map(box => box.value).join(' ')"
_TICKS = f"() => [{_TICKED}]"
_WITH_OPTIONS = f"(_, ...options) => [{_TICKED}, ...options]"
_BOXES = """
const ticked = new Set()
const picks = () => [...element.querySelectorAll('.lc-pick')]
const count = () => { document.querySelector('#selected [role=status]').textContent = `${ticked.size} selected` }
element.addEventListener('change', event => {
    if (event.target.matches('.lc-all')) picks().forEach(box => { box.checked = event.target.checked })
    picks().forEach(box => box.checked ? ticked.add(box.value) : ticked.delete(box.value))
    count()
})
watch('value', () => {
    const shown = new Set(picks().map(box => box.value))
    ticked.forEach(document => shown.has(document) || ticked.delete(document))
    picks().forEach(box => { box.checked = ticked.has(box.value) })
    element.querySelectorAll('.lc-all').forEach(box => { box.checked = false })
    count()
})
document.addEventListener('click', event => {  // what is deleted fades at once
    if (!event.target.closest('#delete')) return
    for (const box of picks().filter(box => box.checked)) box.closest('tr').classList.add('lc-leaving')
})
"""  # gradio updates table rows in place, so ticks are restored by document, not by row


class LibraryPage:
    """The library page, built inside a gr.Blocks. Questions about documents are asked on the ``chat`` page, which is
    one of the ``tabs``.

    Only the browser knows which documents are ticked: each action sends their ids, and a redrawn table keeps the ticks.
    """

    def __init__(self, window: AppWindow, tabs: gr.Tabs, chat: ChatPage) -> None:
        self._window, self._tabs, self._chat = window, tabs, chat
        self._adding, self.collections = AddingPanel(window), CollectionsPanel(window, _TICKED)
        self._watched, self._search = WatchedFoldersPanel(window), SearchPanel(window, _TICKED)
        self.summaries = SummariesPanel(window)
        self.undo, self.deleted = UndoLine("undo-document"), RecentlyDeleted(window)

    def build(self) -> None:
        """Build the search and the table of documents, and beside them the panel that adds documents."""
        with gr.Row(equal_height=False, elem_id="library-page"):
            with gr.Column(scale=5, min_width=300, elem_id="library-main"):
                self._search.build()
                self.summaries.build()
                self._build_documents()
                self.deleted.build()
            with gr.Column(scale=2, min_width=300, elem_id="library-side"):
                self._adding.build()
                self._watched.build()
                self.bundle = gr.UploadButton("Import an exported document (.lctx)", size="sm", elem_id="import")

        self.timer = gr.Timer(REFRESH_INTERVAL, active=False)  # the timer runs while this page is shown

    def _build_documents(self) -> None:
        self.ticked = gr.Textbox("", visible=False)
        with gr.Row():
            self.filter = gr.Textbox("", label="Documents", placeholder="Filter", elem_id="filter", max_lines=1)
            self.collections.build_choice()
        self.collections.build_tools()
        self.documents = gr.HTML("", elem_id="documents", js_on_load=_BOXES)
        with gr.Column(elem_id="library-actions"):  # style.css shows this row while documents are ticked
            with gr.Row():
                gr.HTML('<span role="status"></span>', elem_id="selected")
                self.ask = gr.Button("Ask", variant="primary", elem_id="ask-about", **SMALL)
                self.summarize = gr.Button("Summarize", elem_id="summarize", **SMALL)
                self.prepare = gr.Button("Read now", elem_id="prepare", **SMALL)
                self.pin = gr.Button("Pin", elem_id="pin", **SMALL)
                self.unpin = gr.Button("Unpin", elem_id="unpin", **SMALL)
                self.export = gr.Button("Export", **SMALL)
                self.remove = gr.Button("Delete", variant="stop", elem_id="delete", **SMALL)
            self.summaries.build_options()
            self.collections.build_adding()
        self.status = gr.HTML("", elem_id="library-status")
        self.undo.build()
        self.cancel = gr.Button("Cancel", size="sm", visible=False, elem_id="cancel-preparing")
        self.exported = gr.File(label="Exported", file_count="multiple", visible=False, interactive=False)

    def wire(self, page: gr.Blocks, tab: gr.Tab) -> None:
        """Connect the components with their event handlers. ``tab`` is the tab of this page."""
        ticked = EVENT_OPTIONS | {"js": _TICKS}
        outputs = [self.status, *self.undo.outputs, self.cancel]
        self._adding.wire(self._refresh)
        self._watched.wire(self._refresh)
        self._search.wire(self.ticked)
        live = [*self._watched.outputs, *self._search.outputs, *self.summaries.outputs]
        self._tabs.select(self._tab_selected, None, self.timer, **EVENT_OPTIONS)
        self.timer.tick(self._show_news, self.summaries.shown, live, **EVENT_OPTIONS, queue=False)
        for event in (page.load, tab.select, self.filter.change):
            event(**self._listing)
        collections = self.collections
        tab.select(collections.choices, collections.shown, collections.choosing, **EVENT_OPTIONS)
        collections.wire(self.ticked, self._refresh, self._wire_asking)
        self.summaries.wire(self.summarize, self.ticked, _WITH_OPTIONS, self._chat.sidebar.chats, collections.shown)
        self._refresh(self.prepare.click(self._prepare, self.ticked, outputs, **SLOW_EVENT_OPTIONS, js=_TICKS))
        self._refresh(self.pin.click(self._guarded(partial(self._pin, pinned=True)), self.ticked, outputs, **ticked))
        self._refresh(self.unpin.click(self._guarded(partial(self._pin, pinned=False)), self.ticked, outputs, **ticked))
        self.export.click(self._guarded(self._export), self.ticked, [*outputs, self.exported], **ticked)
        deleting = self.remove.click(self._guarded(self._delete), self.ticked, outputs, **ticked)
        deleting.then(self.deleted.listed, None, self.deleted.chosen, **EVENT_OPTIONS)
        self._refresh(deleting)
        self._refresh(
            self.undo.button.click(self._guarded(self._restore), self.undo.deletions, outputs, **EVENT_OPTIONS)
        )
        self.deleted.wire(tab, self._refresh_all)
        self._refresh(self.bundle.upload(self._import, self.bundle, outputs, **SLOW_EVENT_OPTIONS))
        self.ask.click(self._ask, self.ticked, [self._tabs, self.status, *self._chat.everything], **ticked)
        self.cancel.click(self._stop, None, None, queue=False, api_visibility="private")
        page.unload(self._leave)

    def _tab_selected(self, selected: gr.SelectData) -> Any:
        return gr.Timer(active=selected.value == TAB)

    def _show_news(self, shown: int) -> Updates:
        """Returns updates of the parts that change without a click: watched folders, the search index and summaries."""
        return self._watched.show() | self._search.show() | self.summaries.show_if_changed(shown)

    @property
    def _listing(self) -> dict[str, Any]:
        """The arguments for an event that redraws the table of documents."""
        return {
            "fn": self._list,
            "inputs": [self.filter, self.collections.shown],
            "outputs": self.documents,
            **EVENT_OPTIONS,
        }

    def _refresh(self, event: Any) -> None:
        event.then(**self._listing)

    def _refresh_all(self, event: Any) -> None:
        self._refresh(event)
        event.then(**self._chat.sidebar.listing(self._chat.chat))

    def _list(self, text: str, collection: str) -> str:
        with self._window.store() as store:
            model = self._window.settings.model
            return library_table.documents(store, model, text, int(collection) if collection else None)

    def _wire_asking(self, button: gr.Button, collection: gr.Dropdown) -> None:
        outputs = [self._tabs, *self._chat.everything]
        button.click(self._ask_collection, [collection], outputs, **EVENT_OPTIONS)

    def _ask_collection(self, collection: str) -> Updates:
        chat = self._chat.new_chat_about([]) | self._chat.about.choose_collection(int(collection))
        return chat | {self._tabs: gr.update(selected="chat")}

    # Actions on documents

    def _prepare(self, ticked: str, request: gr.Request) -> Iterator[Updates]:
        """Prefill documents one by one and store their pages. Yields progress."""
        lines: list[str] = [] if ticked else [render.note(CHOOSE_FIRST)]
        current = ""

        def handle(event: Any) -> None:
            nonlocal current
            match event:
                case Queued() | Planned() | Progress():
                    current = progress_line(event) or current
                case Note():
                    lines.append(render.note(in_everyday_words(event.text)))
                case Done():
                    current = ""
                    lines.append(render.note(prepared_line(event.report.to_json()), "done"))
                    lines.extend([render.note(in_everyday_words(event.failed), "error")] if event.failed else [])

        yield self._result("".join(lines)) | {self.cancel: gr.update(visible=bool(ticked))}
        for document in ticked.split():
            try:
                job: SessionJob = lambda session, d=document: session.workflows.questions.prepare(d)  # type: ignore[misc]  # noqa: E731
                for _ in redraws(self._window.run_promptly(tab_id(request, "library"), job), handle):
                    yield {self.status: "".join(lines) + current}
            except Cancelled:
                lines.append(render.note("Stopped; what was read stays"))
                break
            except Exception as e:
                lines.append(render.note(error_text(e), "error"))
        yield self._result("".join(lines))

    def _pin(self, ticked: str, pinned: bool) -> Updates:
        with self._window.store() as store:
            for document in filter(store.documents.has, ticked.split()):
                store.documents.pin(document, pinned)
        text = "Pinned: what was read of them is always kept." if pinned else "Unpinned."
        return self._result(render.note(text if ticked else CHOOSE_FIRST, "done"))

    def _export(self, ticked: str) -> Updates:
        """Write documents to files for download. The files are deleted together with the uploads."""
        files, lines = list[str](), list[str]()
        with self._window.store() as store:
            for document in filter(store.documents.has, ticked.split()):
                row = store.documents.find(document)
                file = self._window.download_path(f"{row.name}.lctx")
                nbytes, pages = export_document(store, row, file)
                files.append(str(file))
                lines.append(f"{row.name}: {format_bytes(nbytes)}" + ("" if pages else "; it was not read yet"))
        html = "".join(render.note(line, "done") for line in lines) or render.note(CHOOSE_FIRST)
        return self._result(html) | {self.exported: gr.update(value=files or None, visible=bool(files))}

    def _delete(self, ticked: str) -> Updates:
        with self._window.store() as store:
            documents = list(filter(store.documents.has, ticked.split()))
        if not documents:
            return self._result(render.note(CHOOSE_FIRST))
        return self._result("") | self.undo.show(self._window.delete("document", documents), STAYS)

    def _restore(self, deletions: str) -> Updates:
        with self._window.store() as store:
            return self._result(restored_line(store, list(map(int, deletions.split()))))

    def _import(self, file: str, request: gr.Request) -> Iterator[Updates]:
        """Import an exported document, with its pages if the current model can use them. Yields progress."""
        stream = self._window.submit(tab_id(request, "import"), lambda session: import_bundle(session, Path(file)))
        for line in progress_lines(stream):
            yield self._result(line.replace(render.escape(file), render.escape(Path(file).name)))

    def _ask(self, ticked: str) -> Updates:
        if not ticked:
            return {self.status: render.note(CHOOSE_FIRST)}
        return self._chat.new_chat_about(ticked.split()) | {self._tabs: gr.update(selected="chat"), self.status: ""}

    def _result(self, html: str) -> Updates:
        """Returns updates that show the result of an action and hide the undo line and the cancel button."""
        return {
            self.status: html,
            **self.undo.hidden,
            self.cancel: gr.update(visible=False),
        }

    def _guarded(self, action: Callable[[str], Updates]) -> Callable[[str], Updates]:
        """Wrap an action on documents so that its errors are shown."""

        def run(documents: str) -> Updates:
            try:
                return action(documents)
            except Exception as e:
                return self._result(render.note(error_text(e), "error"))

        return run

    def _stop(self, request: gr.Request) -> None:
        self._window.stop(tab_id(request, "library"))

    def _leave(self, request: gr.Request) -> None:
        self._stop(request)
        for panel in (self._search, self._adding):
            panel.stop(request)
        self._window.stop(tab_id(request, "import"))
