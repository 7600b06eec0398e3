"""The library page: documents come in, are listed, prepared, pinned, deleted, exported, imported and searched."""

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from localctx.engine.events import Done, Note, Planned, Progress
from localctx.errors import Cancelled, TooLong, format_bytes
from localctx.library.search import SearchResult
from localctx.serving.worker import Queued, SessionJob
from localctx.store.bundle import export_document, open_bundle
from localctx.ui import library_table, render
from localctx.ui.add_documents import AddingPanel
from localctx.ui.chat_page import ChatPage
from localctx.ui.job_events import follow, in_words, picture, pictures
from localctx.ui.window import AppWindow, tab_of

if TYPE_CHECKING:
    from localctx.session import Session

TOP = 10  # passages shown
CHOOSE = "Choose documents in the table first."
_TICKED = "[...document.querySelectorAll('#documents .lc-pick:checked')].map(box => box.value).join(' ')"
_TICKS = f"() => [{_TICKED}]"
_WORDS = f"(words, only, _) => [words, only, {_TICKED}]"
_BOXES = """
const ticked = new Set()
const picks = () => [...element.querySelectorAll('.lc-pick')]
element.addEventListener('change', event => {
    if (event.target.matches('.lc-all')) picks().forEach(box => { box.checked = event.target.checked })
    picks().forEach(box => box.checked ? ticked.add(box.value) : ticked.delete(box.value))
})
watch('value', () => {
    const shown = new Set(picks().map(box => box.value))
    ticked.forEach(document => shown.has(document) || ticked.delete(document))
    picks().forEach(box => { box.checked = ticked.has(box.value) })
    element.querySelectorAll('.lc-all').forEach(box => { box.checked = false })
})
"""  # a table that is drawn anew goes into the rows there are, where ticks stay at their place: they go by the document

Updates = dict[Any, Any]


class LibraryPage:
    """The page, built inside a gr.Blocks; questions are asked on the ``chat`` page, among the ``tabs``.

    What is ticked in the table is known to the browser alone: each action brings it along, and a table that was asked
    for before something was ticked does not untick it.
    """

    def __init__(self, window: AppWindow, tabs: gr.Tabs, chat: ChatPage) -> None:
        self._window, self._tabs, self._chat = window, tabs, chat
        self._adding = AddingPanel(window)

    def build(self) -> None:
        """Beside each other: where documents come in, and the documents there are."""
        with gr.Row(equal_height=False):
            with gr.Column(scale=2, min_width=300):
                self._adding.build()
                self.file = gr.UploadButton("Import a prepared document (.lctx)", size="sm", elem_id="import")
            with gr.Column(scale=5, min_width=300):
                self._build_documents()
                self._build_search()

    def _build_documents(self) -> None:
        self.ticked = gr.Textbox("", visible=False)
        self.filter = gr.Textbox("", label="Documents", placeholder="part of a name", elem_id="filter", max_lines=1)
        self.documents = gr.HTML("", elem_id="documents", js_on_load=_BOXES)
        with gr.Row():
            small: dict[str, Any] = {"size": "sm", "min_width": 80}
            self.ask = gr.Button("Ask about it", variant="primary", elem_id="ask-about", **small)
            self.prepare = gr.Button("Prepare", elem_id="prepare", **small)
            self.pin, self.unpin = gr.Button("Pin", **small), gr.Button("Unpin", **small)
            self.export = gr.Button("Export", **small)
            self.remove = gr.Button("Delete", variant="stop", elem_id="delete", **small)
        self.status = gr.HTML("", elem_id="library-status")
        with gr.Row(visible=False) as self.sure:
            self.doomed = gr.Textbox("", visible=False)
            self.yes = gr.Button("Delete them", variant="stop", size="sm", elem_id="delete-yes")
            self.no = gr.Button("Keep them", size="sm")
        self.cancel = gr.Button("Cancel", size="sm", visible=False, elem_id="cancel-preparing")
        self.exported = gr.File(label="Exported", file_count="multiple", visible=False, interactive=False)

    def _build_search(self) -> None:
        self.words = gr.Textbox(
            "",
            label="Search in the documents",
            placeholder="words, or a question",
            elem_id="words",
            max_lines=1,
            submit_btn="Search",
        )
        self.only = gr.Checkbox(label="Only in the documents chosen above", elem_id="only")
        self.hits = gr.HTML("", elem_id="hits")

    def wire(self, page: gr.Blocks, tab: gr.Tab) -> None:
        """Connect what was built with what it does; ``tab`` is where it is."""
        private: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        ticked, slow = private | {"js": _TICKS}, private | {"concurrency_limit": None}  # the desks say whose turn it is
        told = [self.status, self.sure, self.doomed, self.cancel]
        self._adding.wire(self._refresh)
        for event in (page.load, tab.select, self.filter.change):
            event(**self._listing)
        self._refresh(self.prepare.click(self._prepare, self.ticked, told, **slow, js=_TICKS))
        self._refresh(self.pin.click(self._told(self._pinner(True)), self.ticked, told, **ticked))
        self._refresh(self.unpin.click(self._told(self._pinner(False)), self.ticked, told, **ticked))
        self.export.click(self._told(self._export), self.ticked, [*told, self.exported], **ticked)
        self.remove.click(self._told(self._doom), self.ticked, told, **ticked)
        self.no.click(lambda: self._tell(""), None, told, **private)
        self._refresh(self.yes.click(self._told(self._delete), self.doomed, told, **private))
        self._refresh(self.file.upload(self._import, self.file, told, **slow))
        self.words.submit(self._search, [self.words, self.only, self.ticked], self.hits, js=_WORDS, **slow)
        self.ask.click(self._ask, self.ticked, [self._tabs, self.status, *self._chat.everything], **ticked)
        self.cancel.click(self._stop, None, None, queue=False, api_visibility="private")
        page.unload(self._leave)

    @property
    def _listing(self) -> dict[str, Any]:
        """The event after which the table is as the library is."""
        private: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        return {"fn": self._list, "inputs": self.filter, "outputs": self.documents, **private}

    def _refresh(self, event: Any) -> None:
        event.then(**self._listing)

    def _list(self, filtered: str) -> str:
        with self._window.store() as store:
            return library_table.documents(store, filtered)

    # What is done with documents

    def _prepare(self, ticked: str, request: gr.Request) -> Iterator[Updates]:
        """Pictures of documents being read with the model, one after the other."""
        lines: list[str] = [] if ticked else [render.note(CHOOSE)]
        now = ""

        def hear(event: Any) -> None:
            nonlocal now
            match event:
                case Queued() | Planned() | Progress():
                    now = picture(event) or now
                case Note():
                    lines.append(render.note(event.text))
                case Done():
                    now = ""
                    lines.append(render.note(_prepared(event.report.to_json()), "done"))
                    lines.extend([render.note(event.failed, "error")] if event.failed else [])

        yield self._tell("".join(lines)) | {self.cancel: gr.update(visible=bool(ticked))}
        for document in ticked.split():
            try:
                job: SessionJob = lambda session, d=document: session.workflows.questions.prepare(d)  # type: ignore[misc]  # noqa: E731
                for _ in follow(self._window.ask_promptly(tab_of(request, "library"), job), hear):
                    yield {self.status: "".join(lines) + now}
            except Cancelled:
                lines.append(render.note("stopped; what was read stays"))
                break
            except Exception as e:
                lines.append(render.note(in_words(e), "error"))
        yield self._tell("".join(lines))

    def _pinner(self, pinned: bool) -> Callable[[str], Updates]:
        def pin(ticked: str) -> Updates:
            with self._window.store() as store:
                for document in filter(store.documents.has, ticked.split()):
                    store.documents.pin(document, pinned)
            said = "What is kept of them is never given up." if pinned else "What is kept of them may be given up."
            return self._tell(render.note(said if ticked else CHOOSE, "done"))

        return pin

    def _export(self, ticked: str) -> Updates:
        """Files to be saved; they are forgotten as uploads are."""
        files, lines = list[str](), list[str]()
        with self._window.store() as store:
            for document in filter(store.documents.has, ticked.split()):
                row = store.documents.find(document)
                file = self._window.file(f"{row.name}.lctx")
                nbytes, pages = export_document(store, row, file)
                files.append(str(file))
                lines.append(f"{row.name}: {format_bytes(nbytes)}" + ("" if pages else "; no pages are kept of it"))
        said = "".join(render.note(line, "done") for line in lines) or render.note(CHOOSE)
        return self._tell(said) | {self.exported: gr.update(value=files or None, visible=bool(files))}

    def _doom(self, ticked: str) -> Updates:
        """Ask before anything is deleted."""
        with self._window.store() as store:
            names = [d.name for d in store.documents.all() if d.id in ticked.split()]
        if not names:
            return self._tell(render.note(CHOOSE))
        said = f"Delete {', '.join(names)}, with all that is kept of it? Files of yours are not touched."
        return self._tell(render.note(said)) | {self.sure: gr.update(visible=True), self.doomed: ticked}

    def _delete(self, doomed: str) -> Updates:
        freed = 0
        with self._window.store() as store:
            for document in filter(store.documents.has, doomed.split()):
                freed += store.remove_document(document)
        return self._tell(render.note(f"deleted, {format_bytes(freed)} freed", "done"))

    def _import(self, file: str, request: gr.Request) -> Iterator[Updates]:
        """Pictures of an exported document being taken in, with the pages that the model in use made."""
        turn = self._window.ask(tab_of(request, "import"), lambda session: _taken_in(session, Path(file)))
        for line in pictures(turn):
            yield self._tell(line.replace(render.escape(file), render.escape(Path(file).name)))

    def _ask(self, ticked: str) -> Updates:
        if not ticked:
            return {self.status: render.note(CHOOSE)}
        return self._chat.begin_about(ticked.split()) | {self._tabs: gr.update(selected="chat"), self.status: ""}

    def _search(self, words: str, only: bool, ticked: str, request: gr.Request) -> Iterator[str]:
        """Pictures of a search: what is indexed for it, then the passages."""
        found, below, bar = list[SearchResult](), list[str](), ""

        def job(session: "Session") -> Generator[Any, None, None]:
            with session.workflows.library() as shelving:
                result, why = shelving.search(words, ticked.split() if only else None, TOP)
            yield result
            if why:
                yield Note(why)

        def hear(event: Any) -> None:
            nonlocal bar
            match event:
                case Queued() | Progress():
                    bar = picture(event) or bar
                case SearchResult():
                    found.append(event)
                case Note():
                    below.append(render.note(event.text))

        try:
            turn = self._window.ask_promptly(tab_of(request, "search"), job, self._window.shelver)
            for _ in follow(turn, hear):
                yield bar
            with self._window.store() as store:
                yield library_table.hits(found[0], words, store.documents.text) + "".join(below)
        except Exception as e:
            yield render.note(in_words(e), "error")

    def _tell(self, said: str) -> Updates:
        """What became of an action, with nothing left to be asked or stopped."""
        return {
            self.status: said,
            self.sure: gr.update(visible=False),
            self.doomed: "",
            self.cancel: gr.update(visible=False),
        }

    def _told(self, act: Callable[[str], Updates]) -> Callable[[str], Updates]:
        """An action on documents, or why it failed."""

        def run(documents: str) -> Updates:
            try:
                return act(documents)
            except Exception as e:
                return self._tell(render.note(in_words(e), "error"))

        return run

    def _stop(self, request: gr.Request) -> None:
        self._window.stop(tab_of(request, "library"))

    def _leave(self, request: gr.Request) -> None:
        self._stop(request)
        self._adding.stop(request)


def _taken_in(session: "Session", file: Path) -> Generator[Note, None, None]:
    """Take an exported document in; its text alone where no page of it is of use here."""
    bundle, why = open_bundle(file), ""
    with session.workflows.library() as shelving:
        try:
            usable = shelving.usable_caches(bundle)
        except TooLong as e:
            usable, why = [], e.problem
        pages = shelving.import_bundle(bundle, usable)
    if bundle.caches and not usable:
        why = why or f"its pages were made by {bundle.made_by}, not by this {session.settings.model}"
        yield Note(f"{bundle.row.name} imported without its pages: {why}. Prepare it to read it with this model.")
    else:
        yield Note(f"{bundle.row.name} imported, {pages:,} pages kept")


def _prepared(r: dict[str, Any]) -> str:
    tokens, kept = r["tokens"], r["kept"]
    said = f"{r['name']}: {kept['tokens']:,} of {tokens['prompt']:,} tokens kept, {tokens['reused']:,} were already"
    return f"{said}, {format_bytes(kept['bytes'])}, {r['seconds']['prefill']:.1f} s"
