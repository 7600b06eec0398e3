"""Orders the letters and words of lines in scripts that are written from the right, such as Arabic and Hebrew.

PDFium takes the letters of a line to be written from the left, and reverses them also where the file writes them from
the right. Here, the positions of the letters decide. In a ligature, whose letters share one place, lam comes before
alef.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from localctx.library.parsers.pdf.letters import Letter

_LAM, _ALEFS = "\u0644", "\u0622\u0623\u0625\u0627\u0671"


def is_from_right(text: str) -> bool:
    """Returns True if the first letter of ``text`` belongs to a script written from the right."""
    return bool(text) and unicodedata.bidirectional(text[0]) in ("R", "AL")


def in_reading_order(letters: Iterable[Letter]) -> Iterator[Letter]:
    """Yields the letters of a page, those of each line in reading order."""
    for _, line in groupby(letters, lambda letter: letter.text == "\n"):
        yield from _line(list(line))


def _line(letters: list[Letter]) -> list[Letter]:
    """Returns the letters of a line. Puts the words in reading order, and the letters of each word."""
    if not any(is_from_right(letter.text) for letter in letters):
        return letters
    words = [_word(list(word)) for _, word in groupby(letters, lambda letter: letter.text.isspace())]
    for places in _phrases(words):
        phrase = sorted((words[i] for i in places), key=_right, reverse=True)
        for i, word in zip(places, phrase, strict=True):
            words[i] = word
    return [letter for word in words for letter in word]


def _phrases(words: Sequence[list[Letter]]) -> Iterator[list[int]]:
    """Yields the indices of words that follow each other on a line and are written from the right, and of numbers
    between such words.
    """
    places = list[int]()
    for i, word in enumerate([*words, []]):
        if word and word[0].text.isspace():
            continue
        kinds = {unicodedata.bidirectional(letter.text) for letter in word}
        goes_on = places and word and "L" not in kinds and _is_beside(words[places[0]][0], word[0])
        if not goes_on:
            while places and not any(is_from_right(letter.text) for letter in words[places[-1]]):
                places.pop()
            yield places
            places = []
        places += [i] if goes_on or kinds & {"R", "AL"} else []


def _right(word: list[Letter]) -> float:
    return max(letter.turned.right for letter in word)


def _word(word: list[Letter]) -> list[Letter]:
    """Returns the letters of a word from right to left; numbers and Latin letters in it run from left to right."""
    if not any(is_from_right(letter.text) for letter in word) or not all(_is_beside(word[0], other) for other in word):
        return word
    marks, bases = defaultdict[int, list[Letter]](list), [letter for letter in word if not _is_mark(letter)]
    bases.sort(key=_middle, reverse=True)
    for mark in filter(_is_mark, word):
        marks[min(range(len(bases)), key=lambda i: abs(_middle(bases[i]) - _middle(mark)))].append(mark)
    whole = [[base, *marks[i]] for i, base in enumerate(bases)]
    runs = [[whole[i] for i in run] for _, run in groupby(range(len(whole)), lambda i: _is_from_left(bases, i))]
    runs = [run[::-1] if _is_from_left([run[0][0]], 0) else _with_ligatures(run) for run in runs]
    return [letter for run in runs for base in run for letter in base]


def _is_beside(first: Letter, letter: Letter) -> bool:
    """Returns True if the two letters are on one line."""
    box, other = first.turned, letter.turned
    return letter.angle == first.angle and box.top < other.bottom and other.top < box.bottom


def _middle(letter: Letter) -> float:
    return letter.turned.left + letter.turned.right


def _is_mark(letter: Letter) -> bool:
    """Returns True for a sign above or below a letter, such as a vowel."""
    return unicodedata.bidirectional(letter.text) == "NSM"


def _is_from_left(bases: Sequence[Letter], i: int) -> bool:
    """Returns True if the letter ``bases[i]`` is a letter or digit that runs from left to right, or a point within a
    number.
    """
    kinds = [unicodedata.bidirectional(letter.text) for letter in bases[max(0, i - 1) : i + 2]]
    own = unicodedata.bidirectional(bases[i].text)
    return own in ("L", "EN", "AN") or (own in ("CS", "ES") and kinds[::2] in (["EN", "EN"], ["AN", "AN"]))


def _with_ligatures(run: list[list[Letter]]) -> list[list[Letter]]:
    """Returns letters with lam before alef where the two are one ligature."""
    for i, ((first, *_), (second, *_)) in enumerate(pairwise(run)):
        if first.text in _ALEFS and second.text == _LAM and first.ink == second.ink:
            run[i], run[i + 1] = run[i + 1], run[i]
    return run
