"""Chooses how answers are decoded: in the model's own words, or limited to runs of the documents' words."""

from typing import Any

from localctx.engine.request import Decoding
from localctx.models.catalog import load_catalog
from localctx.settings import Settings

MEASURED_ANSWERS = "answers"
"""The name of this measurement among a model's quality results."""


def choose_decoding(settings: Settings, measured: dict[str, Any] | None) -> Decoding:
    """Returns the setting, else what was ``measured`` to be better on this machine, else what the catalogue says of the
    model, else ``free``.
    """
    if settings.answers == "auto":
        entry = load_catalog().get(settings.model)
        chosen = measured["better"] if measured else entry.answers if entry else ""
    else:
        chosen = settings.answers
    return "quote" if chosen == "quote" else "free"
