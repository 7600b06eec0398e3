"""Lists the models for this machine, and switches from one model to another. The module has no gradio components."""

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from localctx.engine.events import Note
from localctx.errors import ModelError
from localctx.models.catalog import FALLBACK, title_of
from localctx.serving.worker import SessionJob
from localctx.settings import is_saved, overrides, variable, with_changes
from localctx.ui.models import model_rows
from localctx.ui.window import AppWindow

if TYPE_CHECKING:  # importing torch takes seconds
    from localctx.models.choice.model_advice import Advice
    from localctx.models.choice.model_list import ListedModel
    from localctx.session import Session


class ModelChoice:
    """Lists and switches the models of one window.

    The first call of a method may take a second, because the machine is measured.
    """

    def __init__(self, window: AppWindow) -> None:
        self._window = window
        self._named = dict[str, "ListedModel"]()  # models that users typed, by name

    @property
    def is_first_run(self) -> bool:
        """True while the demonstration model answers because nobody has chosen a model."""
        settings = self._window.settings
        return settings.model == FALLBACK and "model" not in overrides() and not is_saved(settings.home, "model")

    @property
    def label(self) -> str:
        """The name of the model in use, with a note if it is the demonstration model."""
        model = self._window.settings.model
        return title_of(model) + (" · demonstration" if model == FALLBACK else "")

    def advice(self) -> "Advice":
        """Returns the models that this machine can run. Raises ModelError.

        The memory of the loaded model counts as free, because another model would replace it.
        """
        # imported late, because it imports torch, and the page is shown first
        from localctx.engine.model_speeds import measured_speeds
        from localctx.models.choice.model_advice import advise

        used = self._window.answer_worker.in_use
        own = used.weights + used.adapter + used.kv.get("device", 0)
        with self._window.store() as store:
            measured = measured_speeds(store)
        return advise(replace(self._window.settings, weights="full"), own_bytes=own, measured=measured)

    def models(self, advice: "Advice") -> "list[ListedModel]":
        """Returns the models to choose from. Models that the user typed are at the end."""
        from localctx.models.choice.model_list import list_models

        listed = list_models(self._window.settings, advice)
        names = {m.name for m in listed}
        return [*listed, *(m for m in self._named.values() if m.name not in names)]

    def find(self, name: str) -> "ListedModel":
        """Returns the model with a typed name or path. From then on, ``models`` lists it too.

        Raises ModelError if the model cannot be used.
        """
        from localctx.models.choice.model_list import find_model

        found = find_model(name, self._window.settings, self.advice().machine)
        self._named[found.name] = found
        return found

    def consequences(self, after: "ListedModel") -> list[str]:
        """Returns sentences for the user about the cost of switching to a model; [] if it costs nothing."""
        current = self._window.settings.model
        before = title_of(current)
        with self._window.store() as store:
            ready, again = store.caches.prepared_documents(current), store.caches.prepared_documents(after.name)
        lines = model_rows.consequences(before, after, ready, again)
        if self._window.batches.running:
            lines.append(f"The summaries go on with {after.entry.short_title}.")
        elif self._window.answer_worker.busy:
            lines.append(f"A question that is being answered ends first, with {before}.")
        return lines

    def change_job(self, model: "ListedModel") -> SessionJob:
        """Returns a job that loads a model and then saves the choice. The job must run alone. Raises ModelError."""
        window, changes = self._window, self._changes(model)
        wanted = with_changes(window.settings, changes)

        def job(session: "Session") -> Generator[Any, None, None]:
            before = session.settings
            session.change(wanted)
            try:
                assert session.model
            except BaseException:
                session.change(before)
                raise
            window.save_settings(changes)
            yield Note(f"{model.entry.short_title} is ready and answers from now on")

        return job

    def _changes(self, model: "ListedModel") -> Mapping[str, Any]:
        """Returns the settings to change for a model: the name, the weight precision, and the engine if the current
        engine cannot run the model.

        Raises ModelError if the environment sets the model.
        """
        from localctx.models.choice.engine_choice import choose_engine

        if "model" in overrides():
            problem = f"{variable('model')} is set in the environment and wins over a choice here"
            raise ModelError(problem, "start localctx without it")
        changes: dict[str, Any] = {"model": model.name}
        weights = model.estimate.weights if model.estimate else "full"
        changes |= {"weights": weights} if weights != self._window.settings.weights else {}
        try:
            choose_engine(model.name, self._window.settings.engine)
        except ModelError:
            changes["engine"] = "auto"
        return changes
