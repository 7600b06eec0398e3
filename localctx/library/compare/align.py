"""Aligns the clauses of two versions of a document: first equal clauses in the same order, then equal clauses in other
places, then similar clauses.
"""

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from localctx.library.compare.clauses import Clause
from localctx.library.wording.word_forms import FUNCTION_WORDS

_SIMILAR = 0.45  # similarity from which two clauses of one place are versions of each other
_SIMILAR_ELSEWHERE = 0.75  # and two clauses of different places, of at least so many words:
_MIN_WORDS = 5
_GAIN = 0.05  # gain in similarity from which a clause is joined to its neighbour, because it was divided or united
_MOST_PAIRS = 16_000_000  # of clauses that are compared with each other
_MOST_CELLS = 400_000_000  # of a table of equal clauses
_FIRST_LETTER, _LETTERS = 0x10000, 0xF0000  # each word becomes one character, so that similarity counts words

GroupScore = Callable[[tuple[int, ...]], float]
"""Returns how similar clauses in a row (indices) are to the other version, from 0 to 1."""


@dataclass(frozen=True)
class ClausePair:
    """Says that the clauses ``old`` of the old version became the clauses ``new`` of the new version. Both are indices
    of neighbouring clauses.

    A deleted clause has an empty ``new``, an inserted clause an empty ``old``. ``moved`` is True if the order of
    clauses changed.
    """

    old: tuple[int, ...]
    new: tuple[int, ...]
    moved: bool = False


def align(old: Sequence[Clause], new: Sequence[Clause]) -> list[ClausePair]:
    """Align the clauses of two versions. Returns pairs, in which each clause occurs once: first the pairs with new
    clauses, in the order of the new version, then the deleted clauses.
    """
    equal = _in_order([c.key for c in old], [c.key for c in new])
    pairs = dict(equal)
    _add_elsewhere(pairs, old, new)
    similar = _Similar(old, new, equal)
    similar.add(pairs)
    groups = similar.with_neighbours(pairs)
    staying = _longest_rise([(group[0][0], group[1][0]) for group in groups])
    found = [ClausePair(a, b, (a[0], b[0]) not in staying) for a, b in groups]
    used_old, used_new = {i for a, _ in groups for i in a}, {j for _, b in groups for j in b}
    found += [ClausePair((), (j,)) for j in range(len(new)) if j not in used_new]
    found.sort(key=lambda pair: pair.new[0])
    return found + [ClausePair((i,), ()) for i in range(len(old)) if i not in used_old]


def _in_order(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Returns pairs of equal clauses whose order is the same in both versions.

    Clauses that occur once are aligned first (patience diff), the others between them.
    """
    once_old, once_new = _once(old), _once(new)
    unique = [(i, once_new[key]) for key, i in once_old.items() if key in once_new]
    anchors = [*sorted(_longest_rise(unique)), (len(old), len(new))]
    found, a, b = list[tuple[int, int]](), 0, 0
    for i, j in anchors:
        found += [(a + x, b + y) for x, y in _common(old[a:i], new[b:j])]
        found.append((i, j))
        a, b = i + 1, j + 1
    return found[:-1]


def _once(keys: Sequence[str]) -> dict[str, int]:
    places = defaultdict[str, list[int]](list)
    for i, key in enumerate(keys):
        places[key].append(i)
    return {key: found[0] for key, found in places.items() if len(found) == 1}


def _common(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yields the pairs of a longest common subsequence. If the sequences are very long, only their beginnings are
    compared.
    """
    from rapidfuzz.distance import LCSseq

    if not old or not new:
        return
    if len(old) * len(new) > _MOST_CELLS:
        most = int(_MOST_CELLS**0.5)
        old, new = old[:most], new[:most]
    for block in LCSseq.opcodes(old, new):
        if block.tag == "equal":
            yield from zip(range(block.src_start, block.src_end), range(block.dest_start, block.dest_end), strict=True)


def _longest_rise(pairs: Sequence[tuple[int, int]]) -> set[tuple[int, int]]:
    """Returns the longest subset of ``pairs`` whose order is the same on both sides."""
    ends, last, before = list[int](), list[int](), dict[int, int]()
    ordered = sorted(pairs)
    for k, (_, j) in enumerate(ordered):
        at = bisect_left(ends, j)
        ends[at : at + 1], last[at : at + 1] = [j], [k]
        before[k] = last[at - 1] if at else -1
    found, k = set[tuple[int, int]](), last[-1] if last else -1
    while k >= 0:
        found.add(ordered[k])
        k = before[k]
    return found


def _add_elsewhere(pairs: dict[int, int], old: Sequence[Clause], new: Sequence[Clause]) -> None:
    """Add pairs of equal clauses in any order."""
    used, places = set(pairs.values()), defaultdict[str, deque[int]](deque)
    for j, clause in enumerate(new):
        if j not in used:
            places[clause.key].append(j)
    for i, clause in enumerate(old):
        if i not in pairs and places.get(clause.key):
            pairs[i] = places[clause.key].popleft()


class _Similar:
    """Compares clauses by their words. ``anchors`` are pairs of equal clauses in the same order. Two clauses are in one
    place if they are between the same anchors.
    """

    def __init__(self, old: Sequence[Clause], new: Sequence[Clause], anchors: Sequence[tuple[int, int]]) -> None:
        self._letters = dict[str, str]()
        self._old, self._new = ([self._written(clause) for clause in side] for side in (old, new))
        self._content = [[self._written(clause, True) for clause in side] for side in (old, new)]
        self._old_anchors, self._new_anchors = [i for i, _ in anchors], [j for _, j in anchors]

    def add(self, pairs: dict[int, int]) -> None:
        """Add pairs of similar clauses, the most similar first."""
        used = set(pairs.values())
        old = [i for i in range(len(self._old)) if i not in pairs]
        new = [j for j in range(len(self._new)) if j not in used]
        for i, j in self._candidates(old, new):
            if i not in pairs and j not in used:
                pairs[i] = j
                used.add(j)

    def with_neighbours(self, pairs: dict[int, int]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Returns the pairs as groups of clauses: if a clause was divided into several, or several were united into
        one, their neighbours join the group.
        """
        used_old, used_new = set(pairs), set(pairs.values())
        groups = list[tuple[tuple[int, ...], tuple[int, ...]]]()
        for i, j in sorted(pairs.items()):
            a: tuple[int, ...] = (i,)
            b: tuple[int, ...] = (j,)
            if self._old[i] != self._new[j]:
                a, b = self._joined(i, j, used_old, used_new)
            groups.append((a, b))
        return groups

    def _joined(
        self, i: int, j: int, used_old: set[int], used_new: set[int]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns the pair (i, j) as two groups, each with those neighbours that make the groups more similar."""
        b = self._grown((j,), used_new, self._new, lambda new: self._score((i,), new))
        return self._grown((i,), used_old, self._old, lambda old: self._score(old, b)), b

    def _candidates(self, old: list[int], new: list[int]) -> list[tuple[int, int]]:
        """Returns pairs of clauses that may be versions of each other, most similar first. Pairs in one place are
        preferred.
        """
        found = list[tuple[float, int, int, int]]()
        for own, others in _portions(old, new):
            scores = self._scores(own, others)
            places = np.array([bisect_left(self._old_anchors, i) for i in own])[:, None]
            same = places == np.array([bisect_left(self._new_anchors, j) for j in others])[None, :]
            lengths = np.array([len(self._old[i]) for i in own])[:, None]
            wanted = (same & (scores >= _SIMILAR)) | ((scores >= _SIMILAR_ELSEWHERE) & (lengths >= _MIN_WORDS))
            for x, y in np.argwhere(wanted):
                i, j = own[x], others[y]
                found.append((-float(scores[x, y]) - 0.2 * bool(same[x, y]), abs(i - j), i, j))
        return [(i, j) for _, _, i, j in sorted(found)]

    def _scores(self, own: Sequence[int], others: Sequence[int]) -> np.ndarray:
        """Returns the similarity of each clause of ``own`` to each of ``others``, from 0 to 1: the mean of the
        similarity of all words and the similarity of the content words.
        """
        from rapidfuzz.distance import Indel
        from rapidfuzz.process import cdist

        total = np.zeros((len(own), len(others)), np.float32)
        for old, new in ((self._old, self._new), (self._content[0], self._content[1])):
            queries, choices = [old[i] for i in own], [new[j] for j in others]
            total += cdist(queries, choices, scorer=Indel.normalized_similarity, dtype=np.float32)
        return total / 2

    def _score(self, old: tuple[int, ...], new: tuple[int, ...]) -> float:
        from rapidfuzz.distance import Indel

        return Indel.normalized_similarity("".join(self._old[i] for i in old), "".join(self._new[j] for j in new))

    def _grown(self, group: tuple[int, ...], used: set[int], side: Sequence[str], score: GroupScore) -> tuple[int, ...]:
        """Returns the ``group``, extended by those neighbours that are in no pair and improve the ``score`` of the
        group.
        """
        best = score(group)
        for step in (1, -1):
            while True:
                at = group[-1] + 1 if step > 0 else group[0] - 1
                longer = (*group, at) if step > 0 else (at, *group)
                if at in used or not 0 <= at < len(side) or score(longer) < best + _GAIN:
                    break
                group, best = longer, score(longer)
                used.add(at)
        return group

    def _written(self, clause: Clause, content: bool = False) -> str:
        """Returns a clause with one character for each word, or one for each content word."""
        words = [key for key in clause.keys if key[0].isalnum()] or clause.keys
        if content:
            words = [word for word in words if word.casefold() not in FUNCTION_WORDS] or words
        return "".join(self._letter(word.casefold()) for word in words)

    def _letter(self, word: str) -> str:
        if word not in self._letters:
            self._letters[word] = chr(_FIRST_LETTER + len(self._letters) % _LETTERS)
        return self._letters[word]


def _portions(old: list[int], new: list[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Yields the clauses to compare with each other: all of them or, if there are very many, only clauses at about the
    same place in both documents.
    """
    if not old or not new:
        return
    count = -(-len(old) * len(new) // _MOST_PAIRS)
    for k in range(count):
        own = old[k * len(old) // count : (k + 1) * len(old) // count]
        others = new[k * len(new) // count : (k + 1) * len(new) // count]
        if own and others:
            yield own, others
