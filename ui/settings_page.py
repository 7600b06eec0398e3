"""The settings page: what a person may choose, kept in the file that the commands read; and the data folder."""

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
from localctx.ui.advice_panel import AdvicePanel, fetch
from localctx.ui.job_events import pictures
from localctx.ui.settings_fields import FIELDS, GROUPS, Field
from localctx.ui.window import AppWindow, tab_of

if TYPE_CHECKING:
    from localctx.session import Session

TAB = "Settings"
SURE = "delete everything"  # to be typed
APPEAR = """(how) => {
  const system = matchMedia('(prefers-color-scheme: dark)').matches
  const told = new URLSearchParams(location.search).has('__theme')
  if (how !== 'auto' || !told) document.body.classList.toggle('dark', how === 'dark' || (how === 'auto' && system))
}"""
_AGAIN = "() => location.assign(location.pathname)"

Updates = dict[Any, Any]


class SettingsPage:
    """The page, built inside a gr.Blocks."""

    def __init__(self, window: AppWindow) -> None:
        self._window = window

    def build(self) -> None:
        """Groups of fields, what saves them, and the data folder."""
        self.fields: dict[str, Any] = {}
        self.shown = gr.State(None)  # the settings that the fields were last filled from
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
            self.said = gr.HTML("", elem_id="settings-said")
        gr.Markdown("### Data")
        self._build_data()

    def _build_download(self) -> None:
        self.advice = AdvicePanel(self._window, self._look)
        self.advice.build_line()
        with gr.Row():
            self.advice.build_button()
            self.download = gr.Button("Download this model", size="sm", elem_id="download", scale=0, min_width=200)
            self.stop = gr.Button("Stop", size="sm", elem_id="download-stop", scale=0)
        self.progress = gr.HTML("", elem_id="download-progress")

    def _build_data(self) -> None:
        self.data = gr.HTML("", elem_id="data")
        with gr.Row():
            self.verify = gr.Button(
                "Check everything that is kept", size="sm", elem_id="verify", scale=0, min_width=240
            )
        self.checked = gr.HTML("", elem_id="verified")
        with gr.Accordion("Delete everything", open=False, elem_id="delete-all"):
            self.sure = gr.Textbox(
                label=f"All chats, documents and kept pages go. Type “{SURE}” to mean it",
                max_lines=1,
                elem_id="delete-sure",
            )
            self.models_too = gr.Checkbox(label="The models too", elem_id="delete-models")
            self.delete = gr.Button("Delete everything", variant="stop", elem_id="delete-everything")
            self.deleted = gr.HTML("", elem_id="deleted")
        self.gone = gr.Textbox("", visible=False)

    def wire(self, page: gr.Blocks, tabs: gr.Tabs) -> None:
        """Connect what was built with what it does."""
        quick: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        slow = quick | {"concurrency_limit": None}  # the desk says whose turn it is
        fields = list(self.fields.values())
        appearance = self.fields["appearance"]
        everything = [*fields, self.data, self.shown]
        page.load(self._look, None, everything, **quick).then(None, appearance, None, js=APPEAR)
        tabs.select(self._entered, [self.shown], everything, **quick)
        appearance.input(None, appearance, None, js=APPEAR)
        self.save.click(self._save, fields, [self.said, *everything], **quick)
        self.download.click(self._download, [self.fields["model"]], [self.progress, self.fields["model"]], **slow)
        tabs.select(self._advise, None, [self.advice.line, self.advice.get], **quick)
        got = [self.progress, self.advice.line, self.advice.get, *everything]
        self.advice.get.click(self._take, [self.shown], got, **slow)
        self.stop.click(self._stop, None, None, queue=False, api_visibility="private")
        self.verify.click(self._verify, None, [self.checked], **slow)
        self.delete.click(self._delete, [self.sure, self.models_too], [self.deleted, self.data, self.gone], **slow)
        self.gone.change(None, None, None, js=_AGAIN)
        page.unload(self._stop)

    # What is looked at

    def _entered(self, shown: dict[str, Any], at: gr.SelectData) -> Updates:
        return self._look(shown) if at.value == TAB else gr.skip()

    def _advise(self, at: gr.SelectData) -> Updates:
        return self.advice.look() if at.value == TAB else gr.skip()

    def _look(self, shown: dict[str, Any] | None = None) -> Updates:
        """All as it is now; of the fields those that are not as ``shown``: what is being typed in the others stays."""
        settings, over = vars(self._window.settings), overrides()
        changed = [f for f in FIELDS if shown is None or settings[f.name] != shown[f.name]]
        updates = {self.fields[f.name]: self._field(f, settings[f.name], f.name in over) for f in changed}
        return updates | {self.data: self._data(), self.shown: {f.name: settings[f.name] for f in FIELDS}}

    def _field(self, field: Field, value: Any, over: bool) -> Any:
        info = f"{variable(field.name)} is set in the environment and wins over this" if over else field.info
        how: dict[str, Any] = {"value": value if value is not None else "", "interactive": not over, "info": info}
        kinds: dict[str, ModelKind] = {"model": "chat", "embedder": "embedder"}
        if kind := kinds.get(field.name):
            how["choices"] = _models(self._window.settings.models, kind)
        return gr.update(**how)

    def _data(self) -> str:
        home, models = self._window.settings.home, self._window.settings.models
        with self._window.store() as store:
            chats, documents = len(store.chats.all()), len(store.documents.all())
            rows = [
                (f"chats ({chats:,}) and documents ({documents:,})", store.file.stat().st_size),
                ("kept pages", store.pages.nbytes()),
            ]
        here = list_installed(models)
        rows.append((f"models ({len(here):,})", sum(m.bytes for m in here)))
        items = "".join(f"<li>{render.escape(what)} <b>{format_bytes(nbytes)}</b></li>" for what, nbytes in rows)
        return f'<p>Data folder: <code>{render.escape(home)}</code></p><ul class="lc-legend">{items}</ul>'

    # What is changed

    def _save(self, *values: Any) -> Updates:
        settings, over = self._window.settings, overrides()
        said = {f.name: _clean(value) for f, value in zip(FIELDS, values, strict=True) if f.name not in over}
        changes = {name: value for name, value in said.items() if not _same(value, getattr(settings, name))}
        if not changes:
            return {self.said: render.note("nothing was changed", "done")}
        try:
            self._window.choose(changes)
        except UserError as e:
            return {self.said: render.note(str(e), "error")}
        count = "1 setting" if len(changes) == 1 else f"{len(changes)} settings"
        return self._look() | {self.said: render.note(f"{count} kept; they count from the next question on", "done")}

    def _download(self, model: str, request: gr.Request) -> Iterator[Updates]:
        for line in pictures(self._window.ask(tab_of(request, "settings"), fetch(model), self._window.porter)):
            yield {self.progress: line}
        yield {self.fields["model"]: gr.update(choices=_models(self._window.settings.models, "chat"))}

    def _take(self, shown: dict[str, Any], request: gr.Request) -> Iterator[Updates]:
        yield from self.advice.take(self.progress, shown, request)

    def _verify(self, request: gr.Request) -> Iterator[Updates]:
        def job(session: "Session") -> Generator[Any, None, None]:
            found = session.store.verify(lambda done, total: session.runtime.report("checking pages", done, total))
            if found.intact:
                size = format_bytes(found.bytes)
                yield Note(f"all is whole: {found.documents:,} documents, {found.pages:,} pages, {size}")
            else:
                yield Note(
                    f"SQLite says {found.database}; {len(found.damaged_documents):,} documents and "
                    f"{len(found.damaged_pages):,} pages are damaged; localctx doctor says what to do"
                )

        for line in pictures(self._window.ask(tab_of(request, "settings"), job, self._window.porter)):
            yield {self.checked: line}

    def _delete(self, sure: str, models: bool, request: gr.Request) -> Iterator[Updates]:
        if sure.strip().lower() != SURE:
            yield {self.deleted: render.note(f"type “{SURE}” first: nothing was deleted", "error")}
            return
        window, done = self._window, list[str]()

        def job(session: "Session") -> Generator[Any, None, None]:
            yield Progress("deleting", 0, 0)
            window.batches.forget()
            with window.desk.paused(), window.shelver.paused():
                window.desk.forget()
                freed = session.store.clear()
                for came in (session.settings.home / "uploads").glob("*"):
                    shutil.rmtree(came, ignore_errors=True)
                for model in list_installed(session.settings.models) if models else ():
                    freed += remove(model.name, session.settings.models)
            done.append("gone")
            yield Note(f"deleted, {format_bytes(freed)} freed")

        for line in pictures(window.ask(tab_of(request, "settings"), job, window.porter)):
            yield {self.deleted: line}
        yield {self.data: self._data(), self.gone: "".join(done)}

    def _stop(self, request: gr.Request) -> None:
        self._window.stop(tab_of(request, "settings"))


def _models(folder: Path, kind: ModelKind) -> list[tuple[str, str]]:
    """Models to choose from, with what is to be known of each."""
    here = {m.name: m for m in list_installed(folder) if m.state == "ready"}
    known = load_catalog()
    choices = [("none", "none")] if kind == "embedder" else []
    for e in known.values():
        if e.kind == kind:
            got = here.get(e.name.replace("/", "--"))
            what = f"{format_bytes(got.bytes if got else e.bytes)}, {e.licence}, {'here' if got else 'not here yet'}"
            choices.append((f"{e.name} ({what})", e.name))
    others = [m for m in here.values() if kind == "chat" and m.name not in known]
    return choices + [(f"{m.name} ({format_bytes(m.bytes)}, here)", m.name) for m in others]


def _clean(value: Any) -> Any:
    """What was typed, or None where the field is empty."""
    return (value.strip() or None) if isinstance(value, str) else value


def _same(said: Any, now: Any) -> bool:
    return said == now or (said is not None and now is not None and str(said) == str(now))
