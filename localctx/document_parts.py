"""The parts of documents that citations name: pages, slides, rows of sheets, messages; and the words for them.

A page is told by its label alone (``12``), every other part by its kind as well (``slide 3``), and so are ranges:
``3-5``, ``slides 3-5``.
"""

NEAREST = "Nearest passage, not an answer"
"""Names what comes nearest to a question that nothing answers, wherever it is shown."""

PARTS = {"page": "pages", "slide": "slides", "row": "rows", "message": "messages"}
"""The kinds of spans that are such parts, with their plurals. The parts of one document are of one kind."""


def name_part(kind: str, label: str) -> str:
    """Returns what a citation says of a part: its label, after its kind unless it is a page."""
    return label if kind == "page" else f"{kind} {label}"


def name_range(first: str | None, last: str | None) -> str | None:
    """Returns what is said of all parts from ``first`` to ``last``, which ``name_part`` named; None where none is."""
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
    """Returns the place of a citation in few words: its page; else its part, if any, and its heading, if any. A slide
    or a row is told with its heading, because a workbook has a row 12 in every sheet.
    """
    told = tell_part(named) if named else ""
    return told if told.startswith("page") else ", ".join(filter(None, (told, heading)))


def count_parts(kind: str, count: int) -> str:
    """Returns a number of parts in words: ``12 pages``."""
    return f"{count:,} {kind if count == 1 else PARTS[kind]}"
