"""The advice on the settings page: what this machine can run, and a button that gets the recommended model."""

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import gradio as gr

from localctx.engine.events import Note, Progress
from localctx.errors import UserError
from localctx.models.catalog import load_catalog
from localctx.models.resolve import resolve_model
from localctx.serving.worker import SessionJob
from localctx.ui import render
from localctx.ui.job_events import progress_lines
from localctx.ui.window import AppWindow, Updates, tab_id

if TYPE_CHECKING:
    from localctx.models.model_advice import Advice
    from localctx.session import Session


class AdvicePanel:
    """A line and a button on the settings page. ``fields`` returns updates of the page's fields that differ from the
    values it showed before.
    """

    def __init__(self, window: AppWindow, fields: Callable[[dict[str, Any] | None], Updates]) -> None:
        self._window, self._fields = window, fields

    def build_line(self) -> None:
        """Build the line that says what this machine can run."""
        self.line = gr.HTML("", elem_id="advice")

    def build_button(self) -> None:
        """Build the button; it is visible when there is a model to get."""
        self.get = gr.Button("", size="sm", elem_id="advice-get", visible=False, scale=0, min_width=200)

    def refresh(self) -> Updates:
        """Return the advice for this machine. The first call measures it for a second; no network is used."""
        from localctx.models.model_advice import (  # imports torch: the page is shown before it
            describe_machine,
            describe_recommendation,
        )

        try:
            advice = self._advice()
        except UserError as e:
            return {self.line: render.note(str(e), "error"), self.get: gr.update(visible=False)}
        text = (
            f"This machine: {describe_machine(advice.machine)}. Recommended for it: {describe_recommendation(advice)}"
        )
        verb = "Use" if advice.is_installed else "Get"
        button = gr.update(
            value=f"{verb} {advice.best.title}", visible=not (advice.is_installed and advice.is_selected)
        )
        return {self.line: render.note(f"{text}. Why: {advice.best.reason}."), self.get: button}

    def get_model(self, progress: Any, shown: dict[str, Any] | None, request: gr.Request) -> Iterator[Updates]:
        """Download the recommended model, or resume its download, then select it. ``progress`` shows the progress."""
        best = self._advice().best
        for line in progress_lines(
            self._window.submit(tab_id(request, "settings"), download_job(best.name), self._window.upkeep_worker)
        ):
            yield {progress: line}
        if not self._advice().is_installed:  # stopped or failed: ``progress`` says why
            return
        weights = {} if best.weights == "full" else {"weights": best.weights}
        try:
            self._window.save_settings({"model": best.name, **weights})
        except UserError as e:
            yield {progress: render.note(str(e), "error")}
            return
        answers = "answers from the next question on" if self._window.settings.model == best.name else "is here"
        result = render.note(f"{best.title} {answers}", "done")
        yield {**self._fields(shown), **self.refresh(), progress: result}

    def _advice(self) -> "Advice":
        """Return the advice, counting the memory of the loaded model as free: another model would replace it."""
        from localctx.models.model_advice import advise

        used = self._window.answer_worker.in_use
        return advise(self._window.settings, own_bytes=used.weights + used.adapter + used.kv.get("device", 0))


def download_job(model: str) -> SessionJob:
    """Return a job that downloads a model unless it is installed."""

    def job(session: "Session") -> Generator[Any, None, None]:
        entry = load_catalog().get(model)
        models, kind = session.settings.models, entry.kind if entry else "chat"
        path = resolve_model(model, models, lambda *p: session.runtime.on_progress(Progress(*p)), kind)
        yield Note(f"{model} is here: {path}")

    return job
