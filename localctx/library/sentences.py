"""Where the sentences of a text are. They end at punctuation, not at abbreviations or initials, and at empty lines."""

import re
from collections.abc import Iterator

ENDS = ".!?…。！？"  # noqa: RUF001
LONG = 1000  # characters; what is longer is no sentence, and falls into lines
_GAP = re.compile(
    r"(?:(?<=[.!?…])|(?<=[.!?…][\"'”’)\]]))\s+"  # noqa: RUF001
    r"|(?<=[。！？])\s*"  # noqa: RUF001
    r"|\n[^\S\n]*\n\s*"
    r"|\n(?=[^\S\n]*(?:[-*•#|>]|\d+[.)])\s)"  # items of a list, headings, rows
)
_ABBREVIATED = re.compile(
    r"(?:\n|\b(?:am|vom|zum|bis|dem|den|der|ab|seit)\s)[^\S\n]*\d{1,2}\.$|"  # numbers of items, days of German dates
    r"(?:\b(?:[^\W\d_]|Mr|Mrs|Ms|Dr|Prof|Sr|Jr|St|Gen|Col|Sgt|Capt|Lt|Rev|Hon|Gov|Sen|Rep|vs|etc|al|cf|ca|approx|"
    r"Inc|Ltd|Co|Corp|No|Nos|Nr|Fig|Figs|Eq|Sec|Ch|Vol|Vols|ed|eds|pp|Art|bzw|usw|resp)|\b[a-z](?:\.[a-z])+)\.$",
)


def sentences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The sentences of ``text[start:end]`` as (start, end), in order, without the white space around them."""
    at = start
    for gap in _GAP.finditer(text, start, end):
        if not _goes_on(text, gap.start(), gap.end()):
            yield from _lines(text, at, gap.start())
            at = gap.end()
    yield from _lines(text, at, end)


def _goes_on(text: str, stop: int, after: int) -> bool:
    """Whether the sentence that seems to stop does not: after an abbreviation, or before a small letter."""
    if not text.endswith(".", 0, stop) or "\n\n" in text[stop:after]:
        return False
    return text[after : after + 1].islower() or bool(_ABBREVIATED.search(text, max(0, stop - 16), stop))


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
    """``text[start:end]`` as (start, end) without the white space around it; nothing where that is all."""
    part = text[start:end]
    if inside := part.strip():
        start += len(part) - len(part.lstrip())
        yield start, start + len(inside)


def finished(text: str) -> str:
    """A text that was cut, up to its last whole sentence; as it is where there is none."""
    *whole, cut = sentences(text, 0, len(text)) if text else [(0, 0)]
    return text[: whole[-1][1]] if whole and text[cut[1] - 1] not in ENDS else text
