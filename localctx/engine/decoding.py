"""Chooses how answers are decoded: in the model's own words, or limited to runs of the documents' words."""

from typing import Any

from localctx.engine.request import Decoding
from localctx.models.adapter import Adapter
from localctx.models.catalog import load_catalog
from localctx.settings import Settings

MEASURED_ANSWERS = "answers"
"""The name of this measurement among a model's quality results."""


def choose_decoding(settings: Settings, measured: dict[str, Any] | None, adapter: Adapter | None) -> Decoding:
    """Returns the setting, else what was ``measured`` to be better on this machine, else what was measured for the
    ``adapter`` that answers or, where none does, for the model in the catalogue, else ``free``.
    """
    if settings.answers == "auto":
        entry = load_catalog().get(settings.model)
        of_model = adapter.measured.get("answers") if adapter else entry.answers if entry else ""
        chosen = measured["better"] if measured else of_model
    else:
        chosen = settings.answers
    return "quote" if chosen == "quote" else "free"
