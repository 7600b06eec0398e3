"""Finds the mark up to which a person has read a document: the end of a page, a share of the text, or words in it."""

import re
from contextlib import suppress

from localctx.document_parts import PARTS
from localctx.errors import UsageError
from localctx.store.documents import Span, StoredDocument

_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_PART = re.compile(rf"(?:({'|'.join(PARTS)})\s+)?(\d+(?::\d\d)*)|(page)\s+([ivxlcdm]+)", re.IGNORECASE)
_SHEET = re.compile(r"(.*\S)\s*\(sheet\s+(\d+)\)", re.IGNORECASE)
_QUOTED = re.compile(r'"(.+)"', re.DOTALL)
_LIKE = {"'": "['\u2018\u2019]", '"': '["\u201c\u201d]'}  # a typed quote also matches typographic ones
_MOST_CHOICES = 5  # the maximum number of pages with one label that a message names

_NEAR, _LAST_WORDS = 400, 12  # a position's mark: the last 12 words of the 400 characters before it


def find_mark(document: StoredDocument, mark: str) -> int:
    """Returns the number of characters of ``document`` before ``mark``, up to which a person has read.

    A mark is written in one of these ways. ``40%`` is a share of the text. ``12``, ``page 12`` or ``slide 12`` is the
    end of that part. ``page 2 (sheet 6)`` is the sixth page, whose label is 2. Anything else, or a text in double
    quotes, is words: the mark is the end of their first occurrence, ignoring case and white space. Raises UsageError if
    the document has no such mark, or has several parts of that name.
    """
    mark = mark.strip()
    if percent := _PERCENT.fullmatch(mark):
        return _share(document, float(percent.group(1)))
    named, sheet = found.groups() if (found := _SHEET.fullmatch(mark)) else (mark, "")
    if part := _PART.fullmatch(named):
        return _end_of_part(document, part.group(1) or part.group(3), part.group(2) or part.group(4), sheet)
    kind, _, label = named.partition(" ")
    if any(
        s.kind == kind.lower() and _label(s).casefold() == label.strip().casefold()
        for s in document.spans
        if s.kind in PARTS
    ):
        return _end_of_part(document, kind, label.strip(), sheet)
    quoted = _QUOTED.fullmatch(mark)
    return _end_of_words(document, quoted.group(1) if quoted else mark)


def _share(document: StoredDocument, percent: float) -> int:
    if not 0 < percent <= 100:
        raise UsageError(f"{percent:g}% is not a share of a document", "give more than 0% and at most 100%")
    return int(len(document.text) * percent / 100)


def _end_of_part(document: StoredDocument, kind: str | None, label: str, sheet: str) -> int:
    """Returns the end of the part with this label. ``kind`` is one of PARTS, or None for any kind.

    ``sheet`` is the number of a page among the pages, or "".
    """
    kind = kind and kind.lower()
    parts = [span for span in document.spans if span.kind in PARTS and kind in (None, span.kind)]
    if not parts:
        remedy = 'give a share of it (--until 40%) or the words that were read last (--until "...")'
        raise UsageError(f"{document.name} has no {PARTS[kind or 'page']}", remedy)
    named = [(i, part) for i, part in enumerate(parts, 1) if _label(part).casefold() == label.casefold()]
    found = [(i, part) for i, part in named if sheet in ("", str(i))]
    own, told = parts[0].kind, f"{label} (sheet {sheet})" if sheet else label
    if not found:
        problem = f"{document.name} has no {own} {told}"
        raise UsageError(problem, f"its {PARTS[own]} are called {parts[0].label} to {parts[-1].label}")
    if len(found) > 1:
        choices = " or ".join(f'"page {label} (sheet {i})"' for i, _ in found[:_MOST_CHOICES])
        remedy = f"name one: {choices}" if own == "page" else 'give the words that were read last (--until "...")'
        raise UsageError(f"{document.name} has {len(found):,} {PARTS[own]} called {label}", remedy)
    return found[0][1].end


def _label(part: Span) -> str:
    """Returns a part's label without the number of the sheet, such as ``2`` for ``2 (sheet 6)``."""
    return found.group(1) if (found := _SHEET.fullmatch(part.label)) else part.label


def _end_of_words(document: StoredDocument, words: str) -> int:
    pattern = r"\s+".join("".join(_LIKE.get(c) or re.escape(c) for c in word) for word in words.split())
    found = re.search(pattern, document.text, re.IGNORECASE) if pattern else None
    if not found:
        shown = " ".join(words.split())
        shown = shown if len(shown) <= 60 else f"{shown[:59]}…"
        remedy = "copy a few words from where you stopped, or give a share of it (--until 40%)"
        raise UsageError(f'"{shown}" does not occur in {document.name}', remedy)
    return found.end()


def mark_at(document: StoredDocument, end: int) -> str:
    """Returns a mark, as ``find_mark`` reads it, for the position ``end``: the part that ends there, or the last words
    before it.

    If ``find_mark`` would not find ``end`` by that mark (white space aside), returns a percentage instead.
    """
    part = next((span for span in document.spans if span.kind in PARTS and span.end == end), None)
    words = document.text[max(0, end - _NEAR) : end].split()[-_LAST_WORDS:]
    tried = [f"{part.kind} {part.label}"] if part else []
    if part and part.kind == "page":
        pages = [span for span in document.spans if span.kind == "page"]
        tried.append(f"page {part.label} (sheet {pages.index(part) + 1})")
    for mark in [*tried, f'"{" ".join(words)}"']:
        with suppress(UsageError):
            found = find_mark(document, mark)
            if found == end or not document.text[min(found, end) : max(found, end)].strip():
                return mark
    return f"{100 * end / max(1, len(document.text)):.3f}%"
