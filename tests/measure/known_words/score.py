"""How well a text that was read agrees with what is known of a file."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from known_words.source import Known, Place, words


@dataclass(frozen=True)
class Score:
    """Shares between 0 and 1.

    ``recall``: of the known words, those that were read. ``precision``: of the words that were read, those that are
    known. ``order``: of the known words of the body that were read, those that are in order, which is their longest
    common subsequence. ``places``: how many planted words were cited in the right part, and how many were planted.
    """

    recall: float
    precision: float
    order: float
    places: tuple[int, int] = (0, 0)


def score(text: str, known: Known, places: tuple[int, int] = (0, 0)) -> Score:
    """Compare the text that a reader gives with what is known."""
    read, body = words(text), Counter(known.body)
    found, wanted = Counter(read), body + Counter(known.notes)
    both = (found & wanted).total()
    added = sum(count for word, count in (found - wanted).items() if word not in known.free)
    in_order = common_length(known.body, read) / max(1, (found & body).total())
    return Score(both / wanted.total(), both / max(1, both + added), in_order, places)


def common_length(known: Sequence[str], read: Sequence[str]) -> int:
    """The length of the longest common subsequence, by the bits of one number (Hyyrö 2004)."""
    where = Counter[str]()
    for i, word in enumerate(known):
        where[word] |= 1 << i
    everything = left = (1 << len(known)) - 1
    for word in read:
        matched = left & where[word]
        left = ((left + matched) | (left - matched)) & everything
    return len(known) - left.bit_count()


def right_places(text: str, spans: Sequence, places: Sequence[Place]) -> tuple[int, int]:
    """How many planted words are in the part that their place names, and in no other of its kind."""
    return sum(_cited(text, spans, place) == {place.label} for place in places), len(places)


def _cited(text: str, spans: Sequence, place: Place) -> set[str]:
    pattern = r"\s*".join(map(re.escape, place.word))  # a line may end between two Chinese signs
    starts = [found.start() for found in re.finditer(pattern, text)]
    return {
        next((s.label for s in reversed(spans) if s.kind == place.kind and s.start <= start < s.end), "")
        for start in starts
    }


def mean(scores: Sequence[Score]) -> Score:
    """The mean of scores, and the sum of their places."""
    recall, precision, order = (
        sum(values) / len(scores) for values in zip(*((s.recall, s.precision, s.order) for s in scores), strict=True)
    )
    places = sum(s.places[0] for s in scores), sum(s.places[1] for s in scores)
    return Score(recall, precision, order, places)
