"""The effective context of a model: up to which length its answers from the whole are as good as from passages.

Questions are made from the user's own text: facts planted in it, and sentences of it with a name or a number left out.
Each is asked of the whole and of passages. As RULER (arXiv:2404.06654) does, one bound is told: the last length at
which, and below which, reading the whole did not lose.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from localctx.engine.events import Progress
from localctx.errors import DocumentError
from localctx.library.sentences import sentences
from localctx.models.base import Tokenizer
from localctx.quality.needles import head_of, make_needles, plant

SHORTEST = 512  # tokens; each next length is twice as long
DEPTHS = (0.3, 0.7)  # of the needles in a piece
GAPS = 6  # sentences with something left out, of a piece
PIECES = 3  # of a length at most
_PROPER = re.compile(r"(?<=[a-z,;] )(?:[A-Z][a-z]{2,}|\d[\d,.]*\d|\d{2,})(?=[ ,.;:!?])")
_SIZES = range(50, 260)  # characters of such a sentence

Mode = Literal["full", "retrieve"]
Ask = Callable[[str, str, Mode], str]
"""Gives the answer to a question on a text, quotations left out."""


@dataclass(frozen=True)
class Question:
    """``words`` to be asked, and the words one of which a right answer has."""

    words: str
    expected: tuple[str, ...]

    def answered_by(self, answer: str) -> bool:
        """Whether the answer has what was expected, however the thousands of a number are set apart."""
        said = re.sub(r"(?<=\d)[, .](?=\d{3})", "", answer).casefold()
        return any(re.sub(r"(?<=\d)[, .](?=\d{3})", "", word).casefold() in said for word in self.expected)


@dataclass(frozen=True)
class Piece:
    """A text of about ``length`` tokens, and what is asked of it."""

    length: int
    text: str
    questions: Sequence[Question]


@dataclass(frozen=True)
class Compared:
    """Of the questions asked at a ``length``, how many were answered rightly from the whole and from passages."""

    length: int
    asked: int
    whole: int
    passages: int

    @property
    def as_good(self) -> bool:
        """Whether nothing was lost by reading the whole."""
        return self.whole >= self.passages

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {**vars(self), "as_good": self.as_good}


def make_pieces(tokenizer: Tokenizer, text: str, longest: int) -> list[Piece]:
    """Pieces of ``text`` at SHORTEST tokens, twice that, and so on up to ``longest``. Raises DocumentError."""
    tokens = tokenizer.encode(text)
    lengths = [n for n in (SHORTEST << i for i in range(20)) if n <= min(longest, len(tokens))]
    if not lengths:
        raise DocumentError(f"{len(tokens):,} tokens are too few to measure on", f"take {SHORTEST} or more")
    return [
        make_piece(length, head_of(tokenizer, tokens[at : at + length]))
        for length in lengths
        for at in range(0, min(len(tokens) - length + 1, PIECES * length), length)
    ]


def make_piece(length: int, text: str) -> Piece:
    """``text`` with needles planted, and questions on these and on its own sentences."""
    gaps = list(left_out(text))[:: max(1, len(list(left_out(text))) // GAPS)][:GAPS]
    needles = make_needles(DEPTHS)
    for needle in needles:
        text = plant(text, needle)
    return Piece(length, text, [*(Question(n.question, (n.number,)) for n in needles), *gaps])


def left_out(text: str) -> Iterator[Question]:
    """Sentences that name somebody, some place or a number that the text has but once, with that left out."""
    for start, end in sentences(text, 0, len(text)):
        sentence = " ".join(text[start:end].split())
        found = _PROPER.search(sentence) if len(sentence) in _SIZES else None
        if found and text.count(found.group()) == 1:
            gap = f"{sentence[: found.start()]}____{sentence[found.end() :]}"
            yield Question(f'Which word is left out of this sentence of the text? "{gap}"', (found.group(),))


def compare_lengths(
    pieces: Sequence[Piece], ask: Ask, hear: Callable[[Progress], None] = lambda progress: None
) -> Iterator[Compared]:
    """Ask everything both ways, length by length; no longer ones once the whole lost at two lengths in a row."""
    lost, done, total = 0, 0, sum(len(p.questions) for p in pieces)
    for length in sorted({p.length for p in pieces}):
        right = {"full": 0, "retrieve": 0}
        here = [(p.text, q) for p in pieces if p.length == length for q in p.questions]
        for text, question in here:
            modes: tuple[Mode, Mode] = ("full", "retrieve")
            for mode in modes:
                right[mode] += question.answered_by(ask(text, question.words, mode))
            done += 1
            hear(Progress("measuring", done, total))
        compared = Compared(length, len(here), right["full"], right["retrieve"])
        yield compared
        lost = 0 if compared.as_good else lost + 1
        if lost == 2:
            return


def effective(compared: Sequence[Compared]) -> int:
    """The last length up to which the whole was as good at every one; half of the first where it never was."""
    best = compared[0].length // 2
    for one in sorted(compared, key=lambda c: c.length):
        if not one.as_good:
            break
        best = one.length
    return best
