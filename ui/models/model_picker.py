"""Builds the model picker above the conversation. It shows the name of the model, a list of models for this machine,
and downloads.

At the first run, it shows a card that recommends a model.
"""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import gradio as gr

from localctx.budget import measure_disk
from localctx.engine.events import PREPARING, Note, Progress
from localctx.errors import Cancelled, UserError
from localctx.models.catalog import FALLBACK, title_of
from localctx.models.hub.installed import is_complete
from localctx.serving.worker import Queued
from localctx.ui import render
from localctx.ui.job_events import error_text, redraws
from localctx.ui.models import model_rows
from localctx.ui.models.model_choice import ModelChoice
from localctx.ui.models.model_download_bar import ModelDownloadBar
from localctx.ui.window import SLOW_EVENT_OPTIONS, AppWindow, Updates, tab_id

if TYPE_CHECKING:  # importing torch takes seconds
    from localctx.models.choice.model_list import ListedModel

MAX_LOADING_WAIT = 20  # most seconds to wait until the model is loaded, before the machine is measured
_ON_CLICK = """
element.addEventListener('click', event => {
    const button = event.target.closest('[data-do]')
    if (button) trigger('select', { index: 0, value: button.dataset.do + ' ' + button.dataset.model })
})
document.addEventListener('keydown', function onKey(event) {
    if (!element.isConnected) return document.removeEventListener('keydown', onKey)  // the panel was closed
    const button = document.querySelector('#model-button'), focus = document.activeElement
    const open = document.querySelector('#model-panel:has([data-mode=all])')?.offsetParent
    if (event.key !== 'Escape' || !open || !(focus === document.body || focus.closest('#model-picker'))) return
    button.click()
    button.focus()
})
"""
_LOOKING = "Looking at what this computer can run ..."


class ModelPicker:
    """The bar with the model's name and the panel with the models, built inside a gr.Blocks."""

    def __init__(self, window: AppWindow) -> None:
        self._window, self._choice = window, ModelChoice(window)
        self.download = ModelDownloadBar(window.downloads)

    def build(self) -> None:
        """Build the bar with the model's name, the download line, and the closed panel."""
        with gr.Column(elem_id="model-picker"):
            self.mode = gr.State("")  # mode of the panel: closed (""), the card of a "first" run, or "all" models
            self.pending = gr.State("")  # the model that the user must confirm
            self.button = gr.Button(self._label(False), size="sm", elem_id="model-button", scale=0)
            self.said = gr.HTML("", elem_id="model-said")
            self.download.build()
            with gr.Column(elem_id="model-panel"):
                self._build_panel()

    def _build_panel(self) -> None:
        """Build the parts of the panel. By the mode that the introduction names, style.css hides the panel or some
        parts: gradio loses updates that show a component while the page, or the component around it, is being drawn.
        """
        self.intro = gr.HTML("", elem_id="model-intro")
        with gr.Column(elem_id="model-confirm"):
            self.consequences = gr.HTML("")
            with gr.Row():
                self.switch = gr.Button(
                    "", variant="primary", size="sm", elem_id="model-switch", scale=0, min_width=200
                )
                self.not_now = gr.Button("Not now", size="sm", elem_id="model-not-now", scale=0, min_width=120)
        self.list = gr.HTML("", elem_id="model-list", js_on_load=_ON_CLICK)
        with gr.Row(elem_id="model-other-row"):
            self.other = gr.Textbox(
                label="Another model",
                info="owner/name on the Hugging Face hub, or the path of a folder or a GGUF file on this computer",
                max_lines=1,
                elem_id="model-other",
            )
            self.check = gr.Button("Check it", size="sm", elem_id="model-check", scale=0, min_width=120)
        with gr.Row(elem_id="model-first-row"):
            self.see_all = gr.Button("See all models", size="sm", elem_id="model-see-all", scale=0, min_width=120)
            self.keep = gr.Button("Not now", size="sm", elem_id="model-keep", scale=0, min_width=90)

    @property
    def outputs(self) -> list[Any]:
        """All components of the picker."""
        bar = [self.mode, self.pending, self.button, self.said, *self.download.outputs]
        return [*bar, self.intro, self.list, self.consequences, self.switch, self.other]

    def wire(self, page: gr.Blocks, chat: gr.Textbox) -> None:
        """Connect the components with their event handlers. ``chat`` has the id of the open chat."""
        how = SLOW_EVENT_OPTIONS | {"outputs": self.outputs}
        page.load(self._open_page, None, **how).then(self._fill_first, [self.mode], **how)
        chat.change(self._chat_changed, [chat, self.mode], **how)
        self.button.click(self._toggle, [self.mode], **how)
        self.list.select(self._act, [self.mode], **how)
        gr.on([self.check.click, self.other.submit], self._check, [self.other], **how)
        self.switch.click(self._switch, [self.pending], **how)
        self.not_now.click(lambda: {self.consequences: "", self.pending: ""}, None, **how)
        self.see_all.click(self._toggle, [self.mode], **how)
        self.keep.click(self._keep, None, **how)
        self.download.wire(how)
        self.download.timer.tick(self._tick, [self.mode], **how)
        self.download.next.click(self._go_on, [self.mode], **how)

    # Showing the panel

    def _label(self, is_open: bool) -> str:
        return f"{self._choice.label} {'▴' if is_open else '▾'}"

    def _open_page(self, request: gr.Request) -> Updates:
        first = self._choice.is_first_run and not request.query_params.get("chat")
        # A new page has a closed panel. Closing it again would undo a click that came first.
        return (self._show_panel("first") if first else {self.button: self._label(False)}) | self.download.show()

    def _chat_changed(self, chat: str, mode: str) -> Updates:
        """Show the card of a first run in an empty chat, and hide it once there is a conversation."""
        wanted = "first" if self._choice.is_first_run and not chat else ""
        if mode == "all" or mode == wanted:
            return {self.button: self._label(bool(mode))}
        return self._show_panel(wanted) | (self._filled(wanted) if wanted else {})

    def _show_panel(self, mode: str) -> Updates:
        """Open the panel in the ``mode`` ``first`` (the card of a first run) or ``all`` (all models), or close it ("").
        The panel is filled later.
        """
        return {
            self.mode: mode,
            self.pending: "",
            self.button: self._label(bool(mode)),
            self.intro: _in_mode(mode, render.note(_LOOKING)) if mode else "",
            self.list: "",
            self.consequences: "",
        }

    def _fill_first(self, mode: str) -> Iterator[Updates]:
        """Fill the card of a first run once the model is loaded, because the machine is measured for it and would seem
        slow during loading.
        """
        yield gr.skip()
        worker, end = self._window.answer_worker, time.monotonic() + MAX_LOADING_WAIT
        while mode and is_complete(self._window.settings.models / FALLBACK) and time.monotonic() < end:
            if worker.in_use.weights and not worker.busy:
                break
            time.sleep(0.1)
        if mode:
            yield self._filled(mode)

    def _filled(self, mode: str) -> Updates:
        """Returns updates of the introduction and the list of models."""
        try:
            advice = self._choice.advice()
            models, best = self._choice.models(advice), advice.best.name
        except Exception as e:
            return {self.intro: _in_mode(mode, render.note(error_text(e), "error"))}
        current = self._window.settings.model
        active = [d.name for d in self._window.downloads.all if d.active]
        shown = [m for m in models if m.name == best and best != current] if mode == "first" else models
        shown = model_rows.in_order(shown, current)
        free = measure_disk(self._window.settings.models).free
        rows = model_rows.rows(shown, advice.machine, current, best, free, active)
        return {self.intro: _in_mode(mode, self._intro(mode, models, best)), self.list: rows}

    def _intro(self, mode: str, models: "list[ListedModel]", best: str) -> str:
        if mode != "first":
            return "<h3>Models for this computer</h3>"
        text = model_rows.recommendation(next(m for m in models if m.name == best), self._window.settings.model)
        title = render.escape(title_of(FALLBACK))
        return f"<p><b>{title}</b> is a demonstration: small, quick, often wrong. {render.escape(text)}</p>"

    def _toggle(self, mode: str) -> Iterator[Updates]:
        yield self._show_panel("" if mode == "all" else "all") | {self.said: ""}
        if mode != "all":
            yield self._filled("all")

    def _keep(self) -> Updates:
        try:
            self._window.save_settings({"model": FALLBACK})
        except UserError as e:
            return {self.said: render.note(error_text(e), "error")}
        return self._show_panel("")

    # Choosing a model

    def _act(self, mode: str, clicked: gr.SelectData, request: gr.Request) -> Iterator[Updates]:
        """Perform the action of a row's button: download a model or use it."""
        action, _, name = str(clicked.value).partition(" ")
        try:
            if action == "download":
                yield self._start(name, mode)
            else:
                yield from self._use(name, request)
        except UserError as e:  # for example, the settings name a missing device
            yield {self.said: render.note(error_text(e), "error")}

    def _use(self, name: str, request: gr.Request) -> Iterator[Updates]:
        """Switch to a model. If the switch has a cost, ask the user for confirmation first."""
        listed = self._listed(name)
        if listed is None:
            yield {self.said: render.note("This model is no longer there. Open the list again.", "error")}
        elif lines := self._choice.consequences(listed):
            text = "".join(f"<p>{render.escape(line)}</p>" for line in lines)
            yield {
                self.pending: name,
                self.consequences: f'<div role="status">{text}</div>',
                self.switch: gr.update(value=f"Switch to {listed.entry.short_title}"),
            }
        else:
            yield from self._switch(name, request)

    def _listed(self, name: str) -> "ListedModel | None":
        return next((m for m in self._choice.models(self._choice.advice()) if m.name == name), None)

    def _check(self, typed: str) -> Iterator[Updates]:
        """Check a typed model, and list it if it can be used."""
        name = typed.strip()
        if not name:
            yield {self.said: render.note("Type a name or a path first.", "error")}
            return
        yield {self.said: render.note(f"Looking at {name} ...")}
        try:
            found = self._choice.find(name)
        except UserError as e:
            yield {self.said: render.note(error_text(e), "error")}
            return
        yield self._filled("all") | {
            self.said: render.note(f"{found.entry.short_title} is in the list now", "done"),
            self.other: "",
        }

    def _switch(self, name: str, request: gr.Request) -> Iterator[Updates]:
        """Load a model and use it from then on. If it does not load, the previous model stays in use."""
        yield {self.consequences: "", self.said: render.note(f"Loading {title_of(name)} ...")}
        try:
            listed = self._listed(name)
            if not listed:
                raise UserError("this model is no longer there", "open the list again")
            stream = self._window.submit(tab_id(request, "model"), self._choice.change_job(listed), exclusive=True)
            events = list[Any]()
            for _ in redraws(stream, events.append):
                if line := _loading_line(events, listed.entry.short_title):
                    yield {self.said: line}
        except Cancelled:
            yield {self.said: render.note("Stopped")}
        except Exception as e:
            before = title_of(self._window.settings.model)
            yield {self.said: render.note(f"{error_text(e)}. {before} answers as before.", "error")}
        else:
            note = next(e.text for e in reversed(events) if isinstance(e, Note))
            self._window.downloads.forget(name)
            yield self._show_panel("") | self.download.show() | {self.said: render.note(note, "done")}

    # Downloads

    def _start(self, name: str, mode: str) -> Updates:
        """Start or resume the download of a listed model."""
        listed = self._listed(name)
        if not listed or listed.problem:
            return {self.said: render.note("This model cannot be downloaded. Open the list again.", "error")}
        self._window.downloads.start(name, self._window.settings.models)
        return {self.said: ""} | self.download.show() | (self._filled(mode) if mode else {})

    def _tick(self, mode: str) -> Updates:
        """Show the progress of the download. Once no download is active, update the list of models if it is open."""
        shown = self.download.show()
        return shown | (self._filled(mode) if mode and not self._window.downloads.busy else {})

    def _go_on(self, mode: str, request: gr.Request) -> Iterator[Updates]:
        """Use the downloaded model, or resume its download."""
        last = self.download.last
        if last and last.state == "done":
            yield self._show_panel("all") | self._filled("all")
            yield from self._use(last.name, request)
        elif last:
            yield self._start(last.name, mode)


def _in_mode(mode: str, introduction: str) -> str:
    """Returns the HTML ``introduction`` of the panel, marked with the panel's mode."""
    return f'<div data-mode="{mode}">{introduction}</div>'


def _loading_line(events: list[Any], title: str) -> str:
    """Returns HTML with the last progress among the ``events``, or a line that says that the job waits or that the
    model is loading.
    """
    last = next((e for e in reversed(events) if isinstance(e, Progress)), None)
    if last and (last.total or last.phase == PREPARING):
        return render.progress_bar(last)
    newest = events[-1] if events else None
    waits = isinstance(newest, Queued) and newest.position > 0
    return render.note("Waiting for the question that is being answered ..." if waits else f"Loading {title} ...")
