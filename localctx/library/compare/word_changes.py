"""Finds the words that differ between two versions of a clause."""

import re
from collections.abc import Iterator, Sequence

from localctx.library.compare.clauses import Clause
from localctx.library.compare.compared_words import Word
from localctx.library.compare.dates import dates_in
from localctx.library.compare.meaning import NUMBERS, Run

_BETWEEN = 1  # equal words between two changes that are shown as one, if they are punctuation or as short as "of"
_SHORT = 3  # letters


def changed_runs(old: Sequence[Clause], new: Sequence[Clause]) -> list[tuple[Run, Run]]:
    """Returns the runs of words that differ. Each of ``old`` and ``new`` has clauses in a row.

    A run that lies in a number or a date on both sides covers all of it. A run is empty where words were added.
    """
    old_words, new_words = ([word for clause in side for word in clause.words] for side in (old, new))
    texts = [_spaced(side) for side in (old, new)]
    found = list[tuple[Run, Run]]()
    for a, b, c, d in _joined(_differences(old_words, new_words), old_words):
        pair = (
            Run(texts[0], *_characters(old_words, a, b, old[0].start)),
            Run(texts[1], *_characters(new_words, c, d, new[0].start)),
        )
        pair = _widened(*pair)
        if found and (found[-1][0].end > pair[0].start or found[-1][1].end > pair[1].start):
            before = found.pop()
            pair = _united(before[0], pair[0]), _united(before[1], pair[1])
        found.append(pair)
    return found


def _spaced(clauses: Sequence[Clause]) -> str:
    return re.sub(r"\s", " ", clauses[0].text[clauses[0].start : clauses[-1].end])


def _differences(old: Sequence[Word], new: Sequence[Word]) -> Iterator[tuple[int, int, int, int]]:
    """Yields (start, end) in ``old`` and (start, end) in ``new`` of each run of words that differ."""
    from rapidfuzz.distance import LCSseq

    a = c = 0
    for block in LCSseq.opcodes([w.key for w in old], [w.key for w in new]):
        if block.tag == "equal":
            if (a, c) != (block.src_start, block.dest_start):
                yield a, block.src_start, c, block.dest_start
            a, c = block.src_end, block.dest_end
    if (a, c) != (len(old), len(new)):
        yield a, len(old), c, len(new)


def _joined(runs: Iterator[tuple[int, int, int, int]], old: Sequence[Word]) -> Iterator[tuple[int, int, int, int]]:
    """Yields the runs. Two replacements with only a short word between them become one."""
    last: tuple[int, int, int, int] | None = None
    for run in runs:
        if last and run[0] - last[1] == _BETWEEN and _replaces(last) and _replaces(run):
            between = old[last[1]].key
            if len(between) <= _SHORT and not between[0].isdigit():
                last = last[0], run[1], last[2], run[3]
                continue
        if last:
            yield last
        last = run
    if last:
        yield last


def _replaces(run: tuple[int, int, int, int]) -> bool:
    return run[0] < run[1] and run[2] < run[3]


def _characters(words: Sequence[Word], first: int, end: int, start: int) -> tuple[int, int]:
    """Returns the characters of ``words[first:end]``, counted from ``start``."""
    if first < end:
        return words[first].start - start, words[end - 1].end - start
    at = words[first].start - start if first < len(words) else (words[-1].end - start if words else 0)
    return at, at


def _widened(old: Run, new: Run) -> tuple[Run, Run]:
    wide = _whole(old), _whole(new)
    return (wide[0], wide[1]) if wide[0] and wide[1] else (old, new)


def _whole(run: Run) -> Run | None:
    """Returns the run with all of the number or date around it, or None if there is none."""
    spans = [(a, b) for a, b, _ in dates_in(run.clause)] + [found.span() for found in NUMBERS.finditer(run.clause)]
    around = [(a, b) for a, b in spans if a < run.end and run.start < b]
    if not around:
        return None
    return Run(run.clause, min(run.start, *(a for a, _ in around)), max(run.end, *(b for _, b in around)))


def _united(first: Run, second: Run) -> Run:
    return Run(first.clause, min(first.start, second.start), max(first.end, second.end))
