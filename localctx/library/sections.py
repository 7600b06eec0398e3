"""Text to sections: what is read at a time of a text that is too long to be read whole.

A section ends at a heading where there are any, else between paragraphs, else between sentences. Sections are in order,
do not overlap, and leave out only white space.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from localctx.library.chunk import Chunk, chunks, views
from localctx.store.documents import Span, labels

FEW = 4  # what has less than this part of the most joins a neighbour


@dataclass(frozen=True)
class Section:
    """Characters ``start..end`` of a document, under this heading and on these pages (``3-5``), where it has such.

    Of short ones that were joined, ``heading`` has the first and the last.
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
    text: str, spans: Sequence[Span], count: Callable[[str], int], most: int, lines: bool = False
) -> list[Section]:
    """The sections of ``text``, each of at most ``most`` tokens as ``count`` counts them; ``lines`` as for ``chunks``.

    A part without any break may be longer, of at most VIEW characters.
    """
    heads = [s.start for s in spans if s.kind == "heading"]
    pieces = (piece for chunk in chunks(text, spans, lines) for piece in _fitting(text, chunk, count, most, lines))
    under = groupby(pieces, lambda piece: bisect_right(heads, piece.start))
    parts = (part for _, own in under for part in _even(list(own), most))
    return [section_of(spans, part.start, part.end) for part in _joined(parts, most)]


def section_of(spans: Sequence[Span], start: int, end: int) -> Section:
    """Characters ``start..end`` with the heading and the pages they are under."""
    first, last = ({kind: labels(spans, kind)(at) for kind in ("heading", "page")} for at in (start, end - 1))
    heading, pages = (
        " … ".join(dict.fromkeys(filter(None, both))) for both in zip(first.values(), last.values(), strict=True)
    )
    return Section(start, end, heading or None, pages.replace(" … ", "-") or None)


def _fitting(text: str, chunk: Chunk, count: Callable[[str], int], most: int, lines: bool) -> Iterator[_Piece]:
    tokens = count(text[chunk.start : chunk.end])
    if tokens <= most:
        yield _Piece(*chunk, tokens)
    else:
        yield from (_Piece(*view, count(text[view.start : view.end])) for view in views(text, chunk, lines))


def _even(pieces: Sequence[_Piece], most: int) -> Iterator[_Piece]:
    """The pieces under one heading together, in as few parts as there can be, of about the same length."""
    total = sum(piece.tokens for piece in pieces)
    share = total / max(1, -(-total // most))
    held, *rest = pieces
    for piece in rest:
        if held.tokens + piece.tokens <= most and held.tokens + piece.tokens / 2 <= share:
            held = _together(held, piece)
        else:
            yield held
            held = piece
    yield held


def _joined(parts: Iterable[_Piece], most: int) -> Iterator[_Piece]:
    """Neighbours together, where one of them is short and both fit."""
    held: _Piece | None = None
    for part in parts:
        if held and held.tokens + part.tokens <= most and min(held.tokens, part.tokens) * FEW < most:
            held = _together(held, part)
            continue
        if held:
            yield held
        held = part
    if held:
        yield held


def _together(a: _Piece, b: _Piece) -> _Piece:
    return _Piece(a.start, b.end, a.tokens + b.tokens)
