"""Citations, and the document parts that they name: pages, slides, rows of sheets, messages.

A page is named by its label alone (``12``), any other part by kind and label (``slide 3``). Ranges are named in the
same way: ``3-5``, ``slides 3-5``.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

Source = Literal["passage", "attention", "quote", "words"]
"""The source of a citation."""

NEAREST = "The closest passage"
"""Title of the nearest passage when nothing answers a question."""
NOT_SURE = "I am not sure."
"""Stands beside an answer that no passage supports."""

PARTS = {
    **{"page": "pages", "slide": "slides", "row": "rows", "message": "messages", "cell": "cells"},
    "subtitle": "subtitles",
}
"""The kinds of parts with their plurals. The parts of one document are all of one kind."""


@dataclass(frozen=True)
class Citation:
    """A passage of a document that supports an answer: the characters ``start..end``, which read ``quote``, with the
    page and heading where they begin.

    ``page`` is the label of a page, or the name of another part, such as ``slide 3``, ``row 12``, ``message 4``.
    ``tell_part`` puts it in words.

    The quote is one sentence or clause, or up to three in a row if they support the answer together.

    ``source`` says how the quote was found, and what its ``weight`` means:
    - ``passage``: the weighted share of the answer's words that the quote contains. For a yes-or-no answer, the
      question's words are used instead.
    - ``attention``: the share of attention that went to the KV page with the quote.
    - ``quote``: always 1, because words of the answer were copied from this quote.
    - ``words``: as for ``passage``. Used when an engine that reports no attention read the whole document.
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
        """The document's id, and the offsets in its text where the citation starts and ends."""
        return self.document, self.start, self.end

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, citation: Mapping[str, Any]) -> Self:
        """Returns the citation that ``to_json`` converted. Unknown keys are ignored."""
        return cls(**{f.name: citation[f.name] for f in fields(cls)})


@dataclass(frozen=True)
class SummaryCitation(Citation):
    """The citation of one sentence of a summary. ``at`` is the offset in the summary where that sentence ends."""

    at: int


HEADER = "header"
"""The kind of a span that marks a row of a sheet as its header, or as a title above it."""


def parts_of_kinds(counted: Mapping[str, int]) -> dict[str, int]:
    """Returns the number of parts of each kind, from the number of spans of each kind. Headers are no rows."""
    rows = counted.get("row", 0) - counted.get(HEADER, 0)
    found = {kind: rows if kind == "row" else counted.get(kind, 0) for kind in PARTS}
    return {kind: count for kind, count in found.items() if count > 0}


def name_part(kind: str, label: str) -> str:
    """Returns the name of a part in a citation: only the label for a page, kind and label for other parts."""
    return label if kind == "page" else f"{kind} {label}"


def name_range(first: str | None, last: str | None) -> str | None:
    """Returns the name of the range from the part ``first`` to the part ``last``, which ``name_part`` returned. One of
    them may be missing; None if both are.
    """
    if not first or not last or first == last:
        return first or last
    for kind, plural in PARTS.items():
        if first.startswith(f"{kind} ") and last.startswith(f"{kind} "):
            return f"{plural} {first.removeprefix(f'{kind} ')}-{last.removeprefix(f'{kind} ')}"
    return f"{first}-{last}"


def tell_part(named: str) -> str:
    """Returns the name of a part or range in words, as shown to the user: ``page 12``, ``slides 3-5``."""
    words = {word for both in PARTS.items() for word in both}
    if named.partition(" ")[0] in words:
        return named
    return f"pages {named}" if "-" in named else f"page {named}"


def tell_place(named: str | None, heading: str | None) -> str:
    """Returns a short text for a citation's place: its page, or its other part and its heading if known. A slide or a
    row needs the heading, because every sheet of a workbook has a row 12.
    """
    told = tell_part(named) if named else ""
    return told if told.startswith("page") else ", ".join(filter(None, (told, heading)))


def count_parts(kind: str, count: int) -> str:
    """Returns a count of parts in words: ``12 pages``."""
    return f"{count:,} {kind if count == 1 else PARTS[kind]}"
