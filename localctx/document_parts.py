"""Citations, the document parts that they name (pages, slides, rows of sheets, messages), and their wording.

A page is named by its label alone (``12``), every other part by kind and label (``slide 3``). Ranges follow the same
rule: ``3-5``, ``slides 3-5``.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

Source = Literal["passage", "attention", "quote", "words"]
"""The source of a citation."""

NEAREST = "Nearest passage, not an answer"
"""Title of the nearest passage when nothing answers a question."""

PARTS = {
    **{"page": "pages", "slide": "slides", "row": "rows", "message": "messages", "cell": "cells"},
    "subtitle": "subtitles",
}
"""The kinds of parts with their plurals. The parts of one document are all of one kind."""


@dataclass(frozen=True)
class Citation:
    """Characters ``start..end`` of a document's text, which read ``quote``, with the heading and page they begin under.

    ``page`` is the label of a page, or ``slide 3``, ``row 12``, ``message 4``. ``tell_part`` puts it in words.

    The quote is one sentence or clause, or up to three in a row if they support the answer together.

    ``source`` ``passage``: ``weight`` is the weighted share of the answer's words that the quote contains, or of the
    question's words if the answer is yes or no.
    ``source`` ``attention``: ``weight`` is the share of the attention that went to the KV page with the quote.
    ``source`` ``quote``: the answer, or a run of it, was taken word for word from this quote, and ``weight`` is 1.
    ``source`` ``words``: as ``passage``, for a document read whole by an engine that reports no attention.
    """

    document: str
    name: str
    page: str | None
    heading: str | None
    start: int
    end: int
    quote: str
    source: Source
    weight: float

    @property
    def range(self) -> tuple[str, int, int]:
        """The document's id, and the first and last character."""
        return self.document, self.start, self.end

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, citation: Mapping[str, Any]) -> Self:
        """Returns the citation of a ``to_json`` result. Other keys are ignored."""
        return cls(**{f.name: citation[f.name] for f in fields(cls)})


@dataclass(frozen=True)
class SummaryCitation(Citation):
    """The citation of a summary's sentence. ``at`` is the character of the summary where that sentence ends."""

    at: int


def name_part(kind: str, label: str) -> str:
    """Returns a part's name in a citation: its label, with its kind in front unless it is a page."""
    return label if kind == "page" else f"{kind} {label}"


def name_range(first: str | None, last: str | None) -> str | None:
    """Returns the name of all parts from ``first`` to ``last``, which are names from ``name_part``, or None if both are
    missing.
    """
    if not first or not last or first == last:
        return first or last
    for kind, plural in PARTS.items():
        if first.startswith(f"{kind} ") and last.startswith(f"{kind} "):
            return f"{plural} {first.removeprefix(f'{kind} ')}-{last.removeprefix(f'{kind} ')}"
    return f"{first}-{last}"


def tell_part(named: str) -> str:
    """Returns a named part, or range of parts, in words: ``page 12``, ``slides 3-5``."""
    words = {word for both in PARTS.items() for word in both}
    if named.partition(" ")[0] in words:
        return named
    return f"pages {named}" if "-" in named else f"page {named}"


def tell_place(named: str | None, heading: str | None) -> str:
    """Returns a citation's place in few words: its page, else its part and heading if any. A slide or a row needs its
    heading, because every sheet of a workbook has a row 12.
    """
    told = tell_part(named) if named else ""
    return told if told.startswith("page") else ", ".join(filter(None, (told, heading)))


def count_parts(kind: str, count: int) -> str:
    """Returns a number of parts in words: ``12 pages``."""
    return f"{count:,} {kind if count == 1 else PARTS[kind]}"
