"""Decides how a summary is made: written by the model, or extracted as sentences of the document."""

from dataclasses import dataclass

from localctx.errors import UsageError
from localctx.models.catalog import load_catalog
from localctx.settings import Settings

EXTRACT_WORDS = {"short": 60, "medium": 250, "long": 500}
"""The number of words of an extracted summary, by length."""


@dataclass(frozen=True)
class SummaryMethod:
    """The way in which a summary is made.

    If ``extracts`` is True, it consists of the document's own sentences; otherwise the model writes it. ``why`` is the
    reason for extracting, or "".
    """

    extracts: bool
    why: str = ""

    @property
    def name(self) -> str:
        """The name of the method in the settings: ``write`` or ``extract``."""
        return "extract" if self.extracts else "write"


def summary_method(settings: Settings, rewords: str) -> SummaryMethod:
    """Returns the method that the settings choose for a summary.

    ``auto`` chooses extracts for models whose own summaries were measured to be worse (see the catalogue). ``rewords``
    names an option of the task that needs other words than the document's, or is "". With such an option the model
    always writes the summary. Raises UsageError for such an option if the settings ask for extracts.
    """
    if settings.summaries == "extract":
        if rewords:
            raise UsageError(
                f"a summary of the document's own sentences cannot have {rewords}", "leave it out, or --summaries write"
            )
        return SummaryMethod(True, "you asked for sentences of the document")
    entry = load_catalog().get(settings.model)
    if settings.summaries == "write" or rewords or not entry or entry.summaries != "extract":
        return SummaryMethod(False)
    why = f"{settings.model}'s own summaries were measured to be worse; --summaries write has it write them"
    return SummaryMethod(True, why)


def extract_words(length: str) -> int:
    """Returns the number of words of an extracted summary of this ``length``: ``short``, ``medium``, ``long``, or a
    number as text.
    """
    return EXTRACT_WORDS[length] if length in EXTRACT_WORDS else int(length)
