"""Excerpts of a document as a reader wants them: whole sentences, lines that were wrapped joined, the words marked.

Nothing here changes an offset: a line break becomes a space, character by character.
"""

import re

from localctx.library.citations.cite import TextRange
from localctx.library.citations.claims import claim_of
from localctx.library.wording.sentences import sentences
from localctx.library.wording.word_forms import word_forms

AROUND = 140  # characters before and after a quote, or fewer
WRAPPED = 40  # characters of a line that its writer may not have ended

_BREAK = re.compile(r"(?<=\S)[^\S\n]*\n[^\S\n]*(?=\S)")
_OWN_LINE = re.compile(r"[-*•#|>]|\d+(?:\.\d+)*[.)]\s|\(?[a-zA-Z0-9]{1,3}\)\s|\d+(?:\.\d+)+\s+[A-Z]")


def reflowed(text: str) -> str:
    """Returns ``text`` with a space for each line break inside a paragraph. Empty lines, items of lists, rows of tables
    and short lines stay. The result is as long as the text.
    """

    def joined(gap: re.Match[str]) -> str:
        line = text[text.rfind("\n", 0, gap.start()) + 1 : gap.start()]
        after = text[gap.end() : gap.end() + 16]
        wrapped = after[:1].islower() or line.endswith((",", "-")) or len(line.strip()) >= WRAPPED
        keeps = line.endswith("|") or _OWN_LINE.match(after)
        return " " * len(gap.group()) if wrapped and not keeps else gap.group()

    return _BREAK.sub(joined, text)


def around(text: str, start: int, end: int) -> TextRange:
    """Returns the characters of ``text`` to show with a quote at ``start..end``: the sentences that it is in and those
    beside them, up to AROUND characters before and after it. A sentence that is longer is cut between two words.
    """
    low, high = max(0, start - AROUND), min(len(text), end + AROUND)
    near = list(sentences(text, max(0, low - AROUND), min(len(text), high + AROUND)))
    before = [a for a, _ in near if low <= a <= start]
    after = [b for _, b in near if end <= b <= high]
    return before[0] if before else _word_start(text, low, start), after[-1] if after else _word_end(text, end, high)


def _word_start(text: str, low: int, start: int) -> int:
    """Returns where the first whole word of ``text[low:start]`` begins."""
    gap = re.search(r"\s", text[low:start])
    return low if not low else low + gap.end() if gap else start


def _word_end(text: str, end: int, high: int) -> int:
    """Returns where the last whole word of ``text[end:high]`` ends."""
    gap = re.search(r"\s\S*$", text[end:high])
    return high if high == len(text) else end + gap.start() if gap else end


def words_to_mark(text: str, start: int, end: int, said: str) -> list[TextRange]:
    """Returns the characters of ``text[start:end]`` with the words of what was ``said``, those beside each other as one
    range, with words such as "the" between them; a range that only repeats words of another is left out.
    """
    claim, found = claim_of(said).words, list[tuple[int, int, frozenset[str]]]()
    continues = False
    for word in filter(lambda word: word.is_content, word_forms(text[start:end])):
        if word.form in claim:
            first, _, forms = found.pop() if continues else (start + word.start, 0, frozenset[str]())
            found.append((first, start + word.end, forms | {word.form}))
        continues = word.form in claim
    return [(a, b) for a, b, forms in found if not any(forms < others for *_, others in found)]
