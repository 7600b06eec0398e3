"""Finds how the text of a document is set: which of its characters are headings, paragraphs, table cells and the like.

viewer.js makes elements of these ranges. The text itself never changes, because quotations are marked by its
characters.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from localctx.library.citations.excerpt import reflowed
from localctx.library.parsers.text_builder import MAX_LABEL
from localctx.store.documents import StoredDocument
from localctx.ui.markdown_signs import is_markdown
from localctx.ui.viewer.grid_layout import grid_ranges
from localctx.ui.viewer.layout_range import LayoutRange, nested
from localctx.ui.viewer.markdown_layout import markdown_ranges

_LINE = re.compile(r"[^\n]+\s*")


def layout(document: StoredDocument, start: int, end: int) -> dict[str, Any]:
    """Returns how the characters ``start..end`` are shown: ``text``, its ``layout`` (``grid``, ``markdown`` or
    ``text``), and ``ranges`` in the order of a tree.
    """
    text = document.text[start:end]
    ranges: Iterable[LayoutRange]
    if any(span.kind == "row" for span in document.spans):
        name, ranges = "grid", grid_ranges(document, start, end)
    elif is_markdown(document.name):
        name, ranges = "markdown", markdown_ranges(document, start, end)
    else:
        name, ranges, text = "text", _headings(document), reflowed(text)
    return {"text": text, "layout": name, "ranges": nested(ranges, start, end)}


def _headings(document: StoredDocument) -> Iterator[LayoutRange]:
    """Yields the lines that are the heading of their span. A span without such a line, of a page's outline or an
    attachment, yields nothing.
    """
    for span in document.spans:
        if span.kind == "heading" and span.label:
            line = _LINE.match(document.text, span.start, span.end)
            shown = " ".join(line[0].split()) if line else ""
            if line and (shown == span.label or (len(span.label) == MAX_LABEL and shown.startswith(span.label))):
                yield LayoutRange(span.start, line.end(), "h3")
