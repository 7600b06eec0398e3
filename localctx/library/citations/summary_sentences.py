"""Makes an extractive summary: selects the most informative sentences of a text, without a model.

Features and weights were chosen by ROUGE against human summaries of 50 stories: repeated names show the subject, while
quoted speech says little outside of its scene. Frequent words (SumBasic, Nenkova and Vanderwende, 2005) help for texts
without names. Sentence vectors (centroid, TextRank) were no better, and a model's likelihood takes minutes.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from localctx.library.citations.cite import TextRange
from localctx.library.citations.main_text import main_sentences, sentences_below
from localctx.library.wording.repeated_sentences import repeats
from localctx.library.wording.sentences import ENDS
from localctx.library.wording.words import split_words
from localctx.store.documents import Span
from localctx.store.search_words import COMMON_WORDS

MIN_WORDS, MAX_WORDS = 10, 60  # words of a sentence that can be chosen
MIN_MENTIONS = 3  # a name counts from this many mentions
PARTS = 10  # equal parts of the text; a chosen sentence makes others of its part less likely
OVER = 8  # words by which the last sentence may exceed the wanted number
SHARE = 3  # the summary is at most a third of the text
MIN_SUMMARY = 40  # words, if the text has as many
WEIGHTS = {"names": 1.0, "frequency": 0.25, "speech": -1.0, "first_person": -0.5}
KEY_WEIGHTS = {"alone": 3.0, "first": 2.0, "paragraph": 0.5}
MAX_KEY_WORDS = 40  # words of a key sentence
SPREAD, REDUNDANCY = 1.5, 1.5  # penalties for a part already chosen from, and for words already said

_NAME = re.compile(r"(?<=[\w,;] )[A-Z][\w'’]*[a-z]")  # noqa: RUF001
_SPEECH = re.compile(r"[\"“”«»„]")
_FIRST_PERSON = re.compile(r"\b(I|me|my|mine|we|us|our|you|your)\b")

_ITSELF = "agreement|article|book|contract|document|guide|lease|letter|manual|paper|policy|report|story|study"
_REFERS = re.compile(
    rf"^(?:we|our|my|you|your|he|she|it|they|this(?! (?:{_ITSELF})\b)|that|these|those|his|her|their|its|such|there|"
    r"then|so|and|but|or|yet|for instance|for example|however|therefore|thus|hence|moreover|furthermore|also|instead|"
    r"of course|here|once|(?:as|when) (?:he|she|it|they)|after (?:this|that)|[ai][tn] (?:this|that|these)|if not|"
    r"otherwise)\b|[\t<>{}|\u2022]",
    re.IGNORECASE,
)


def extract(text: str, words: int, headings: Sequence[Span] = ()) -> list[TextRange]:
    """Returns the ranges of sentences of the main text of ``text`` with about ``words`` words in total, in text order.

    A short text is not repeated whole: the summary has at most a third of the words of the text, or MIN_SUMMARY words.
    """
    candidates = _candidates(text, headings)
    budget = min(words, max(MIN_SUMMARY, sum(len(s.words) for s in candidates) // SHARE))
    return sorted((s.start, s.end) for s in _select(candidates, _scores(candidates), budget, len(text)))


def key_sentences(text: str, count: int, headings: Sequence[Span] = ()) -> list[TextRange]:
    """Returns the ranges of up to ``count`` sentences that tell what ``text`` is about, in text order: the best one of
    each of as many parts of the text. A sentence that cannot be understood alone is taken only if there is no other.
    """
    found = [s for s in _candidates(text, headings) if s.is_prose]
    scores = _scores(found) + [KEY_WEIGHTS["alone"] * s.stands_alone + _lead(text, s, i) for i, s in enumerate(found)]
    parts = [i * count // len(found) for i in range(len(found))]
    best = [max((i for i, p in enumerate(parts) if p == part), key=scores.__getitem__) for part in sorted(set(parts))]
    return [(found[i].start, found[i].end) for i in best]


def _lead(text: str, sentence: "_Sentence", number: int) -> float:
    """Returns the score of a sentence for its place: the first ones of the text, and of a paragraph, tell its topic."""
    begins = text[max(0, sentence.start - 2) : sentence.start].count("\n") == 2
    return KEY_WEIGHTS["first"] / (1 + number) + KEY_WEIGHTS["paragraph"] * begins


def _candidates(text: str, headings: Sequence[Span]) -> list["_Sentence"]:
    """Returns the sentences that can be chosen: complete ones of the main text, or else complete ones, or any."""
    found = [_Sentence.of(text, a, b) for a, b in sentences_below(text, headings)]
    prose = [s for s in found if s.is_prose]
    main = set(main_sentences(text, [(s.start, s.end) for s in prose]))
    return [s for s in prose if (s.start, s.end) in main] or prose or [s for s in found if s.words] or found


@dataclass(frozen=True)
class _Sentence:
    """A sentence at characters ``start..end`` of a text: its own ``text``, and its ``words`` in lower case."""

    start: int
    end: int
    text: str
    words: Sequence[str]

    @classmethod
    def of(cls, text: str, start: int, end: int) -> "_Sentence":
        return cls(start, end, text[start:end], split_words(text[start:end]))

    @property
    def is_prose(self) -> bool:
        """True for a complete sentence of usual length; False for headings, rows and lists."""
        ends = self.text.rstrip("\"'”’)]»")[-1:] in ENDS  # noqa: RUF001
        return ends and MIN_WORDS <= len(self.words) <= MAX_WORDS

    @property
    def stands_alone(self) -> bool:
        """True if the sentence needs no other one to be understood, and is neither speech, a question nor a list."""
        is_said = _SPEECH.search(self.text) or _FIRST_PERSON.search(self.text) or self.text.endswith("?")
        return (
            self.text[0].isupper() and len(self.words) <= MAX_KEY_WORDS and not (is_said or _REFERS.search(self.text))
        )

    @property
    def content(self) -> list[str]:
        """The content words."""
        return [word for word in self.words if word not in COMMON_WORDS and len(word) > 2]


def _scores(found: Sequence[_Sentence]) -> np.ndarray:
    """Returns the score of each sentence [n]: the weighted sum of the features, each in standard deviations."""
    mentions = Counter(name for s in found for name in _NAME.findall(s.text))
    counts = Counter(word for s in found for word in s.content)
    features: dict[str, Sequence[float]] = {
        "names": [sum(mentions[w] >= MIN_MENTIONS for w in set(re.findall(r"[\w'’]+", s.text))) for s in found],  # noqa: RUF001
        "frequency": [sum(counts[w] for w in s.content) / max(1, len(s.content)) for s in found],
        "speech": [bool(_SPEECH.search(s.text)) for s in found],
        "first_person": [len(_FIRST_PERSON.findall(s.text)) for s in found],
    }
    return sum((WEIGHTS[name] * _standardized(values) for name, values in features.items()), np.zeros(len(found)))


def _standardized(values: Sequence[float]) -> np.ndarray:
    array = np.asarray(values, float)
    return (array - array.mean()) / (array.std() + 1e-9) if len(array) else array


def _select(found: Sequence[_Sentence], scores: np.ndarray, budget: int, length: int) -> list[_Sentence]:
    """Returns the best sentences with about ``budget`` words in total.

    Penalizes sentences that repeat chosen ones or stand in a part of the text from which others were chosen.
    """
    parts = np.array([s.start * PARTS // max(1, length) for s in found], int)
    scores, left, chosen = scores.copy(), budget, list[_Sentence]()
    open_, sizes = np.ones(len(found), bool), np.array([len(s.words) for s in found])
    said = set[str]()
    content = [set(s.content) for s in found]
    while left > OVER and (fits := open_ & (sizes <= left + OVER)).any():
        repeated = np.array([len(c & said) / len(c) if c else 0.0 for c in content])
        best = int(np.argmax(np.where(fits, scores - REDUNDANCY * np.maximum(repeated - 0.6, 0), -np.inf)))
        open_[best] = False
        words = found[best].words
        if not any(repeats(words, other.words) or repeats(other.words, words) for other in chosen):
            chosen.append(found[best])
            left, said = left - sizes[best], said | content[best]
            scores[parts == parts[best]] -= SPREAD
    return chosen
