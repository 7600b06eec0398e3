"""Chooses how answers are decoded: in the model's own words, or limited to runs of the documents' words."""

from localctx.engine.request import Decoding
from localctx.models.adapter import Adapter
from localctx.models.catalog import load_catalog
from localctx.settings import Settings


def choose_decoding(settings: Settings, adapter: Adapter | None) -> Decoding:
    """Returns the setting; for ``auto`` what was measured to be better for the ``adapter`` that answers or, where none
    does, for the model in the catalogue, else ``free``.
    """
    chosen = settings.answers
    if chosen == "auto":
        entry = load_catalog().get(settings.model)
        chosen = adapter.measured.get("answers", "free") if adapter else entry.answers if entry else "free"
    return "quote" if chosen == "quote" else "free"
