"""Splits texts into sentences and clauses, and scores these as evidence of an answer.

Evidence that contains the answer as whole words ranks first. Sources do not contain the word "yes" or "no". Evidence of
such answers is scored by the words of the question.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from localctx.library.citations.rarity import rarity, share_of
from localctx.library.wording.sentences import sentences
from localctx.library.wording.word_forms import WordForm, word_forms
from localctx.library.wording.words import in_spaces
from localctx.library.wording.yes_no import clause_after

LONG_WORDS, LONG_CHARACTERS = 40, 300  # a longer sentence is divided into clauses
MIN_WORDS = 5  # words of a clause
MAX_RUN = 3  # sentences or clauses in a row that are evidence together
RUN_COST = 0.2  # weighted share of the answer's words that each further sentence must add
YES_NO_QUESTION = 0.55  # weight of the question's words in the evidence of a yes or no; the answer's words get the rest

_CUT = re.compile(
    r"(?<=[;:])\s+|(?<=[；：])\s*"  # noqa: RUF001
    r"|(?<=,)\s+(?=(?:and|or|but|nor|provided|except|unless|if|which|who|whose|where|when|while|whereas|although|because|"
    r"und|oder|aber|sondern|sofern|soweit|wenn|falls|weil|dass|wobei|während|es sei denn|"
    r"et|ou|mais|donc|car|si|lorsque|sauf|y|o|pero|sino|cuando|salvo|porque)\b)"
    r"|(?<=，)(?=而|但|并|且|或|如|若|除|则|不过)",  # noqa: RUF001
    re.IGNORECASE,
)
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]{1,2}|[^\W\u3040-\u30ff\u3400-\u9fff]+")  # two CJK signs are one word


class EvidenceRange(NamedTuple):
    """A sentence or clause that can be evidence: the characters ``start..end`` of a text.

    ``terms`` are the normalized words of the sentence or clause. ``words`` are the same words as one text, each between
    spaces, in which an answer can be searched.
    """

    start: int
    end: int
    terms: frozenset[str]
    words: str


class ScoredRange(NamedTuple):
    """A run of neighbouring sentences or clauses, at characters ``start..end`` of a text, with its ``score`` as
    evidence of an answer. The higher the score, the better the evidence.

    ``contains`` is True if the run has the answer word for word. ``answer`` is the weighted share of the answer's terms
    that the run has, and ``question`` the weighted share of the question's terms. If the answer begins with yes or no,
    ``answer`` is the mean of ``question`` and the weighted share of the words that follow the yes or no.
    """

    start: int
    end: int
    contains: bool
    answer: float
    question: float
    score: tuple[bool, float, float]


@lru_cache(16)
def evidence_of(text: str) -> tuple[EvidenceRange, ...]:
    """Returns the sentences and clauses of ``text`` that can be cited."""
    found = evidence_ranges(text, 0, len(text))
    return tuple(EvidenceRange(a, b, terms_of(text[a:b]), in_spaces(text[a:b])) for a, b in found)


def count_words(text: str) -> int:
    """Returns the number of words of a text; two kana or Chinese characters count as one word."""
    return len(_WORD.findall(text))


def evidence_ranges(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields (start, end) of the sentences of ``text[start:end]``, in order.

    A sentence of more than LONG_WORDS words or LONG_CHARACTERS characters is divided into clauses of at least MIN_WORDS
    words.
    """
    for first, last in sentences(text, start, end):
        yield from _clauses(text, first, last)


def terms_of(text: str, only_content: bool = False) -> frozenset[str]:
    """Returns the normalized words of a text. In scripts without spaces, returns each pair of neighbouring characters
    instead.

    If ``only_content``, words such as "the" are left out, unless the text has only such words.
    """
    forms = list(word_forms(text))
    pairs = (a.form + b.form for a, b in pairwise(forms) if a.end == b.start and _is_character(a) and _is_character(b))
    chosen = [word for word in forms if word.is_content] if only_content else forms
    return frozenset(word.form for word in chosen or forms) | frozenset(pairs)


def _is_character(word: WordForm) -> bool:
    return "\u3040" <= word.form[0] <= "\u9fff"


class EvidenceScorer:
    """Scores runs of sentences or clauses as evidence of an answer to a question. Terms that are rare in ``ranges``,
    all sentences and clauses, weigh more (IDF).
    """

    def __init__(self, answer: str, question: str, ranges: Iterable[EvidenceRange]) -> None:
        counts, total = Counter[str](), 0
        for one in ranges:
            counts.update(one.terms)
            total += 1
        clause = clause_after(answer)
        self.is_yes_no = clause is not None
        said, asked = clause if clause is not None else answer, terms_of(question, only_content=True)
        self._answer, self._question = (
            {term: rarity(total, counts[term]) for term in terms} for terms in (terms_of(said), asked)
        )
        can_stand = not self.is_yes_no and any(word.is_content for word in word_forms(said))
        self._words = in_spaces(said) if can_stand else ""

    def best(self, ranges: Sequence[EvidenceRange]) -> ScoredRange:
        """Returns the run of up to MAX_RUN neighbouring ``ranges`` that is the best evidence."""
        lengths = range(1, 2 if self.is_yes_no else MAX_RUN + 1)
        runs = (ranges[i : i + n] for i in range(len(ranges)) for n in lengths if i + n <= len(ranges))
        return max((self.together(run) for run in runs), key=lambda evidence: evidence.score)

    def each(self, ranges: Sequence[EvidenceRange]) -> list[ScoredRange]:
        """Returns a ScoredRange for each of ``ranges``, scored as evidence by itself."""
        return [self.together([one]) for one in ranges]

    def together(self, run: Sequence[EvidenceRange]) -> ScoredRange:
        """Returns a ScoredRange for the whole ``run`` of neighbouring sentences or clauses."""
        terms, words = frozenset[str]().union(*(one.terms for one in run)), "".join(one.words for one in run)
        answer, question = share_of(terms, self._answer), share_of(terms, self._question)
        contains = bool(self._words) and self._words in words.replace("  ", " ")
        if self.is_yes_no:
            answer = YES_NO_QUESTION * question + (1 - YES_NO_QUESTION) * answer if self._answer else question
        score = contains, answer - RUN_COST * (len(run) - 1), question
        return ScoredRange(run[0].start, run[-1].end, contains, answer, question, score)


def _clauses(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    sentence = text[start:end]
    if len(sentence) > LONG_CHARACTERS or count_words(sentence) > LONG_WORDS:
        for cut in _CUT.finditer(text, start, end):
            if min(count_words(text[start : cut.start()]), count_words(text[cut.end() : end])) >= MIN_WORDS:
                yield start, cut.start()
                start = cut.end()
    yield start, end
