"""Makes the page labels of a PDF unique, and names ranges of pages in words."""

from collections.abc import Sequence

from localctx.library.parsers.list_numbers import in_a_row

MAX_LABEL = 100
"""The largest number of characters of a label."""

_MOST_RANGES = 20  # ranges of pages that are named one by one


def distinct(labels: Sequence[str]) -> list[str]:
    """Returns page labels that are unique, ignoring case. An empty label is replaced by the page's place in the file.

    A repeated label gets its place in the file as well: ``12 (sheet 30)``.
    """
    seen, told = set[str](), list[str]()
    for i, label in enumerate(labels, 1):
        name = " ".join(label.split())[:MAX_LABEL] or str(i)
        told.append(f"{name} (sheet {i})" if name.casefold() in seen else name)
        seen.add(name.casefold())
    return told


def name_pages(labels: Sequence[str], pages: Sequence[int]) -> str:
    """Returns words for some pages, such as ``page 3`` or ``pages 2, 5 to 9 and 12``.

    ``labels`` are the labels of all pages; ``pages`` are the numbers of some, from 0, in ascending order.
    """
    parts = [labels[a] if a == b else f"{labels[a]} to {labels[b]}" for a, b in in_a_row(pages)]
    *before, last = parts if len(parts) <= _MOST_RANGES else [*parts[:_MOST_RANGES], "others"]
    listed = f"{', '.join(before)} and {last}" if before else last
    return f"page{'s' * (len(pages) > 1)} {listed}"
