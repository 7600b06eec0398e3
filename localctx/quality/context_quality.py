"""Measures a model's effective context: the greatest text length at which answers from the whole text are as good as
answers from passages.

Questions come from the user's own text: planted needles, and sentences with a name or a number left out (cloze
questions). As in RULER (arXiv:2404.06654), the result is one bound: up to it, reading the whole text was never worse.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from localctx.engine.events import Progress
from localctx.errors import DocumentError
from localctx.library.wording.sentences import sentences
from localctx.models.base import Tokenizer
from localctx.quality.needles import decode_tokens, make_needles, plant

SHORTEST = 512  # tokens; each next length is twice as long
DEPTHS = (0.3, 0.7)  # of the needles in a haystack
CLOZE_QUESTIONS = 6  # per haystack
HAYSTACKS = 3  # at most, per length
_PROPER = re.compile(r"(?<=[a-z,;] )(?:[A-Z][a-z]{2,}|\d[\d,.]*\d|\d{2,})(?=[ ,.;:!?])")
_SIZES = range(50, 260)  # characters of a cloze sentence

Mode = Literal["full", "retrieve"]
AskFunction = Callable[[str, str, Mode], str]
"""``ask(text, question, mode)`` returns the answer without quotations."""


@dataclass(frozen=True)
class Question:
    """A question (``words``) and its ``expected`` words. An answer with any of the expected words is right."""

    words: str
    expected: tuple[str, ...]

    def answered_by(self, answer: str) -> bool:
        """Returns True if the answer contains an expected word. Thousands separators in numbers do not matter."""
        normalized = re.sub(r"(?<=\d)[, .](?=\d{3})", "", answer).casefold()
        return any(re.sub(r"(?<=\d)[, .](?=\d{3})", "", word).casefold() in normalized for word in self.expected)


@dataclass(frozen=True)
class Haystack:
    """A text of about ``length`` tokens, with the questions asked about it."""

    length: int
    text: str
    questions: Sequence[Question]


@dataclass(frozen=True)
class LengthResult:
    """The result at one ``length``: the number of questions ``asked``, and how many were answered correctly from the
    ``whole`` text and from ``passages``.
    """

    length: int
    asked: int
    whole: int
    passages: int

    @property
    def as_good(self) -> bool:
        """True if reading the whole text was no worse than reading passages."""
        return self.whole >= self.passages

    def to_json(self) -> dict[str, Any]:
        """Returns the result as ``--json`` prints it."""
        return {**vars(self), "as_good": self.as_good}


def make_haystacks(tokenizer: Tokenizer, text: str, longest: int) -> list[Haystack]:
    """Cut ``text`` into haystacks of SHORTEST tokens, twice that, and so on up to ``longest``. Raises DocumentError."""
    tokens = tokenizer.encode(text)
    lengths = [n for n in (SHORTEST << i for i in range(20)) if n <= min(longest, len(tokens))]
    if not lengths:
        raise DocumentError(f"{len(tokens):,} tokens are too few to measure on", f"take {SHORTEST} or more")
    return [
        make_haystack(length, decode_tokens(tokenizer, tokens[at : at + length]))
        for length in lengths
        for at in range(0, min(len(tokens) - length + 1, HAYSTACKS * length), length)
    ]


def make_haystack(length: int, text: str) -> Haystack:
    """Plant needles in ``text``. Returns the new text with questions about the needles and about the sentences of
    ``text``.
    """
    cloze = list(make_cloze_questions(text))
    cloze = cloze[:: max(1, len(cloze) // CLOZE_QUESTIONS)][:CLOZE_QUESTIONS]
    needles = make_needles(DEPTHS)
    for needle in needles:
        text = plant(text, needle)
    return Haystack(length, text, [*(Question(n.question, (n.number,)) for n in needles), *cloze])


def make_cloze_questions(text: str) -> Iterator[Question]:
    """Yield a cloze question for each sentence with a name or number that occurs only once in the text."""
    for start, end in sentences(text, 0, len(text)):
        sentence = " ".join(text[start:end].split())
        match = _PROPER.search(sentence) if len(sentence) in _SIZES else None
        if match and text.count(match.group()) == 1:
            cloze = f"{sentence[: match.start()]}____{sentence[match.end() :]}"
            yield Question(f'Which word is left out of this sentence of the text? "{cloze}"', (match.group(),))


def compare_lengths(
    pieces: Sequence[Haystack], ask: AskFunction, on_progress: Callable[[Progress], None] = lambda progress: None
) -> Iterator[LengthResult]:
    """Ask every question in both modes. Yields the result of each length, shortest first. Stops after two lengths in a
    row at which reading the whole text was worse.
    """
    lost, done, total = 0, 0, sum(len(p.questions) for p in pieces)
    for length in sorted({p.length for p in pieces}):
        correct = {"full": 0, "retrieve": 0}
        questions = [(p.text, q) for p in pieces if p.length == length for q in p.questions]
        for text, question in questions:
            modes: tuple[Mode, Mode] = ("full", "retrieve")
            for mode in modes:
                correct[mode] += question.answered_by(ask(text, question.words, mode))
            done += 1
            on_progress(Progress("measuring", done, total))
        result = LengthResult(length, len(questions), correct["full"], correct["retrieve"])
        yield result
        lost = 0 if result.as_good else lost + 1
        if lost == 2:
            return


def effective_context(results: Sequence[LengthResult]) -> int:
    """Returns the longest length up to which the whole text was never worse, or half the first
    length if it always was.
    """
    best = results[0].length // 2
    for result in sorted(results, key=lambda r: r.length):
        if not result.as_good:
            break
        best = result.length
    return best
