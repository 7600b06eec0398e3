"""What the viewer shows of a document: its pages or, where it has none, sections of a few thousand characters."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from localctx.library.page_source import has_pages
from localctx.store.documents import StoredDocument

SECTION = 6_000  # characters of a section at most
_SHORTEST = SECTION // 2
_BREAKS = ("\n\n", "\n", " ")  # where a section may end, the best first
MAX_HITS = 1_000


@dataclass(frozen=True)
class DocumentPart:
    """Characters ``start..end`` of a document: its page or section called ``label``, under ``heading``."""

    start: int
    end: int
    label: str
    heading: str = ""


def divide(document: StoredDocument) -> list[DocumentPart]:
    """Returns the pages of a PDF, else the sections of a text: they begin at headings, rows or slides where these are
    no more than SECTION characters apart.
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
    """Returns where the section that begins ``at`` ends: at the last start of a part, else after a paragraph, a line or
    a word.
    """
    first, last = at + _SHORTEST, at + SECTION
    before = bisect_right(starts, last)
    if before and starts[before - 1] >= first:
        return starts[before - 1]
    ends = (text.rfind(mark, first, last) + len(mark) for mark in _BREAKS if text.rfind(mark, first, last) >= 0)
    return next(ends, last)


def part_at(parts: Sequence[DocumentPart], position: int) -> int:
    """Returns the index of the part with the character at ``position``; of empty pages there, the last."""
    return max(0, bisect_right([part.start for part in parts], position) - 1)


def part_called(parts: Sequence[DocumentPart], label: str) -> int | None:
    """Returns the index of the part with this label, or with this number; None if there is none."""
    wanted = label.strip().casefold()
    named = next((i for i, part in enumerate(parts) if part.label.casefold() == wanted), None)
    if named is None and wanted.isdecimal() and 1 <= int(wanted) <= len(parts):
        return int(wanted) - 1
    return named


def find_words(text: str, words: str) -> list[tuple[int, int]]:
    """Returns where ``words`` stand in ``text``, at most MAX_HITS times, whatever their case and white space."""
    pattern = r"\s+".join(map(re.escape, words.split()))
    if not pattern:
        return []
    found = re.finditer(pattern, text, re.IGNORECASE)
    return [match.span() for match, _ in zip(found, range(MAX_HITS), strict=False)]
