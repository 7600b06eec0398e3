"""Finds the header and the footer of printed pages, which are not compared. They are recognized by a time or by the
number of pages in them.

Parsers of PDFs keep such lines only on the first page, because the lines are the same on the other pages.
"""

import re
from collections.abc import Iterator

from localctx.store.documents import StoredDocument

_TIME = r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4},?\s+\d{1,2}:\d{2}|\d{4}-\d\d-\d\d[ T]\d{1,2}:\d{2}"
_LINE = re.compile(r"[^\n]*\S[^\n]*")


def without_page_lines(document: StoredDocument) -> tuple[StoredDocument, tuple[str, ...]]:
    """Returns the document with spaces in place of the header and footer of its pages, and the text of these header and
    footer lines.
    """
    text, lines = document.text, list[str]()
    for start, end in _page_lines(document):
        lines.append(" ".join(text[start:end].split()))
        text = text[:start] + " " * (end - start) + text[end:]
    return document._replace(text=text), tuple(lines)


def _page_lines(document: StoredDocument) -> Iterator[tuple[int, int]]:
    """Yields the first and the last line of the first page if they have a time or end with the number of pages. Also
    yields lines by themselves that end with the number of pages, because the parser puts a footer before a sentence
    that continues on the next page.
    """
    pages = [span for span in document.spans if span.kind == "page"]
    if len(pages) < 2:
        return
    count = re.compile(rf"(?:^|\D)\d+\s*(?:/|\bof\b|\bvon\b|\bsur\b|\bde\b)\s*{len(pages)}$", re.IGNORECASE)
    lines = list(_LINE.finditer(document.text, pages[0].start, pages[0].end))
    for i, found in enumerate(lines):
        is_outermost, counts = i in (0, len(lines) - 1), bool(count.search(found[0].strip()))
        alone = document.text[: found.start()].endswith("\n\n") and document.text.startswith("\n\n", found.end())
        if (counts and (alone or is_outermost)) or (is_outermost and re.search(_TIME, found[0])):
            yield found.span()
