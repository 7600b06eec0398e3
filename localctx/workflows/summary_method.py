"""Decides how a summary is made: written by the model, or extracted as sentences of the document."""

from dataclasses import dataclass

from localctx.errors import UsageError
from localctx.models.catalog import load_catalog
from localctx.settings import Settings

EXTRACT_WORDS = {"short": 60, "medium": 250, "long": 500}
"""Words of an extracted summary, by length."""


@dataclass(frozen=True)
class SummaryMethod:
    """``extracts``: the summary consists of the document's sentences. Else the model writes it. ``why`` is the
    reason.
    """

    extracts: bool
    why: str = ""

    @property
    def name(self) -> str:
        """``write`` or ``extract``, as in the settings."""
        return "extract" if self.extracts else "write"


def summary_method(settings: Settings, rewords: str) -> SummaryMethod:
    """Returns the method of the settings. ``auto`` extracts for models whose own summaries were measured to be worse
    (catalogue). ``rewords`` names a given option that no extract can follow.

    Raises UsageError for that option if extracts are requested.
    """
    if settings.summaries == "extract":
        if rewords:
            raise UsageError(f"sentences of a document cannot follow {rewords}", "leave it out, or --summaries write")
        return SummaryMethod(True, "you asked for sentences of the document")
    entry = load_catalog().get(settings.model)
    if settings.summaries == "write" or rewords or not entry or entry.summaries != "extract":
        return SummaryMethod(False)
    why = f"{settings.model}'s own summaries were measured to be worse; --summaries write has it write them"
    return SummaryMethod(True, why)


def extract_words(length: str) -> int:
    """Returns the words of an extract of this ``length``: a name, or a number of words."""
    return EXTRACT_WORDS[length] if length in EXTRACT_WORDS else int(length)
