"""Divides a document into the parts that the viewer shows: pages, or sections of a few thousand characters."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from localctx.library.page_source import has_pages
from localctx.store.documents import StoredDocument

SECTION = 6_000  # most characters of a section
_SHORTEST = SECTION // 2
_BREAKS = ("\n\n", "\n", " ")  # texts after which a section may end, best first
_SHEET = re.compile(r"\bsheet\s+(\d{1,9})\)?$")
MAX_HITS = 1_000


@dataclass(frozen=True)
class DocumentPart:
    """A page or section of a document: the characters ``start..end``. ``heading`` is the heading above the text, or
    "".
    """

    start: int
    end: int
    label: str
    heading: str = ""


def divide(document: StoredDocument) -> list[DocumentPart]:
    """Returns the pages of a PDF, or the sections of any other document.

    A section begins at the start of a span, such as a heading, row or slide, if one is near enough. Otherwise it begins
    after a paragraph, a line or a word.
    """
    pages = [span for span in document.spans if span.kind == "page"]
    if pages and has_pages(document.row):
        return [DocumentPart(p.start, p.end, p.label) for p in pages]
    headings = [span for span in document.spans if span.kind == "heading"]
    starts = [span.start for span in headings]
    sections = _sections(document.text, sorted({span.start for span in document.spans}))
    return [
        DocumentPart(start, end, str(i), headings[at - 1].label if (at := bisect_right(starts, start)) else "")
        for i, (start, end) in enumerate(sections, 1)
    ]


def _sections(text: str, starts: Sequence[int]) -> list[tuple[int, int]]:
    sections, at = list[tuple[int, int]](), 0
    while at < len(text) or not sections:
        end = len(text) if len(text) - at <= SECTION else _end(text, at, starts)
        sections.append((at, end))
        at = end
    return sections


def _end(text: str, at: int, starts: Sequence[int]) -> int:
    """Returns the end of the section that begins at ``at`` and has at most SECTION characters.

    The section ends at the last of ``starts`` in its second half or, if there is none, after a paragraph, a line or a
    word there.
    """
    first, last = at + _SHORTEST, at + SECTION
    before = bisect_right(starts, last)
    if before and starts[before - 1] >= first:
        return starts[before - 1]
    ends = (text.rfind(mark, first, last) + len(mark) for mark in _BREAKS if text.rfind(mark, first, last) >= 0)
    return next(ends, last)


def part_at(parts: Sequence[DocumentPart], position: int) -> int:
    """Returns the index of the part with the character at ``position``; if empty pages start there too, the last of
    these parts.
    """
    return max(0, bisect_right([part.start for part in parts], position) - 1)


def part_called(parts: Sequence[DocumentPart], label: str) -> int | None:
    """Returns the index of the part with this label. If no part has the label and it is a number, returns the index of
    the part with this number (from 1). Returns None if there is no such part.

    A label that is or ends with ``sheet 6`` names the sixth part.
    """
    wanted = label.strip().casefold()
    if sheet := _SHEET.search(wanted):
        return int(sheet.group(1)) - 1 if 1 <= int(sheet.group(1)) <= len(parts) else None
    named = next((i for i, part in enumerate(parts) if part.label.casefold() == wanted), None)
    if named is None and wanted.isdecimal() and 1 <= int(wanted) <= len(parts):
        return int(wanted) - 1
    return named


def find_words(text: str, words: str) -> list[tuple[int, int]]:
    """Returns at most MAX_HITS places of ``words`` in ``text``, ignoring case and differences in white space."""
    pattern = r"\s+".join(map(re.escape, words.split()))
    if not pattern:
        return []
    found = re.finditer(pattern, text, re.IGNORECASE)
    return [match.span() for match, _ in zip(found, range(MAX_HITS), strict=False)]
