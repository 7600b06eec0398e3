"""Cuts two documents into clauses: sentences, headings, items of lists, and rows of tables.

Both are cut alike: where a clause begins in one of them, one also begins in the other if the same words are there. So
the same words form the same clauses, whatever their line breaks are.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from localctx.library.compare.clause_numbers import ClauseNumber, leading_number, numbering_styles
from localctx.library.compare.compared_words import Hyphens, Word, words_of
from localctx.library.wording.sentences import sentences
from localctx.store.documents import StoredDocument

_BESIDE = 2  # words on each side of a cut that identify it in the other document
_DIGITS = re.compile(r"\d+")
_TABLE_ROW = re.compile(r"^[^\n]*\t[^\n]*$", re.MULTILINE)
_MARKS = frozenset(".,;:-_()[]\"'/")  # a clause has more than these


@dataclass(frozen=True)
class Clause:
    """A clause of a document: the characters ``start..end`` of ``text``, the text of the whole document. ``number`` is
    the number at its start, or None; ``words`` are its other words.
    """

    text: str
    start: int
    end: int
    number: ClauseNumber | None
    words: tuple[Word, ...]

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The keys of the clause's words. Words with the same key count as equal."""
        return tuple(word.key for word in self.words)

    @cached_property
    def key(self) -> str:
        """One string for all words of the clause; clauses with the same words have the same string."""
        return "\0".join(self.keys)


def cut_alike(old: StoredDocument, new: StoredDocument) -> tuple[list[Clause], list[Clause]]:
    """Cut two documents into clauses in the same way. Returns the clauses of each, in order."""
    hyphens = Hyphens((old.text, new.text))
    sides = [_Side(document, hyphens) for document in (old, new)]
    contexts = {context for side in sides for context in side.contexts()}
    parts = [side.parts(contexts) for side in sides]
    numbers = [[side.number(part) for part in own] for side, own in zip(sides, parts, strict=True)]
    styles = numbering_styles([number for number in own if number] for own in numbers)
    first, second = (
        [side.clause(part, number if number and number.style in styles else None) for part, number in numbered]
        for side, numbered in ((s, zip(p, n, strict=True)) for s, p, n in zip(sides, parts, numbers, strict=True))
    )
    return first, second


class _Side:
    """One of the two documents: its words, and the places where a clause begins by the form of the text."""

    def __init__(self, document: StoredDocument, hyphens: Hyphens) -> None:
        self._text, self._words = document.text, words_of(document.text, hyphens)
        self._masked = [_DIGITS.sub("0", word.key) for word in self._words]  # numbers of clauses may differ
        positions = [word.start for word in self._words]
        self._cuts = {bisect_left(positions, start) for start in _starts(document)}

    def contexts(self) -> Iterator[tuple[str, ...]]:
        """Yields the words around each cut, and also the words after the cut if they begin with a number."""
        for cut in self._cuts:
            if 0 < cut < len(self._words):
                yield self._context(cut)
            if cut < len(self._words) and self._masked[cut][0] == "0":
                yield self._after(cut)

    def parts(self, contexts: set[tuple[str, ...]]) -> list[list[Word]]:
        """Cut the text into clauses, and return the words of each. A cut is made between two words if the words
        around it, or those after it, are in ``contexts``.
        """
        inside = (i for i in range(1, len(self._words)) if self._context(i) in contexts or self._after(i) in contexts)
        parts = [self._words[a:b] for a, b in pairwise((0, *inside, len(self._words)))]
        return [part for part in parts if any(word.key not in _MARKS for word in part)]

    def number(self, part: list[Word]) -> ClauseNumber | None:
        """Returns the number that a clause may begin with."""
        return leading_number(self._text, part[0].start, part[-1].end)

    def clause(self, part: list[Word], number: ClauseNumber | None) -> Clause:
        """Returns the Clause of the words ``part``, which begin with ``number`` (None: with no number)."""
        words = tuple(word for word in part if not number or word.start >= number.end)
        return Clause(self._text, part[0].start, part[-1].end, number, words)

    def _context(self, at: int) -> tuple[str, ...]:
        return tuple(self._masked[max(0, at - _BESIDE) : at + _BESIDE])

    def _after(self, at: int) -> tuple[str, ...]:
        return "", *self._masked[at : at + 2 * _BESIDE]


def _starts(document: StoredDocument) -> Iterator[int]:
    """Yields the positions where a clause begins: sentences, rows of tables, headings, and the text after a heading."""
    text = document.text
    yield from (start for start, _ in sentences(text, 0, len(text)))
    for row in _TABLE_ROW.finditer(text):
        yield from row.span()
    for span in document.spans:
        if span.kind in ("row", "heading"):
            end = text.find("\n", span.start, span.end)
            yield from (span.start, end if end >= 0 else span.end)
