"""Finds the sentences of a document's main text. Repeated sentences, licences and notes on the edition are left out.

They are recognized by what they have in common, not by their publisher: the same words again, addresses, capitals, and
words of licences, which stand close together. Texts of Project Gutenberg also mark where the book begins and ends.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from localctx.library.citations.cite import TextRange
from localctx.library.wording.sentences import sentences
from localctx.library.wording.words import split_words
from localctx.store.documents import Span

LONG = 12  # words; sentences of this length are nearly the same if they begin or end with the same half
NEAR = 20  # sentences before and after a sentence, among which words of licences are counted
DENSE = 0.15  # share of the sentences near by with words of licences, from which all of them are left out
MOST = 0.5  # share of the text; if more is of licences, licences are what the document is about
_NUMBERS = re.compile(r"\d+")
_BEGINS = re.compile(r"^\W*START OF (?:THE|THIS) PROJECT GUTENBERG EBOOK[^\n]*$", re.MULTILINE)
_ENDS = re.compile(r"^\W*END OF (?:THE |THIS )?PROJECT GUTENBERG[^\n]*$", re.MULTILINE | re.IGNORECASE)
_ADDRESS = re.compile(r"https?://|\bwww\.\w|\w@\w+\.\w|\bISBN\b")
_LICENCE = re.compile(
    r"\b(?:copyright(?:ed|s)?|licen[cs](?:e|es|ed|ee|ees|or|ing)|all rights reserved|trademarks?|royalt(?:y|ies)|"
    r"permission is granted|public domain|warrant(?:y|ies)|redistribut\w+|without charge|refund|e-?text|"
    r"proofread\w*|(?:printed|published) (?:by|in the)|cover texts?)\b|\u00a9"
    r"|^\W*(?:e-?book|e-?text|produced|prepared|transcribed|scanned|digiti[sz]ed)\b.*\b(?:by|from)\b",
    re.IGNORECASE,
)


def main_sentences(text: str, found: Sequence[TextRange]) -> list[TextRange]:
    """Returns those of the sentences ``found`` in ``text`` that are of its main text. [] if none is."""
    left = _without(found, _outside(text, found) | _repeated(text, found))
    formal, lengths = _formal(text, left), np.array([end - start for start, end in left], int)
    return _without(left, formal) if lengths[formal].sum() <= MOST * len(text) else left


def sentences_below(text: str, headings: Sequence[Span] = ()) -> list[TextRange]:
    """Returns the ranges of all sentences of ``text``. None begins with the words of a heading."""
    words = [(h.start, h.start + len(h.label)) for h in headings if text.startswith(h.label, h.start)]
    cuts = sorted({0, len(text), *(cut for both in words for cut in both)})
    return [part for start, end in pairwise(cuts) for part in sentences(text, start, end)]


def _without(found: Sequence[TextRange], left_out: np.ndarray) -> list[TextRange]:
    return [part for part, out in zip(found, left_out, strict=True) if not out]


def _outside(text: str, found: Sequence[TextRange]) -> np.ndarray:
    """Returns which sentences [n] stand before the mark of the text's beginning, or after that of its end."""
    begins, ends = _BEGINS.search(text), _ENDS.search(text)
    first, last = begins.end() if begins else 0, ends.start() if ends else len(text)
    return np.array([not first <= start <= end <= last for start, end in found], bool)


def _formal(text: str, found: Sequence[TextRange]) -> np.ndarray:
    """Returns which sentences [n] are in capitals, or have words of a licence, or stand among such sentences."""
    formal = np.array([_is_formal(text[start:end]) for start, end in found], bool)
    if len(found) <= 2 * NEAR:
        return formal
    return formal | (np.convolve(formal, np.ones(2 * NEAR + 1), "same") >= DENSE * (2 * NEAR + 1))


def _is_formal(sentence: str) -> bool:
    letters = [c for c in sentence if c.isalpha()]
    in_capitals = 2 * sum(c.isupper() for c in letters) > len(letters)
    return in_capitals or bool(_ADDRESS.search(sentence) or _LICENCE.search(sentence))


def _repeated(text: str, found: Sequence[TextRange]) -> np.ndarray:
    """Returns which sentences [n] come again nearly word for word; numbers may differ."""
    keys = [set(_keys(_NUMBERS.sub("0", text[start:end]))) for start, end in found]
    counts = Counter(key for own in keys for key in own)
    return np.array([any(counts[key] > 1 for key in own) for own in keys], bool)


def _keys(sentence: str) -> Iterator[tuple[str, ...]]:
    """Yields what a sentence has in common with sentences that are nearly the same: its words, or either half."""
    words = split_words(sentence)
    yield tuple(words)
    if len(words) >= LONG:
        yield ("begins", *words[: len(words) // 2])
        yield ("ends", *words[len(words) // 2 :])
