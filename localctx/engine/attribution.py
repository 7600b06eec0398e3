"""Looks: where in the documents the pages are that the model looked at while it answered."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from localctx.kv.cache import Cache
from localctx.models.base import Tokenizer
from localctx.shape import PAGE, SINKS


class AttentionShare(NamedTuple):
    """Characters ``start..end`` of document ``document``, which lie on one page of the cache, and that page's share."""

    document: int
    start: int
    end: int
    share: float


def attention_by_text(
    cache: Cache, tokenizer: Tokenizer, tokens: Sequence[int], texts: Sequence[str]
) -> list[AttentionShare]:
    """All of ``texts``, page by page, with the share of the looks that ``cache`` gave it since it was watched.

    Most first. ``tokens``: the part of the prompt in which the texts lie, in order. Nothing is known, and the share 0,
    of sinks, which are looked at whatever they say, of pages that are not whole, and where nothing was watched. A text
    that the tokens do not spell is left out with those after it.
    """
    edges, written = _spelled(tokenizer, tokens)
    got = np.zeros(len(edges) - 1)
    if cache.attention_mass is not None:
        got[: len(tokens) // PAGE] = cache.attention_mass[: len(tokens) // PAGE]
    got[:SINKS] = 0
    for gone in cache.evicted:
        if gone.kept:
            got[gone.start // PAGE : gone.stop // PAGE] = 0
    lying = enumerate(_lying(written, texts))
    found = [(i, *part) for i, where in lying for part in _cut(edges, *where)]
    total = sum(got[page] for page in {page for _, page, _, _ in found}) or 1.0
    each = [AttentionShare(i, start, end, float(got[page] / total)) for i, page, start, end in found]
    return sorted(_joined(each), key=lambda look: -look.share)


def _spelled(tokenizer: Tokenizer, tokens: Sequence[int]) -> tuple[np.ndarray, str]:
    """The text that ``tokens`` spell, and where in it pages begin, and the last ends."""
    text_of = tokenizer.stream()
    pieces = [text_of(token) for token in tokens]
    ends = np.cumsum([0, *map(len, pieces)])
    return np.append(ends[:-1:PAGE], ends[-1]), "".join(pieces)


def _lying(written: str, texts: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """For each text: where its first character is in ``written``, and the range of it that is; until one is not."""
    after = 0
    for text in texts:
        inside = text.strip()
        at = written.find(f":\n{inside}", after)  # as the prompt puts it
        if at < 0:
            return
        first, after = text.index(inside), at + 2 + len(inside)
        yield at + 2 - first, first, first + len(inside)


def _cut(edges: np.ndarray, at: int, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """The pages that have some of a text, and what: (page, start, end)."""
    for page in range(len(edges) - 1):
        start, end = max(first, int(edges[page]) - at), min(last, int(edges[page + 1]) - at)
        if start < end:
            yield page, start, end


def _joined(attention_by_text: Sequence[AttentionShare]) -> Iterator[AttentionShare]:
    """Neighbours of which nothing is known as one."""
    for (document, unknown), some in groupby(attention_by_text, key=lambda look: (look.document, not look.share)):
        part = list(some)
        if unknown:
            yield AttentionShare(document, part[0].start, part[-1].end, 0.0)
        else:
            yield from part
