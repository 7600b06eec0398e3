"""The settings page: writes the settings file that the commands read too, and manages the data folder."""

import shutil
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from localctx.engine.events import Note, Progress
from localctx.errors import UserError, format_bytes
from localctx.models.catalog import ModelKind, load_catalog
from localctx.models.resolve import list_installed, remove
from localctx.settings import overrides, variable
from localctx.ui import render
from localctx.ui.advice_panel import AdvicePanel, download_job
from localctx.ui.job_events import progress_lines
from localctx.ui.settings_fields import FIELDS, GROUPS, Field
from localctx.ui.window import AppWindow, Updates, tab_id

if TYPE_CHECKING:
    from localctx.session import Session

TAB = "Settings"
CONFIRMATION = "delete everything"  # to be typed
_SET_APPEARANCE = """(how) => {
  const system = matchMedia('(prefers-color-scheme: dark)').matches
  const inUrl = new URLSearchParams(location.search).has('__theme')
  if (how !== 'auto' || !inUrl) document.body.classList.toggle('dark', how === 'dark' || (how === 'auto' && system))
}"""
_RELOAD = "() => location.assign(location.pathname)"


class SettingsPage:
    """The page, built inside a gr.Blocks."""

    def __init__(self, window: AppWindow) -> None:
        self._window = window

    def build(self) -> None:
        """Build groups of fields, the button that saves them, and the data folder."""
        self.fields: dict[str, Any] = {}
        self.shown = gr.State(None)  # the values last written to the fields
        for title, group in GROUPS:
            gr.Markdown(f"### {title}")
            with gr.Row(equal_height=False, elem_classes="lc-fields"):
                for field in group:
                    with gr.Column(min_width=520 if field.name == "model" else 260):
                        self.fields[field.name] = field.build()
            if title == "Model":
                self._build_download()
        with gr.Row(elem_classes="lc-save"):
            self.save = gr.Button("Save", variant="primary", elem_id="save-settings", scale=0)
            self.message = gr.HTML("", elem_id="settings-said")
        gr.Markdown("### Data")
        self._build_data()

    def _build_download(self) -> None:
        self.advice = AdvicePanel(self._window, self._show)
        self.advice.build_line()
        with gr.Row():
            self.advice.build_button()
            self.download = gr.Button("Download this model", size="sm", elem_id="download", scale=0, min_width=200)
            self.stop = gr.Button("Stop", size="sm", elem_id="download-stop", scale=0)
        self.progress = gr.HTML("", elem_id="download-progress")

    def _build_data(self) -> None:
        self.data = gr.HTML("", elem_id="data")
        with gr.Row():
            self.verify = gr.Button("Check all stored data", size="sm", elem_id="verify", scale=0, min_width=240)
        self.checked = gr.HTML("", elem_id="verified")
        with gr.Accordion("Delete everything", open=False, elem_id="delete-all"):
            self.confirmation = gr.Textbox(
                label=f"All chats, documents and stored pages will be deleted. Type “{CONFIRMATION}” to confirm",
                max_lines=1,
                elem_id="delete-sure",
            )
            self.models_too = gr.Checkbox(label="The models too", elem_id="delete-models")
            self.delete = gr.Button("Delete everything", variant="stop", elem_id="delete-everything")
            self.deleted = gr.HTML("", elem_id="deleted")
        self.reload = gr.Textbox("", visible=False)

    def wire(self, page: gr.Blocks, tabs: gr.Tabs) -> None:
        """Connect the components with their event handlers."""
        quick: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        slow = quick | {"concurrency_limit": None}  # the worker has a queue of its own
        fields = list(self.fields.values())
        appearance = self.fields["appearance"]
        everything = [*fields, self.data, self.shown]
        page.load(self._show, None, everything, **quick).then(None, appearance, None, js=_SET_APPEARANCE)
        tabs.select(self._tab_selected, [self.shown], everything, **quick)
        appearance.input(None, appearance, None, js=_SET_APPEARANCE)
        self.save.click(self._save, fields, [self.message, *everything], **quick)
        self.download.click(self._download, [self.fields["model"]], [self.progress, self.fields["model"]], **slow)
        tabs.select(self._advise, None, [self.advice.line, self.advice.get], **quick)
        outputs = [self.progress, self.advice.line, self.advice.get, *everything]
        self.advice.get.click(self._get_model, [self.shown], outputs, **slow)
        self.stop.click(self._stop, None, None, queue=False, api_visibility="private")
        self.verify.click(self._verify, None, [self.checked], **slow)
        self.delete.click(
            self._delete, [self.confirmation, self.models_too], [self.deleted, self.data, self.reload], **slow
        )
        self.reload.change(None, None, None, js=_RELOAD)
        page.unload(self._stop)

    # What is shown

    def _tab_selected(self, shown: dict[str, Any], selected: gr.SelectData) -> Updates:
        return self._show(shown) if selected.value == TAB else gr.skip()

    def _advise(self, selected: gr.SelectData) -> Updates:
        return self.advice.refresh() if selected.value == TAB else gr.skip()

    def _show(self, shown: dict[str, Any] | None = None) -> Updates:
        """Return the data folder, and the fields whose settings differ from ``shown``: text typed in others stays."""
        settings, over = vars(self._window.settings), overrides()
        changed = [f for f in FIELDS if shown is None or settings[f.name] != shown[f.name]]
        updates = {self.fields[f.name]: self._field(f, settings[f.name], f.name in over) for f in changed}
        return updates | {self.data: self._data(), self.shown: {f.name: settings[f.name] for f in FIELDS}}

    def _field(self, field: Field, value: Any, over: bool) -> Any:
        info = f"{variable(field.name)} is set in the environment and wins over this" if over else field.info
        options: dict[str, Any] = {"value": value if value is not None else "", "interactive": not over, "info": info}
        kinds: dict[str, ModelKind] = {"model": "chat", "embedder": "embedder"}
        if kind := kinds.get(field.name):
            options["choices"] = _models(self._window.settings.models, kind)
        return gr.update(**options)

    def _data(self) -> str:
        home, models = self._window.settings.home, self._window.settings.models
        with self._window.store() as store:
            chats, documents = len(store.chats.all()), len(store.documents.all())
            rows = [
                (f"chats ({chats:,}) and documents ({documents:,})", store.file.stat().st_size),
                ("stored pages", store.pages.nbytes()),
            ]
        local = list_installed(models)
        rows.append((f"models ({len(local):,})", sum(m.bytes for m in local)))
        items = "".join(f"<li>{render.escape(what)} <b>{format_bytes(nbytes)}</b></li>" for what, nbytes in rows)
        return f'<p>Data folder: <code>{render.escape(home)}</code></p><ul class="lc-legend">{items}</ul>'

    # Actions

    def _save(self, *values: Any) -> Updates:
        settings, over = self._window.settings, overrides()
        typed = {f.name: _clean(value) for f, value in zip(FIELDS, values, strict=True) if f.name not in over}
        changes = {name: value for name, value in typed.items() if not _same(value, getattr(settings, name))}
        if not changes:
            return {self.message: render.note("nothing was changed", "done")}
        try:
            self._window.save_settings(changes)
        except UserError as e:
            return {self.message: render.note(str(e), "error")}
        count = "1 setting" if len(changes) == 1 else f"{len(changes)} settings"
        return self._show() | {self.message: render.note(f"{count} saved; used from the next question on", "done")}

    def _download(self, model: str, request: gr.Request) -> Iterator[Updates]:
        stream = self._window.submit(tab_id(request, "settings"), download_job(model), self._window.upkeep_worker)
        for line in progress_lines(stream):
            yield {self.progress: line}
        yield {self.fields["model"]: gr.update(choices=_models(self._window.settings.models, "chat"))}

    def _get_model(self, shown: dict[str, Any], request: gr.Request) -> Iterator[Updates]:
        yield from self.advice.get_model(self.progress, shown, request)

    def _verify(self, request: gr.Request) -> Iterator[Updates]:
        def job(session: "Session") -> Generator[Any, None, None]:
            result = session.store.verify(lambda done, total: session.runtime.report("checking pages", done, total))
            if result.intact:
                checked = f"{result.documents:,} documents, {result.pages:,} pages, {format_bytes(result.bytes)}"
                yield Note(f"nothing is damaged: {checked}")
            else:
                yield Note(
                    f"SQLite says {result.database}; {len(result.damaged_documents):,} documents and "
                    f"{len(result.damaged_pages):,} pages are damaged; localctx doctor says what to do"
                )

        for line in progress_lines(self._window.submit(tab_id(request, "settings"), job, self._window.upkeep_worker)):
            yield {self.checked: line}

    def _delete(self, confirmation: str, models: bool, request: gr.Request) -> Iterator[Updates]:
        if confirmation.strip().lower() != CONFIRMATION:
            yield {self.deleted: render.note(f"type “{CONFIRMATION}” first: nothing was deleted", "error")}
            return
        window, done = self._window, list[str]()

        def job(session: "Session") -> Generator[Any, None, None]:
            yield Progress("deleting", 0, 0)
            window.batches.forget()
            with window.answer_worker.drained(), window.library_worker.drained():
                window.answer_worker.clear_reports()
                freed = session.store.clear()
                for folder in (session.settings.home / "uploads").glob("*"):
                    shutil.rmtree(folder, ignore_errors=True)
                for model in list_installed(session.settings.models) if models else ():
                    freed += remove(model.name, session.settings.models)
            done.append("reload")
            yield Note(f"deleted, {format_bytes(freed)} freed")

        for line in progress_lines(window.submit(tab_id(request, "settings"), job, window.upkeep_worker)):
            yield {self.deleted: line}
        yield {self.data: self._data(), self.reload: "".join(done)}

    def _stop(self, request: gr.Request) -> None:
        self._window.stop(tab_id(request, "settings"))


def _models(folder: Path, kind: ModelKind) -> list[tuple[str, str]]:
    """Return labels and names of the models to choose from, with size and licence."""
    local = {m.name: m for m in list_installed(folder) if m.state == "ready"}
    catalog = load_catalog()
    choices = [("none", "none")] if kind == "embedder" else []
    for e in catalog.values():
        if e.kind == kind:
            model = local.get(e.name.replace("/", "--"))
            state = "installed" if model else "not installed"
            choices.append(
                (f"{e.name} ({format_bytes(model.bytes if model else e.bytes)}, {e.licence}, {state})", e.name)
            )
    others = [m for m in local.values() if kind == "chat" and m.name not in catalog]
    return choices + [(f"{m.name} ({format_bytes(m.bytes)}, installed)", m.name) for m in others]


def _clean(value: Any) -> Any:
    """Return what was typed, None if the field is empty."""
    return (value.strip() or None) if isinstance(value, str) else value


def _same(typed: Any, current: Any) -> bool:
    return typed == current or (typed is not None and current is not None and str(typed) == str(current))
