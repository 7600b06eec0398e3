"""Splits text into sentences. They end at empty lines and at punctuation, but not after abbreviations or initials. A
heading in Markdown, and a numbered one above its text, is a sentence of its own.
"""

import re
from collections.abc import Iterator

ENDS = ".!?…。！？"  # noqa: RUF001
LONG = 1000  # characters; a longer sentence is split at line ends
_GAP = re.compile(
    r"(?:(?<=[.!?…])|(?<=[.!?…][\"'”’)\]]))\s+"  # noqa: RUF001
    r"|(?:(?<=[。！？])|(?<=[。！？][”’」』）]))(?![”’」』）])\s*"  # noqa: RUF001
    r"|\n[^\S\n]*\n\s*"
    r"|\n(?=[^\S\n]*(?:[-*•#|>]|\d{1,2}[.)]|\(?[a-zA-Z0-9]{1,3}\))\s)"  # items of a list, headings, rows
    r"|\n(?=[^\S\n]*\d+(?:\.\d+)+[.)]?\s+[A-Z])"  # numbered clauses: 4.2 The rent
)
_HEADING = re.compile(r"^[^\S\n]{0,3}#{1,6}[^\S\n][^\n]*$", re.MULTILINE)
_NUMBERED_HEADING = re.compile(
    r"^[^\S\n]*\d{1,3}(?:\.\d{1,3})*[.)]?[^\S\n]+[^\W\d_a-z][^\n]*[^\s.!?…:;,][^\S\n]*$(?=\n[^\S\n]*(?P<below>[^\W\d_a-z][^\n]*))",
    re.MULTILINE,
)
MAX_HEADING = 8  # words
SHORTER = 0.7  # share of the length of the line below it that a heading has at most; a wrapped line is about as long
_NUMBER = re.compile(  # the number of a clause or item, which begins a sentence and does not end one
    r"(?:(?:article|art\.|chapter|clause|item|paragraph|part|schedule|section|sec\.|step|§+)\s*)?"
    r"[(\[]?(?:\d{1,3}(?:\.\d{1,3})*|[a-zA-Z]|[ivxIVX]{1,5})[.)\]]+",
    re.IGNORECASE,
)
_ABBREVIATED = re.compile(
    r"(?:\n|\b(?:am|vom|zum|bis|dem|den|der|ab|seit)\s)[^\S\n]*\d{1,2}\.$|"  # numbers of items, days of German dates
    r"(?:\b(?:(?<![ap]\.)[^\W\d_]|Mr|Mrs|Ms|Dr|Prof|Sr|Jr|St|Gen|Col|Sgt|Capt|Lt|Rev|Hon|Gov|Sen|Rep|vs|etc|al|cf|ca|"
    r"approx|Inc|Ltd|Co|Corp|Nos|Nr|Fig|Figs|Eq|Sec|Ch|Vol|Vols|ed|eds|pp|Art|bzw|usw|resp)|"
    r"\b(?![ap]\.m\b)[a-z](?:\.[a-z])+)\.$",  # initials and abbreviations, but not times of day
)
_BEFORE_NUMBER = re.compile(r"\bNo\.$", re.IGNORECASE)


def sentences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields (start, end) of the sentences of ``text[start:end]``, in order, without surrounding white space."""
    for first, last in heading_lines(text, start, end):
        yield from _sentences(text, start, first)
        yield from stripped(text, first, last)
        start = last
    yield from _sentences(text, start, end)


def heading_lines(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Returns (start, end) of the lines of ``text[start:end]`` that are headings: those of Markdown, and short numbered
    lines, between complete sentences or empty lines, above a longer line.
    """
    marked = [heading.span() for heading in _HEADING.finditer(text, start, end)]
    numbered = (line for line in _NUMBERED_HEADING.finditer(text, start, end) if _is_numbered_heading(text, line))
    return sorted([*marked, *(line.span() for line in numbered)])


def _is_numbered_heading(text: str, line: re.Match[str]) -> bool:
    before = text[max(0, line.start() - 80) : line.start()]
    is_marked = bool(re.match(r"\s*\d+(?:[.)]|\.\d)", line.group()))  # a number alone may be a date, or count something
    follows = not before.strip() or before.endswith("\n\n") or (is_marked and before.rstrip()[-1] in ENDS)
    words = line.group().split()
    return follows and len(words) <= MAX_HEADING and len(line.group()) < SHORTER * len(line["below"])


def _sentences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    at = start
    for gap in _GAP.finditer(text, start, end):
        if not _continues(text, at, gap.start(), gap.end()):
            yield from _lines(text, at, gap.start())
            at = gap.end()
    yield from _lines(text, at, end)


def _continues(text: str, start: int, stop: int, after: int) -> bool:
    """Returns True if the sentence from ``start`` continues at ``after``.

    The sentence continues after its own number, after an abbreviation, and if a lower case letter follows a period.
    """
    if "\n\n" in text[stop:after]:
        return False
    if stop - start <= 20 and _NUMBER.fullmatch(text[start:stop].strip()):
        return True
    if not text.endswith(".", 0, stop):
        return False
    tail = max(0, stop - 16)
    if _BEFORE_NUMBER.search(text, tail, stop):
        return text[after : after + 1].isdigit()
    return text[after : after + 1].islower() or bool(_ABBREVIATED.search(text, tail, stop))


def _lines(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    if end - start <= LONG:
        yield from stripped(text, start, end)
        return
    while start < end:
        stop = text.find("\n", start, end)
        stop = min(end if stop < 0 else stop + 1, start + LONG)
        yield from stripped(text, start, stop)
        start = stop


def stripped(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields (start, end) of ``text[start:end]`` without white space at either end. Yields nothing if there is only
    white space.
    """
    part = text[start:end]
    if inside := part.strip():
        start += len(part) - len(part.lstrip())
        yield start, start + len(inside)


def trim_to_sentence(text: str) -> str:
    """Returns ``text`` without an unfinished last sentence, unless it is the only one."""
    *complete, last = sentences(text, 0, len(text)) if text else [(0, 0)]
    return text[: complete[-1][1]] if complete and text[last[1] - 1] not in ENDS else text
