"""Builds the settings page, which writes the settings file that commands also read, and manages the data folder."""

import shutil
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from localctx.engine.events import Note, Progress
from localctx.errors import UserError, format_bytes
from localctx.models.catalog import load_catalog
from localctx.models.hub.resolve import list_installed, remove
from localctx.settings import overrides, variable
from localctx.ui import render
from localctx.ui.everyday import in_everyday_words, words
from localctx.ui.job_events import progress_lines
from localctx.ui.settings_fields import ADVANCED, FIELDS, GENERAL, ON_MEMORY_PAGE, Field, fields_of
from localctx.ui.window import EVENT_OPTIONS, SLOW_EVENT_OPTIONS, AppWindow, Updates, tab_id

if TYPE_CHECKING:
    from localctx.session import Session

TAB, ADVANCED_TAB = "Settings", "Advanced"
CONFIRMATION = "delete everything"  # the user must type these words before everything is deleted
_FIELDS = [field for field in FIELDS if field.group != ON_MEMORY_PAGE]
_SET_APPEARANCE = """(how) => {
  const system = matchMedia('(prefers-color-scheme: dark)').matches
  const inUrl = new URLSearchParams(location.search).has('__theme')
  if (how !== 'auto' || !inUrl) document.body.classList.toggle('dark', how === 'dark' || (how === 'auto' && system))
}"""
_RELOAD = "() => location.assign(location.pathname)"


class SettingsPage:
    """The settings page, built inside a gr.Blocks."""

    def __init__(self, window: AppWindow) -> None:
        self._window = window

    def build(self, build_memory: Callable[[], None] | None = None) -> None:
        """Build two pages: one with the common settings and the data folder, and one with all other settings.

        ``build_memory`` builds the memory part of the second page.
        """
        self.fields: dict[str, Any] = {}
        self.shown = gr.State(None)  # the values that were last shown in the fields
        with gr.Tabs(elem_id="settings-pages") as self.pages:
            with gr.Tab("General"):
                self._build_general()
            with gr.Tab(ADVANCED_TAB):
                self._build_advanced()
                if build_memory:
                    build_memory()
        with gr.Row(elem_classes="lc-save"):
            self.save = gr.Button("Save", variant="primary", elem_id="save-settings", scale=0)
            self.message = gr.HTML("", elem_id="settings-said")

    def _build_general(self) -> None:
        with gr.Column(elem_classes="lc-narrow"):
            gr.HTML("Choose the model in Chats: its name stands above the conversation.", elem_id="settings-model")
            for field in fields_of(GENERAL):
                self.fields[field.name] = field.build()
            gr.Markdown("### Data")
            self._build_data()

    def _build_advanced(self) -> None:
        for group in ADVANCED:
            gr.Markdown(f"### {group}")
            with gr.Row(equal_height=False):
                for field in fields_of(group):
                    with gr.Column(min_width=260):
                        self.fields[field.name] = field.build()

    def _build_data(self) -> None:
        self.data = gr.HTML("", elem_id="data")
        with gr.Row():
            self.verify = gr.Button("Check all stored data", size="sm", elem_id="verify", scale=0, min_width=240)
        self.checked = gr.HTML("", elem_id="verified")
        with gr.Accordion("Delete everything", open=False, elem_id="delete-all"):
            self.confirmation = gr.Textbox(
                label=f"All chats and documents will be deleted, and what was read. Type “{CONFIRMATION}” to confirm",
                max_lines=1,
                elem_id="delete-sure",
            )
            self.models_too = gr.Checkbox(label="The models too", elem_id="delete-models")
            self.delete = gr.Button("Delete everything", variant="stop", elem_id="delete-everything")
            self.deleted = gr.HTML("", elem_id="everything-deleted")
        self.reload = gr.Textbox("", visible=False)

    def wire(self, page: gr.Blocks, tabs: gr.Tabs) -> None:
        """Connect the components with their event handlers."""
        fields = list(self.fields.values())
        appearance = self.fields["appearance"]
        everything = [*fields, self.data, self.shown]
        page.load(self._show, None, everything, **EVENT_OPTIONS).then(None, appearance, None, js=_SET_APPEARANCE)
        tabs.select(self._tab_selected, [self.shown], everything, **EVENT_OPTIONS)
        appearance.input(None, appearance, None, js=_SET_APPEARANCE)
        self.save.click(self._save, fields, [self.message, *everything], **EVENT_OPTIONS)
        self.verify.click(self._verify, None, [self.checked], **SLOW_EVENT_OPTIONS)
        self.delete.click(
            self._delete,
            [self.confirmation, self.models_too],
            [self.deleted, self.data, self.reload],
            **SLOW_EVENT_OPTIONS,
        )
        self.reload.change(None, None, None, js=_RELOAD)
        page.unload(self._stop)

    # Showing the page

    def _tab_selected(self, shown: dict[str, Any], selected: gr.SelectData) -> Updates:
        return self._show(shown) if selected.value == TAB else gr.skip()

    def _show(self, shown: dict[str, Any] | None = None) -> Updates:
        """Returns updates of the data folder, and of the fields whose values differ from ``shown``. Text typed in other
        fields stays.
        """
        settings, over = vars(self._window.settings), overrides()
        changed = [f for f in _FIELDS if shown is None or settings[f.name] != shown[f.name]]
        updates = {self.fields[f.name]: self._field(f, settings[f.name], f.name in over) for f in changed}
        return updates | {self.data: self._data(), self.shown: {f.name: settings[f.name] for f in _FIELDS}}

    def _field(self, field: Field, value: Any, over: bool) -> Any:
        info = f"set from outside by {variable(field.name)}, which wins" if over else field.info
        if field.name == "max_tokens" and not over:
            info = words(value)
        options: dict[str, Any] = {"value": value if value is not None else "", "interactive": not over, "info": info}
        if field.name == "embedder":
            options["choices"] = _embedders(self._window.settings.models)
        return gr.update(**options)

    def _data(self) -> str:
        home, models = self._window.settings.home, self._window.settings.models
        with self._window.store() as store:
            chats, documents = len(store.chats.all()), len(store.documents.all())
            rows = [
                (f"Chats ({chats:,}) and documents ({documents:,})", store.file.stat().st_size),
                ("Prepared documents", store.pages.nbytes()),
                ("Uploaded files", store.originals.nbytes()),
            ]
        local = list_installed(models)
        rows.append((f"Models ({len(local):,})", sum(m.bytes for m in local)))
        items = "".join(f"<li>{render.escape(what)} <b>{format_bytes(nbytes)}</b></li>" for what, nbytes in rows)
        return f'<p>Data folder: <code>{render.escape(home)}</code></p><ul class="lc-legend">{items}</ul>'

    # Actions

    def _save(self, *values: Any) -> Updates:
        settings, over = self._window.settings, overrides()
        typed = {f.name: _clean(value) for f, value in zip(_FIELDS, values, strict=True) if f.name not in over}
        changes = {name: value for name, value in typed.items() if not _same(value, getattr(settings, name))}
        if not changes:
            return {self.message: render.note("Nothing was changed", "done")}
        try:
            self._window.save_settings(changes)
        except UserError as e:
            return {self.message: render.note(in_everyday_words(str(e)), "error")}
        count = "1 setting" if len(changes) == 1 else f"{len(changes)} settings"
        return self._show() | {self.message: render.note(f"{count} saved; used from the next question on", "done")}

    def _verify(self, request: gr.Request) -> Iterator[Updates]:
        def job(session: "Session") -> Generator[Any, None, None]:
            result = session.store.verify(lambda done, total: session.runtime.report("checking", done, total))
            if result.intact:
                checked = f"{result.documents:,} documents, {format_bytes(result.bytes)} of what was read of them"
                yield Note(f"No problems found: {checked}")
            else:
                yield Note(
                    f"{len(result.damaged_documents):,} documents and {len(result.damaged_originals):,} uploaded "
                    f"files are damaged (add them again), and {len(result.damaged_pages):,} blocks of what was read "
                    f"(they are read again when needed); the database says {result.database}"
                )

        for line in progress_lines(self._window.submit(tab_id(request, "settings"), job, self._window.upkeep_worker)):
            yield {self.checked: line}

    def _delete(self, confirmation: str, models: bool, request: gr.Request) -> Iterator[Updates]:
        if confirmation.strip().lower() != CONFIRMATION:
            yield {self.deleted: render.note(f"Type “{CONFIRMATION}” first: nothing was deleted", "error")}
            return
        window, done = self._window, list[str]()

        def job(session: "Session") -> Generator[Any, None, None]:
            yield Progress("deleting", 0, 0)
            window.table.turn_off()
            window.batches.forget()
            for download in window.downloads.all if models else ():  # a running download uses its folder of models
                window.downloads.cancel(download.name)
            with window.answer_worker.drained(), window.library_worker.drained():
                window.answer_worker.clear_reports()
                freed = session.store.clear()
                for folder in (session.settings.home / "uploads").glob("*"):
                    shutil.rmtree(folder, ignore_errors=True)
                for model in list_installed(session.settings.models) if models else ():
                    freed += remove(model.name, session.settings.models)
            done.append("reload")
            yield Note(f"Deleted, {format_bytes(freed)} freed")

        for line in progress_lines(window.submit(tab_id(request, "settings"), job, window.upkeep_worker)):
            yield {self.deleted: line}
        yield {self.data: self._data(), self.reload: "".join(done)}

    def _stop(self, request: gr.Request) -> None:
        self._window.stop(tab_id(request, "settings"))


def _embedders(folder: Path) -> list[tuple[str, str]]:
    """Returns (label, name) of the embedders to choose from. The labels have the size and the licence."""
    local = {m.name: m for m in list_installed(folder) if m.state == "ready"}
    choices = [("none", "none")]
    for e in load_catalog().values():
        if e.kind == "embedder":
            model = local.get(e.name)
            state = "installed" if model else "not installed"
            size = format_bytes(model.bytes if model else e.bytes)
            choices.append((f"{e.name} ({size}, {e.licence}, {state})", e.name))
    return choices


def _clean(value: Any) -> Any:
    """Returns a typed value without surrounding spaces; None for an empty field."""
    return (value.strip() or None) if isinstance(value, str) else value


def _same(typed: Any, current: Any) -> bool:
    return typed == current or (typed is not None and current is not None and str(typed) == str(current))
