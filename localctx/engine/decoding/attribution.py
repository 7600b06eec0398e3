"""Attribution: maps pages of the cache, and their attention mass, to characters of the documents."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from localctx.kv.sequence_cache import SequenceCache
from localctx.models.base import Tokenizer
from localctx.shape import PAGE, SINK_PAGES


class AttentionShare(NamedTuple):
    """The attention that an answer paid to one page of a document. The page has the characters ``start..end`` of the
    document with index ``document``. ``share`` (0 to 1) is the page's share of all attention mass on the documents.

    Neighbouring pages with share 0 are joined into one range.
    """

    document: int
    start: int
    end: int
    share: float


def attention_by_text(
    cache: SequenceCache, tokenizer: Tokenizer, tokens: Sequence[int], texts: Sequence[str]
) -> list[AttentionShare]:
    """Map the recorded attention of ``cache`` to the documents ``texts``: returns the share of attention mass for each
    page-sized piece of text, largest share first. ``tokens`` are the part of the prompt that contains the texts, in
    order.

    The share is 0 where attention says nothing: on sink pages, which get attention whatever they contain, on evicted
    pages, and on an incomplete last page. It is 0 everywhere if no attention was recorded. If the decoded tokens do not
    contain a text, that text and all later ones are left out.
    """
    if cache.attention_mass is None:
        return [AttentionShare(i, 0, len(text), 0.0) for i, text in enumerate(texts)]
    page_starts, prompt = _decode_pages(tokenizer, tokens)
    mass = _informative_mass(cache, len(tokens), len(page_starts) - 1)
    located = enumerate(_locate_texts(prompt, texts))
    parts = [(i, *part) for i, place in located for part in _split_at_pages(page_starts, *place)]
    total = sum(mass[page] for page in {page for _, page, _, _ in parts}) or 1.0
    shares = [AttentionShare(i, start, end, float(mass[page] / total)) for i, page, start, end in parts]
    return sorted(_join_unknown(shares), key=lambda part: -part.share)


def pages_of_text(
    tokenizer: Tokenizer, tokens: Sequence[int], texts: Sequence[str], ranges: Sequence[tuple[int, int, int]]
) -> set[int]:
    """Returns the indices of the pages that have characters of ``ranges``, which are (index of the text, start, end).
    ``tokens`` are the part of the prompt that contains the ``texts``, in order.

    If the decoded tokens do not contain a text, ranges in that text and in all later ones are left out.
    """
    page_starts, prompt = _decode_pages(tokenizer, tokens)
    places = list(_locate_texts(prompt, texts))
    located = [(places[i][0], start, end) for i, start, end in ranges if i < len(places)]
    return {page for place in located for page, _, _ in _split_at_pages(page_starts, *place)}


def _informative_mass(cache: SequenceCache, tokens: int, pages: int) -> np.ndarray:
    """Returns the attention mass of each page [pages]; 0 for sinks, evicted pages and an incomplete last page."""
    mass = np.zeros(pages)
    assert cache.attention_mass is not None
    mass[: tokens // PAGE] = cache.attention_mass[: tokens // PAGE]
    mass[:SINK_PAGES] = 0
    for evicted in cache.evicted:
        if evicted.kept:
            mass[evicted.start // PAGE : evicted.stop // PAGE] = 0
    return mass


def _decode_pages(tokenizer: Tokenizer, tokens: Sequence[int]) -> tuple[np.ndarray, str]:
    """Returns the index of the character at which each page of ``tokens`` starts, then the end of the last page, and
    the decoded text.
    """
    text_of = tokenizer.stream()
    pieces = [text_of(token) for token in tokens]
    ends = np.cumsum([0, *map(len, pieces)])
    return np.append(ends[:-1:PAGE], ends[-1]), "".join(pieces)


def _locate_texts(prompt: str, texts: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yields for each text the offset of character 0 of the text in ``prompt``, and the range of its characters that
    the prompt contains. (White space at both ends of a text is not in the prompt.) Stops at the first text that is not
    found.
    """
    after = 0
    for text in texts:
        stripped = text.strip()
        at = prompt.find(f":\n{stripped}", after)  # as `content` writes a text
        if at < 0:
            return
        first, after = text.index(stripped), at + 2 + len(stripped)
        yield at + 2 - first, first, first + len(stripped)


def _split_at_pages(page_starts: np.ndarray, at: int, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Yields (page, start, end) for each page that has some of the characters ``first..last`` of a text. ``at`` is the
    offset of the text in the prompt.
    """
    for page in range(len(page_starts) - 1):
        start, end = max(first, int(page_starts[page]) - at), min(last, int(page_starts[page + 1]) - at)
        if start < end:
            yield page, start, end


def _join_unknown(shares: Sequence[AttentionShare]) -> Iterator[AttentionShare]:
    """Yields the shares, and joins neighbouring pages of a document whose share is 0."""
    for (document, unknown), group in groupby(shares, key=lambda part: (part.document, not part.share)):
        parts = list(group)
        if unknown:
            yield AttentionShare(document, parts[0].start, parts[-1].end, 0.0)
        else:
            yield from parts
