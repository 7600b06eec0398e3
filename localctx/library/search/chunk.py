"""Divides text into chunks: the ranges that search finds. A chunk is a paragraph, unless it is very short or long.

A chunk lies under one heading, begins and ends with a visible character, and has at most MAX_CHUNK letters. Chunks are
in order, do not overlap, and leave out only white space. A Chinese, Japanese or Korean character counts as three
letters: such a character says about as much as three letters, and takes about as many tokens.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, starmap
from typing import NamedTuple

from localctx.library.wording.sentences import stripped
from localctx.store.documents import Span
from localctx.store.search_words import SIGNS

MAX_CHUNK = 2200  # letters; a longer paragraph is divided
TARGET = 1000  # letters; limit of the parts of a long paragraph, and of short paragraphs joined to one chunk
SHORT = 150  # letters; a shorter chunk joins a neighbour
VIEW = 350  # letters that one vector represents: the vector of a whole paragraph misses details
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
_SENTENCE = re.compile(
    r"(?:(?<=[.!?])|(?<=[.!?][\"'”’)\]]))\s+|(?:(?<=[。！？])|(?<=[。！？][”’」』）]))(?![”’」』）])\s*"  # noqa: RUF001
)
_LINE = re.compile(r"\s*\n\s*")
_CLAUSE = re.compile(r"(?<=[，；：、])")  # noqa: RUF001
_WORD = re.compile(r"\s+")
_BREAKS = {False: (_SENTENCE, _LINE, _CLAUSE, _WORD), True: (_LINE, _CLAUSE, _WORD)}
_SIGN = re.compile(f"[{SIGNS}]")
SAMPLE = 1_000_000  # characters of a section that say whether it is CJK
SIGN_LETTERS = 3  # letters that one CJK character counts as


class Chunk(NamedTuple):
    """A chunk of a document, the unit of search: the characters ``start..end`` of its text."""

    start: int
    end: int


def chunks(text: str, spans: Sequence[Span] = (), lines: bool = False, begin: int = 0) -> Iterator[Chunk]:
    """Yields the chunks of ``text`` from character ``begin`` on. The headings of the text are among ``spans``.

    Long paragraphs are divided at sentence ends or, if ``lines`` (source code, tables), at line ends.
    """
    cuts = {edge for s in spans if s.kind == "heading" for edge in (s.start, s.end)}
    for start, end in pairwise(sorted({begin, *(cut for cut in cuts if cut > begin), len(text)})):
        count = _letters_per_character(text, start, end)
        yield from _merged(_paragraphs(text, Chunk(start, end), lines, count), TARGET // count, SHORT // count)


def views(text: str, chunk: Chunk, lines: bool = False) -> Iterator[Chunk]:
    """Yields the parts of a chunk for which vectors are computed. A part is a few sentences (if ``lines``, a few lines)
    of at most VIEW letters.
    """
    length = VIEW // _letters_per_character(text, *chunk)
    return _merged(_pieces(text, chunk, length, _BREAKS[lines]), length, length)


def _letters_per_character(text: str, start: int, end: int) -> int:
    """Returns SIGN_LETTERS if at least a third of ``text[start:end]`` is CJK characters, else 1. Only a sample of
    SAMPLE characters is examined.
    """
    end = min(end, start + SAMPLE)
    return SIGN_LETTERS if 3 * len(_SIGN.findall(text, start, end)) >= end - start else 1


def _paragraphs(text: str, section: Chunk, lines: bool, count: int) -> Iterator[Chunk]:
    target = TARGET // count
    for paragraph in _divided(text, section, _PARAGRAPH):
        if _length(paragraph) <= MAX_CHUNK // count:
            yield paragraph
        else:
            yield from _merged(_pieces(text, paragraph, target, _BREAKS[lines]), target, target)


def _pieces(text: str, chunk: Chunk, max_length: int, breaks: Sequence[re.Pattern[str]]) -> Iterator[Chunk]:
    """Divide ``chunk`` at the first kind of ``breaks``, then pieces that are longer than ``max_length`` at the next
    kind.
    """
    start, end = chunk
    if end - start <= max_length:
        yield chunk
    elif breaks:
        for piece in _divided(text, chunk, breaks[0]):
            yield from _pieces(text, piece, max_length, breaks[1:])
    else:
        yield from (Chunk(at, min(at + max_length, end)) for at in range(start, end, max_length))


def _divided(text: str, chunk: Chunk, separator: re.Pattern[str]) -> Iterator[Chunk]:
    """Yields the non-empty parts of ``chunk`` between matches of ``separator``, without surrounding white space."""
    start, end = chunk
    for match in separator.finditer(text, start, end):
        yield from starmap(Chunk, stripped(text, start, match.start()))
        start = match.end()
    yield from starmap(Chunk, stripped(text, start, end))


def _merged(pieces: Iterable[Chunk], max_length: int, short: int) -> Iterator[Chunk]:
    """Join neighbours up to ``max_length`` characters if one of them is shorter than ``short``."""
    previous: Chunk | None = None
    for piece in pieces:
        if previous and piece.end - previous.start <= max_length and min(_length(previous), _length(piece)) < short:
            previous = Chunk(previous.start, piece.end)
            continue
        if previous:
            yield previous
        previous = piece
    if previous:
        yield previous


def _length(chunk: Chunk) -> int:
    return chunk.end - chunk.start
