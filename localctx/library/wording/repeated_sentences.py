"""Finds and removes sentences that repeat an earlier sentence, except for case, punctuation and a word or two."""

from collections import Counter
from collections.abc import Sequence

from localctx.library.wording.sentences import ENDS, sentences
from localctx.library.wording.words import split_words
from localctx.store.search_words import COMMON_WORDS

ALIKE = 0.7  # Dice similarity of the words of two sentences from which one repeats the other
MIN_WORDS = 4  # a shorter sentence must be repeated word for word


def without_repeated_sentences(text: str) -> str:
    """Returns ``text`` without sentences that repeat an earlier one. The remaining text keeps its white space."""
    said, kept, at = list[list[str]](), list[str](), 0
    for start, end in sentences(text, 0, len(text)):
        words = split_words(text[start:end])
        if not words or not any(repeats(words, earlier) for earlier in said):
            kept.append(text[at:end] if kept else text[start:end])
            said.append(words)
        at = end
    return "".join(kept).strip()


def ends_in_repeats(text: str, number: int) -> bool:
    """Returns True if the last ``number`` sentences of ``text`` are complete, and each repeats an earlier one."""
    if not text or text.rstrip("\"'”’)] \n")[-1:] not in ENDS:  # noqa: RUF001
        return False
    said = [split_words(text[start:end]) for start, end in sentences(text, 0, len(text))]
    last = range(max(0, len(said) - number), len(said))
    return len(said) > number and all(any(repeats(said[i], earlier) for earlier in said[:i]) for i in last)


def repeats(words: Sequence[str], earlier: Sequence[str]) -> bool:
    """Returns True if a sentence of these ``words`` repeats an ``earlier`` sentence: it has nearly the same words.

    The words that only the new sentence has must be common words, such as "the".
    """
    if list(words) == list(earlier):
        return True
    if min(len(words), len(earlier)) < MIN_WORDS or {*words} - {*earlier} - COMMON_WORDS:
        return False
    common = sum((Counter(words) & Counter(earlier)).values())
    return 2 * common >= ALIKE * (len(words) + len(earlier))
