"""Finds sentences that were said already, up to case, punctuation and a word or two, and removes them from a text."""

from collections import Counter
from collections.abc import Sequence

from localctx.library.wording.sentences import ENDS, sentences
from localctx.library.wording.words import split_words
from localctx.store.search_words import COMMON_WORDS

ALIKE = 0.7  # share of their words that two sentences have in common (Dice) if one repeats the other
MIN_WORDS = 4  # of a sentence that may be repeated nearly; a shorter one only word for word


def without_repeated_sentences(text: str) -> str:
    """Returns ``text`` without each sentence that repeats an earlier one. What is left keeps its white space."""
    said, kept, at = list[list[str]](), list[str](), 0
    for start, end in sentences(text, 0, len(text)):
        words = split_words(text[start:end])
        if not words or not any(repeats(words, earlier) for earlier in said):
            kept.append(text[at:end] if kept else text[start:end])
            said.append(words)
        at = end
    return "".join(kept).strip()


def ends_in_repeats(text: str, number: int) -> bool:
    """True if ``text`` ends with ``number`` whole sentences which each repeat an earlier one."""
    if not text or text.rstrip("\"'”’)] \n")[-1:] not in ENDS:  # noqa: RUF001
        return False
    said = [split_words(text[start:end]) for start, end in sentences(text, 0, len(text))]
    last = range(max(0, len(said) - number), len(said))
    return len(said) > number and all(any(repeats(said[i], earlier) for earlier in said[:i]) for i in last)


def repeats(words: Sequence[str], earlier: Sequence[str]) -> bool:
    """True if a sentence of these ``words`` says the same as an ``earlier`` one: the same words, or nearly, and nothing
    but common words that the earlier one does not have.
    """
    if list(words) == list(earlier):
        return True
    if min(len(words), len(earlier)) < MIN_WORDS or {*words} - {*earlier} - COMMON_WORDS:
        return False
    common = sum((Counter(words) & Counter(earlier)).values())
    return 2 * common >= ALIKE * (len(words) + len(earlier))
