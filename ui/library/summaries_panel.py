"""Builds the part of the library page that summarizes ticked documents, or fills a table with answers from them."""

import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import gradio as gr

from localctx.batch.jobs import DocumentJob
from localctx.batch.markdown import SummaryTemplate
from localctx.batch.outputs import file_name
from localctx.batch.table.columns import TableColumn, parse_column
from localctx.batch.table.row_changes import RowChange
from localctx.errors import UserError
from localctx.ui import render
from localctx.ui.job_events import error_text
from localctx.ui.library import summary_cards
from localctx.ui.library.answer_table import news_html, table_html
from localctx.ui.running.batch_item import FINISHED, BatchItem
from localctx.ui.window import EVENT_OPTIONS, SMALL, AppWindow, Updates
from localctx.workflows.summary_task import LENGTHS, STYLES, SummaryTask

_COLUMNS = "supplier\nsigned (date)\nrent (money): How much is the rent?"
_CLICK_DOWNLOAD = "() => document.querySelector('#summaries-file').click()"
_SHOW_PAGE = "() => document.querySelector('#main-tabs [data-tab-id=library]').click()"
_IN_VIEW = "() => document.querySelector('#summaries').scrollIntoView({ block: 'start', behavior: 'smooth' })"
# the columns are folded, because they lie over the result; not if they must be corrected
_FOLD = f"""() => {{
    if (document.querySelector('#summaries-progress .lc-error')) return
    document.querySelector('#table-options > button.open')?.click();
    ({_IN_VIEW})()
}}"""

BatchTask = tuple[SummaryTask, Sequence[TableColumn]]
"""The task of a batch, and the columns of its table (none for summaries)."""


class SummariesPanel:
    """The options, the progress, and the cards or the table, built inside a gr.Blocks.

    It shows ``AppWindow.batches``, which runs even if no page is open.
    """

    def __init__(self, window: AppWindow) -> None:
        self._window, self._batches = window, window.batches

    def build(self) -> None:
        """Build the progress, its buttons and the cards. style.css hides them while there is nothing to show."""
        self.shown = gr.State(-1)  # version of the batch that this tab shows
        with gr.Column(elem_id="summaries"):
            with gr.Row(elem_id="summaries-head"):
                self.progress = gr.HTML("", elem_id="summaries-progress")
                self.kept = gr.Checkbox(
                    label="Add new documents", elem_id="table-kept", visible=False, min_width=80, scale=0
                )
                hidden = SMALL | {"visible": False}
                self.pause = gr.Button("Pause", elem_id="summaries-pause", **hidden)
                self.again = gr.Button("Try again", elem_id="summaries-again", **hidden)
                self.save = gr.Button("Export all", elem_id="summaries-save", **hidden)
                self.close = gr.Button("Close", elem_id="summaries-close", **hidden)
            with gr.Row(elem_id="summaries-news", visible=False) as self.news_row:
                self.changes, self.news_list = gr.State(()), gr.HTML("")  # the changes that this tab shows
                self.seen = gr.Button("Seen", elem_id="summaries-seen", **SMALL)
            self.cards = gr.HTML("", elem_id="summaries-cards")
        self.file = gr.DownloadButton("The file", elem_id="summaries-file", visible="hidden")

    def build_options(self) -> None:
        """Build the closed options of a summary, and those of a table."""
        with gr.Accordion("Length and style of summaries", open=False, elem_id="summary-options"), gr.Row():
            self.length = gr.Dropdown(
                list(LENGTHS),
                value="medium",
                allow_custom_value=True,
                label="Length",
                info="or a number of words",
                elem_id="summary-length",
            )
            self.style = gr.Dropdown(list(STYLES), value="prose", label="Style", info="of what is written")
            self.language = gr.Textbox("", label="Language", info="if not the document's own", max_lines=1)
        with gr.Accordion("Make a table", open=False, elem_id="table-options"):
            self.columns = gr.Textbox(
                "",
                label="Columns",
                info="One column per line, for example “Rent” or “Rent: how much is it?”",
                placeholder=_COLUMNS,
                lines=3,
                elem_id="table-columns",
            )
            self.keep = gr.Checkbox(
                label="Add new documents automatically",
                info="All documents of the library, or of the collection that is shown",
                elem_id="table-keep",
            )
            self.make = gr.Button("Fill the table", size="sm", elem_id="table-make")

    @property
    def outputs(self) -> list[Any]:
        """The components that ``show`` updates."""
        buttons = [self.kept, self.pause, self.again, self.save, self.close]
        return [self.shown, self.progress, *buttons, self.news_row, self.news_list, self.changes, self.cards]

    def wire(self, begin: gr.Button, ticked: gr.Textbox, ticks: str, chats: gr.HTML, collection: gr.Dropdown) -> None:
        """Connect the event handlers.

        The button ``begin`` summarizes the ``ticked`` documents; the JavaScript function ``ticks`` returns their ids.
        The menus in the list of ``chats`` summarize the documents of a chat. ``collection`` is the one that is shown.
        """
        outputs = self.outputs
        options = [self.length, self.style, self.language]
        begin.click(self._begin, [ticked, *options], outputs, js=ticks, **EVENT_OPTIONS).then(None, js=_IN_VIEW)
        table = [ticked, self.columns, self.keep, collection]
        self.make.click(self._fill, table, outputs, js=ticks, **EVENT_OPTIONS).then(None, js=_FOLD)
        self.kept.input(self._keep, [self.kept, collection], outputs, **EVENT_OPTIONS)
        self.seen.click(self._note_seen, self.changes, outputs, **EVENT_OPTIONS)
        chats.apply(self._summarize_chat, None, outputs, **EVENT_OPTIONS).then(None, js=_SHOW_PAGE)
        changes = ((self.again, self._batches.retry), (self.close, self._close), (self.pause, self._pause_or_resume))
        for button, change in changes:
            button.click(partial(self._guarded, change), None, outputs, **EVENT_OPTIONS)
        self.save.click(self._export, None, self.file, **EVENT_OPTIONS).then(None, js=_CLICK_DOWNLOAD)

    def _items(self, documents: Sequence[str]) -> Iterator[BatchItem]:
        with self._window.store() as store:
            for row in map(store.documents.find, filter(store.documents.has, documents)):
                yield BatchItem(DocumentJob.stored(row), row.name)

    def _begin(self, ticked: str, length: str, style: str, language: str) -> Updates:
        summary = lambda: (SummaryTask(str(length).strip(), style, " ".join(language.split())), ())  # noqa: E731
        return self._run(ticked.split(), summary)

    def _fill(self, ticked: str, given: str, keep: bool, collection: str) -> Updates:
        from localctx.batch.table.fill import questions_of

        def table() -> BatchTask:
            columns = [parse_column(line) for line in given.splitlines() if line.strip()]
            return questions_of(columns), columns

        if keep:
            return self._guarded(lambda: self._window.table.turn_on(table()[1], int(collection or 0)))
        return self._run(ticked.split(), table)

    def _keep(self, keep: bool, collection: str) -> Updates:
        """Keep the table that is shown current, or stop that."""
        table, columns = self._window.table, self._batches.columns
        return self._guarded(lambda: table.turn_on(columns, int(collection or 0)) if keep else table.turn_off())

    def _note_seen(self, changes: Sequence[RowChange]) -> Updates:
        return self._guarded(lambda: self._window.table.note_seen(changes))

    def _close(self) -> None:
        if self._batches.kept:
            self._window.table.turn_off()
        self._batches.forget()

    def _summarize_chat(self, chosen: gr.SelectData) -> Updates:
        """Summarize the documents of the chat whose menu was used."""
        with self._window.store() as store:
            chat = store.chats.stored(str(chosen.value).split()[-1])
        documents = [d.id for d in chat.documents] if chat else []
        return self._run(documents, lambda: (SummaryTask(), ()))

    def _run(self, documents: Sequence[str], task: Callable[[], BatchTask]) -> Updates:
        """Begin ``task`` on these documents (ids), and show it or the error."""
        return self._guarded(lambda: self._batches.begin(list(self._items(documents)), *task()))

    def _guarded(self, action: Callable[[], None]) -> Updates:
        """Run ``action``, and show the batch and the error of the action."""
        try:
            action()
        except UserError as e:
            shown = self.show()
            return shown | {self.progress: shown[self.progress] + render.note(error_text(e), "error")}
        return self.show()

    def show(self) -> Updates:
        """Returns updates that show the batch."""
        batches = self._batches
        version, states = batches.version, {item.state for item in batches.items}
        with self._window.store() as store:
            has, text = store.documents.has, store.documents.text
            rows = batches.rows(store) if batches.columns else {}
            changes = self._window.table.unseen_changes(store, rows)
            if batches.columns and batches.items:
                cards = table_html(batches.columns, batches.items, rows)
            else:
                cards = summary_cards.cards(batches.items, lambda d: text(d) if has(d) else None)
        unfinished, visible = not states <= {*FINISHED}, lambda shown: gr.update(visible=bool(shown))
        closes = bool(states or batches.kept) and not batches.running
        go_on = "Resume" if batches.paused else "Read now"
        return {
            self.shown: version,
            self.progress: summary_cards.progress(batches, len(changes)),
            self.kept: gr.update(value=bool(batches.kept), visible=bool(batches.columns)),
            self.pause: gr.update(value="Pause" if batches.running else go_on, visible=unfinished),
            self.again: visible("failed" in states and not batches.running),
            self.save: visible(states & {"done", "skipped"}),
            self.close: gr.update(value="Stop and close" if batches.kept else "Close", visible=closes),
            self.news_row: visible(changes),
            self.news_list: news_html(changes, batches.items),
            self.changes: changes,
            self.cards: cards,
        }

    def show_if_changed(self, shown: int) -> Updates:
        """Returns the updates of ``show`` if the batch is not at the version ``shown`` any more, else {}."""
        return self.show() if shown != self._batches.version else {}

    def _pause_or_resume(self) -> None:
        if self._batches.running:
            self._batches.pause()
        else:
            self._batches.resume_all()

    def _export(self) -> str:
        return self._workbook() if self._batches.columns else self._zip()

    def _workbook(self) -> str:
        """Write the table so far as a workbook, as ``localctx table -o`` writes it."""
        from localctx.batch.table.workbook import workbook

        file = self._window.download_path("table.xlsx")
        with self._window.store() as store:
            rows = list(self._batches.rows(store).values())
        file.write_bytes(workbook(self._batches.columns, rows))
        return str(file)

    def _zip(self) -> str:
        """Write the results so far as a zip of Markdown files, as ``localctx summarize -o`` writes them."""
        file, template = self._window.download_path("summaries.zip"), SummaryTemplate()
        entries = {file_name(item.job.path): item.entry for item in self._batches.items if item.entry}
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, entry in entries.items():
                archive.writestr(name, template.render(entry))
        return str(file)
