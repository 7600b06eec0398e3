"""Advice: what this machine can run, and the recommended model, one button away."""

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import gradio as gr

from localctx.engine.events import Note, Progress
from localctx.errors import UserError
from localctx.models.catalog import load_catalog
from localctx.models.resolve import resolve_model
from localctx.serving.worker import SessionJob
from localctx.ui import render
from localctx.ui.job_events import pictures
from localctx.ui.window import AppWindow, tab_of

if TYPE_CHECKING:
    from localctx.models.model_advice import Advice
    from localctx.session import Session

Updates = dict[Any, Any]


class AdvicePanel:
    """A line and a button of the settings page, built inside it. ``fields`` gives what the page then shows of the
    settings, beside what it showed before.
    """

    def __init__(self, window: AppWindow, fields: Callable[[dict[str, Any] | None], Updates]) -> None:
        self._window, self._fields = window, fields

    def build_line(self) -> None:
        """What this machine can run."""
        self.line = gr.HTML("", elem_id="advice")

    def build_button(self) -> None:
        """It is shown where there is something to get."""
        self.get = gr.Button("", size="sm", elem_id="advice-get", visible=False, scale=0, min_width=200)

    def look(self) -> Updates:
        """What this machine can run now. The first time it is measured, in a second; the network is not asked."""
        # imported late, because torch comes with it
        from localctx.models.model_advice import describe_machine, describe_recommendation

        try:
            advice = self._advice()
        except UserError as e:
            return {self.line: render.note(str(e), "error"), self.get: gr.update(visible=False)}
        recommended = describe_recommendation(advice)
        said = f"This machine: {describe_machine(advice.machine)}. Recommended for it: {recommended}"
        verb = "Use" if advice.is_installed else "Get"
        in_use = advice.is_installed and advice.is_selected
        button = gr.update(value=f"{verb} {advice.best.title}", visible=not in_use)
        return {self.line: render.note(f"{said}. Why: {advice.best.reason}."), self.get: button}

    def take(self, progress: Any, shown: dict[str, Any] | None, request: gr.Request) -> Iterator[Updates]:
        """Fetch the recommended model, going on where it was stopped, then have it answer; told in ``progress``."""
        best = self._advice().best
        for line in pictures(self._window.ask(tab_of(request, "settings"), fetch(best.name), self._window.porter)):
            yield {progress: line}
        if not self._advice().is_installed:  # it was stopped, or there is no hub: that has been told
            return
        packed = {} if best.weights == "full" else {"weights": best.weights}
        try:
            self._window.choose({"model": best.name, **packed})
        except UserError as e:
            yield {progress: render.note(str(e), "error")}
            return
        answers = "answers from the next question on" if self._window.settings.model == best.name else "is here"
        said = render.note(f"{best.title} {answers}", "done")
        yield {**self._fields(shown), **self.look(), progress: said}

    def _advice(self) -> "Advice":
        """What answers now would make room for another model."""
        from localctx.models.model_advice import advise

        used = self._window.desk.in_use
        return advise(self._window.settings, own_bytes=used.weights + used.kv.get("device", 0))


def fetch(model: str) -> SessionJob:
    """A job that fetches a model, where it is not here yet."""

    def job(session: "Session") -> Generator[Any, None, None]:
        entry = load_catalog().get(model)
        models, kind = session.settings.models, entry.kind if entry else "chat"
        path = resolve_model(model, models, lambda *p: session.runtime.on_progress(Progress(*p)), kind)
        yield Note(f"{model} is here: {path}")

    return job
