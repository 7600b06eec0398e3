"""Finds the words that differ between two versions of a clause. A date or a number is one word here."""

import re
from collections.abc import Iterator, Sequence

from localctx.library.compare.clauses import Clause
from localctx.library.compare.compared_words import Word
from localctx.library.compare.dates import dates_in
from localctx.library.compare.meaning import NUMBERS, WordRun

WordRange = tuple[int, int, int, int]
"""A run of old words and the run of new words that replaces it: (old start, old end, new start, new end)."""


def changed_runs(old: Sequence[Clause], new: Sequence[Clause]) -> list[tuple[WordRun, WordRun]]:
    """Compare the words of two versions of neighbouring clauses. Returns the runs of words that differ, as (old, new).
    One of the two is empty where words were only added or removed.
    """
    (old_text, old_words), (new_text, new_words) = map(_units, (old, new))
    return [
        (WordRun(old_text, *_characters(old_words, a, b)), WordRun(new_text, *_characters(new_words, c, d)))
        for a, b, c, d in _joined(_differences(old_words, new_words), old_words)
    ]


def _units(clauses: Sequence[Clause]) -> tuple[str, list[Word]]:
    """Returns the text of clauses, with spaces in place of all white space, and the words of the text. A date or a
    number is one word.
    """
    start = clauses[0].start
    text = re.sub(r"\s", " ", clauses[0].text[start : clauses[-1].end])
    ends = dict(found.span() for found in NUMBERS.finditer(text))
    ends |= {a: b for a, b, _ in dates_in(text)}
    found, end = list[Word](), 0
    for key, first, last in (word for clause in clauses for word in clause.words):
        if found and first - start < end:
            before = found.pop()
            found.append(Word(f"{before.key} {key}", before.start, last - start))
        else:
            end = ends.get(first - start, 0)
            found.append(Word(key, first - start, last - start))
    return text, found


def _differences(old: Sequence[Word], new: Sequence[Word]) -> Iterator[WordRange]:
    from rapidfuzz.distance import LCSseq

    a = c = 0
    for block in LCSseq.opcodes([word.key for word in old], [word.key for word in new]):
        if block.tag == "equal":
            if (a, c) != (block.src_start, block.dest_start):
                yield a, block.src_start, c, block.dest_start
            a, c = block.src_end, block.dest_end
    if (a, c) != (len(old), len(new)):
        yield a, len(old), c, len(new)


def _joined(runs: Iterator[WordRange], old: Sequence[Word]) -> Iterator[WordRange]:
    """Yields the runs. Two replacements with only a punctuation mark between them are joined into one run."""
    last: WordRange | None = None
    for run in runs:
        if last and run[0] - last[1] == 1 and _replaces(last) and _replaces(run) and not old[last[1]].key[0].isalnum():
            last = last[0], run[1], last[2], run[3]
        else:
            if last:
                yield last
            last = run
    if last:
        yield last


def _replaces(run: WordRange) -> bool:
    return run[0] < run[1] and run[2] < run[3]


def _characters(words: Sequence[Word], first: int, end: int) -> tuple[int, int]:
    if first < end:
        return words[first].start, words[end - 1].end
    at = words[first].start if first < len(words) else words[-1].end if words else 0
    return at, at
