"""The mark up to which a document is read: the end of a page, a share of its text, or words that occur in it."""

import re

from localctx.errors import UsageError
from localctx.store.documents import StoredDocument

_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_PAGE = re.compile(r"\d+|page\s+(?:\d+|[ivxlcdm]+)", re.IGNORECASE)
_QUOTED = re.compile(r'"(.+)"', re.DOTALL)
_LIKE = {"'": "['\u2018\u2019]", '"': '["\u201c\u201d]'}  # typed, and what a book may have instead


def find_mark(document: StoredDocument, mark: str) -> int:
    """Returns how many characters of ``document`` lie before ``mark``: ``40%``, ``12`` or ``page 12`` (the end of that
    page), else words (the end of their first occurrence, whatever their case and white space; in double quotes where
    they look like one of the others).

    Raises UsageError for a mark that the document does not have.
    """
    mark = mark.strip()
    if percent := _PERCENT.fullmatch(mark):
        return _share(document, float(percent.group(1)))
    if _PAGE.fullmatch(mark):
        return _end_of_page(document, mark.split()[-1])
    quoted = _QUOTED.fullmatch(mark)
    return _end_of_words(document, quoted.group(1) if quoted else mark)


def _share(document: StoredDocument, percent: float) -> int:
    if not 0 < percent <= 100:
        raise UsageError(f"{percent:g}% is not a part of a document", "give more than 0% and at most 100%")
    return int(len(document.text) * percent / 100)


def _end_of_page(document: StoredDocument, label: str) -> int:
    pages = [span for span in document.spans if span.kind == "page"]
    if not pages:
        remedy = 'give a share of it (--until 40%) or the words that were read last (--until "...")'
        raise UsageError(f"{document.name} has no pages", remedy)
    ends = [page.end for page in pages if page.label.casefold() == label.casefold()]
    if not ends:
        raise UsageError(
            f"{document.name} has no page {label}", f"its pages are called {pages[0].label} to {pages[-1].label}"
        )
    return ends[0]


def _end_of_words(document: StoredDocument, words: str) -> int:
    pattern = r"\s+".join("".join(_LIKE.get(c) or re.escape(c) for c in word) for word in words.split())
    found = re.search(pattern, document.text, re.IGNORECASE) if pattern else None
    if not found:
        shown = " ".join(words.split())
        shown = shown if len(shown) <= 60 else f"{shown[:59]}…"
        remedy = "copy a few words from where you stopped, or give a share of it (--until 40%)"
        raise UsageError(f'"{shown}" does not occur in {document.name}', remedy)
    return found.end()
