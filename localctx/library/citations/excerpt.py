"""Makes excerpts of a document readable: joins wrapped lines, and finds the words to mark.

Positions never change: each character of a line break becomes a space.
"""

import re

from localctx.library.citations.cite import TextRange
from localctx.library.citations.claims import claim_of
from localctx.library.wording.word_forms import word_forms

WRAPPED = 40  # a line of this many characters may have been wrapped

_BREAK = re.compile(r"(?<=\S)[^\S\n]*\n[^\S\n]*(?=\S)")
_OWN_LINE = re.compile(r"[-*•#|>]|\d+(?:\.\d+)*[.)]\s|\(?[a-zA-Z0-9]{1,3}\)\s|\d+(?:\.\d+)+\s+[A-Z]")


def reflowed(text: str) -> str:
    """Returns ``text`` with wrapped lines joined: a line break inside a paragraph becomes a space. The length stays the
    same.

    Line breaks at empty lines, list items, table rows and short lines stay.
    """

    def joined(gap: re.Match[str]) -> str:
        line = text[text.rfind("\n", 0, gap.start()) + 1 : gap.start()]
        after = text[gap.end() : gap.end() + 16]
        wrapped = after[:1].islower() or line.endswith((",", "-")) or len(line.strip()) >= WRAPPED
        keeps = line.endswith("|") or _OWN_LINE.match(after)
        return " " * len(gap.group()) if wrapped and not keeps else gap.group()

    return _BREAK.sub(joined, text)


def words_to_mark(text: str, start: int, end: int, said: str) -> list[TextRange]:
    """Returns the ranges of ``text[start:end]`` that have words of ``said``, such as an answer. They are marked on
    screen.

    Neighbouring words become one range, including words such as "the" between them. A range that only repeats some
    words of another range is left out.
    """
    claim, found = claim_of(said).words, list[tuple[int, int, frozenset[str]]]()
    continues = False
    for word in filter(lambda word: word.is_content, word_forms(text[start:end])):
        if word.form in claim:
            first, _, forms = found.pop() if continues else (start + word.start, 0, frozenset[str]())
            found.append((first, start + word.end, forms | {word.form}))
        continues = word.form in claim
    return [(a, b) for a, b, forms in found if not any(forms < others for *_, others in found)]
