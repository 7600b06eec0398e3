"""Divides a text that exceeds the context window into sections that fit.

A section ends at a heading if the text has headings, else between paragraphs, else between sentences. Sections are in
order, do not overlap, and leave out only white space.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from localctx.document_parts import name_range
from localctx.library.search.chunk import Chunk, chunks, views
from localctx.store.documents import Span, labels, part_labels

SHORT_DIVISOR = 4  # a part with less than a quarter of the tokens allowed joins a neighbour


@dataclass(frozen=True)
class Section:
    """A section of a document: the characters ``start..end``, with their heading and pages (``3-5``, ``slides 3-5``),
    or None.

    If a section was joined from several, its ``heading`` has the first and the last heading.
    """

    start: int
    end: int
    heading: str | None
    pages: str | None


class _Piece(NamedTuple):
    start: int
    end: int
    tokens: int


def sections(
    text: str, spans: Sequence[Span], count: Callable[[str], int], max_tokens: int, lines: bool = False
) -> list[Section]:
    """Divide ``text`` into sections of at most ``max_tokens`` tokens and return them. ``count`` counts the tokens of a
    text.

    Long paragraphs are divided at sentence ends or, if ``lines`` (source code, tables), at line ends. A piece of at
    most VIEW characters is not divided, even if it has more tokens.
    """
    heads = [s.start for s in spans if s.kind == "heading"]
    pieces = (
        piece for chunk in chunks(text, spans, lines) for piece in _fitting(text, chunk, count, max_tokens, lines)
    )
    by_heading = groupby(pieces, lambda piece: bisect_right(heads, piece.start))
    parts = (part for _, own in by_heading for part in _even(list(own), max_tokens))
    return [section_at(spans, part.start, part.end) for part in _joined(parts, max_tokens)]


def section_at(spans: Sequence[Span], start: int, end: int) -> Section:
    """Returns the Section for characters ``start..end``, with the heading and pages that ``spans`` give them."""
    heading, part = labels(spans, "heading"), part_labels(spans)
    headings = " … ".join(dict.fromkeys(filter(None, (heading(start), heading(end - 1)))))
    return Section(start, end, headings or None, name_range(part(start), part(end - 1)))


def _fitting(text: str, chunk: Chunk, count: Callable[[str], int], max_tokens: int, lines: bool) -> Iterator[_Piece]:
    tokens = count(text[chunk.start : chunk.end])
    if tokens <= max_tokens:
        yield _Piece(*chunk, tokens)
    else:
        yield from (_Piece(*view, count(text[view.start : view.end])) for view in views(text, chunk, lines))


def _even(pieces: Sequence[_Piece], max_tokens: int) -> Iterator[_Piece]:
    """Join the pieces under one heading into as few parts as possible, of about equal length."""
    total = sum(piece.tokens for piece in pieces)
    share = total / max(1, -(-total // max_tokens))
    previous, *rest = pieces
    for piece in rest:
        if previous.tokens + piece.tokens <= max_tokens and previous.tokens + piece.tokens / 2 <= share:
            previous = _merge(previous, piece)
        else:
            yield previous
            previous = piece
    yield previous


def _joined(parts: Iterable[_Piece], max_tokens: int) -> Iterator[_Piece]:
    """Join neighbouring parts if one of them is short and both together fit in ``max_tokens``."""
    previous: _Piece | None = None
    for part in parts:
        if previous and previous.tokens + part.tokens <= max_tokens and _is_short(previous, part, max_tokens):
            previous = _merge(previous, part)
            continue
        if previous:
            yield previous
        previous = part
    if previous:
        yield previous


def _is_short(a: _Piece, b: _Piece, max_tokens: int) -> bool:
    return min(a.tokens, b.tokens) * SHORT_DIVISOR < max_tokens


def _merge(a: _Piece, b: _Piece) -> _Piece:
    return _Piece(a.start, b.end, a.tokens + b.tokens)
