"""Text to chunks: the ranges that are searched and shown. A paragraph is a chunk, unless it is very short or long.

A chunk lies under one heading, begins and ends with a visible character, and is at most WHOLE characters long. Chunks
are in order, do not overlap, and leave out only white space.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, starmap
from typing import NamedTuple

from localctx.library.sentences import stripped
from localctx.store.documents import Span

WHOLE = 2200  # characters; a paragraph up to here is not divided
TARGET = 1000  # a longer one becomes parts of at most this, and so do short neighbours together
SHORT = 150  # what is shorter joins a neighbour
VIEW = 350  # characters; what a vector is made of, since a vector of a whole paragraph says little of its parts
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
_SENTENCE = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"'”’)\]]))\s+|(?<=[。！？])\s*")  # noqa: RUF001
_LINE = re.compile(r"\s*\n\s*")
_WORD = re.compile(r"\s+")
_BREAKS = {False: (_SENTENCE, _LINE, _WORD), True: (_LINE, _WORD)}


class Chunk(NamedTuple):
    """Characters ``start..end`` of a document's text."""

    start: int
    end: int


def chunks(text: str, spans: Sequence[Span] = (), lines: bool = False) -> Iterator[Chunk]:
    """The chunks of ``text``. ``spans`` tell where headings are; with ``lines`` (source code, tables) what is too long
    is divided at line ends, else at sentence ends first.
    """
    cuts = {edge for s in spans if s.kind == "heading" for edge in (s.start, s.end)}
    for start, end in pairwise(sorted({0, *cuts, len(text)})):
        yield from _merged(_paragraphs(text, Chunk(start, end), lines), TARGET, SHORT)


def views(text: str, chunk: Chunk, lines: bool = False) -> Iterator[Chunk]:
    """A chunk in parts of a few sentences or, with ``lines``, lines; each at most VIEW long."""
    return _merged(_pieces(text, chunk, VIEW, _BREAKS[lines]), VIEW, VIEW)


def _paragraphs(text: str, section: Chunk, lines: bool) -> Iterator[Chunk]:
    for paragraph in _divided(text, section, _PARAGRAPH):
        if _length(paragraph) <= WHOLE:
            yield paragraph
        else:
            yield from _merged(_pieces(text, paragraph, TARGET, _BREAKS[lines]), TARGET, TARGET)


def _pieces(text: str, chunk: Chunk, most: int, breaks: Sequence[re.Pattern[str]]) -> Iterator[Chunk]:
    """What ``chunk`` falls into at the first kind of break, and where that is longer than ``most`` at the next."""
    start, end = chunk
    if end - start <= most:
        yield chunk
    elif breaks:
        for piece in _divided(text, chunk, breaks[0]):
            yield from _pieces(text, piece, most, breaks[1:])
    else:
        yield from (Chunk(at, min(at + most, end)) for at in range(start, end, most))


def _divided(text: str, chunk: Chunk, at: re.Pattern[str]) -> Iterator[Chunk]:
    """The parts of ``chunk`` between the matches of ``at``, without white space around them or nothing in them."""
    start, end = chunk
    for match in at.finditer(text, start, end):
        yield from starmap(Chunk, stripped(text, start, match.start()))
        start = match.end()
    yield from starmap(Chunk, stripped(text, start, end))


def _merged(pieces: Iterable[Chunk], most: int, short: int) -> Iterator[Chunk]:
    """Neighbours together up to ``most`` characters, where one of them is shorter than ``short``."""
    held: Chunk | None = None
    for piece in pieces:
        if held and piece.end - held.start <= most and min(_length(held), _length(piece)) < short:
            held = Chunk(held.start, piece.end)
            continue
        if held:
            yield held
        held = piece
    if held:
        yield held


def _length(chunk: Chunk) -> int:
    return chunk.end - chunk.start
