"""Finds the headings of a document: those that its format marks, or else the numbered lines of its text."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from localctx.store.documents import Span

TITLED = 2  # headings; if there are more, a heading at the very beginning is the document's title
MIN_HEADINGS = 3  # numbered lines, fewer of which are no headings
MIN_BODY = 40  # characters between two headings, on average; lines of a list or of a table of contents have less
MAX_TITLE = 70  # characters
_PART = "chapter|section|article|clause|part|book|canto|schedule|appendix|annex|kapitel|abschnitt|artikel|chapitre"
_LINE = re.compile(
    rf"^[ \t]*(?P<whole>(?:(?P<part>{_PART})[ \t]+|§[ \t]*)?(?P<number>\d{{1,3}}(?:\.\d{{1,3}})*|[IVXLC]{{1,7}})"
    rf"(?P<close>[.):]?)(?:[ \t]*[-\u2013\u2014:][ \t]*|[ \t]+)?(?P<title>[^\W\d_][^\n]{{1,{MAX_TITLE}}})?)[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_DOTS = re.compile(r"\.\s?\.\s?\.")  # of a table of contents, before the number of a page
_ROMAN = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}


class _NumberedLine(NamedTuple):
    """A line that may be a heading: the characters ``start..end``, its style, and its number."""

    start: int
    end: int
    style: str
    number: tuple[int, ...]


class _HeadingChain(NamedTuple):
    """The chain of headings that ends with ``line``: that line, the chain ``before`` it, and where the chain starts."""

    line: _NumberedLine
    before: "_HeadingChain | None"
    start: int

    @property
    def length(self) -> int:
        """The number of characters from the first to the last heading."""
        return self.line.start - self.start


def outline(text: str, spans: Sequence[Span]) -> list[Span]:
    """Returns the spans of the headings of a ``text``, without its title: those among its ``spans``, or else its
    numbered lines. A span begins with the words of its heading, after the signs of Markdown, where the text has them.
    """
    below = _headings_below(spans, len(text) - len(text.lstrip()))
    starts = [max(h.start, text.find(h.label, h.start, h.end)) for h in below]
    marked = [replace(h, start=start) for h, start in zip(below, starts, strict=True)]
    return marked if len(marked) > 1 else _numbered(text) or marked


def _headings_below(spans: Sequence[Span], begins: int) -> list[Span]:
    """Returns the spans of a document's headings, without its title. ``begins`` is where its text begins, after blank
    characters.
    """
    found = [span for span in spans if span.kind == "heading"]
    return found[1:] if len(found) > TITLED and found[0].start <= begins else found


def _numbered(text: str) -> list[Span]:
    """Returns the lines whose numbers follow one another over the largest part of the text."""
    best = list(_longest_chain(_lines(text)))[::-1]
    if len(best) < MIN_HEADINGS or best[-1].start - best[0].start < MIN_BODY * (len(best) - 1):
        return []
    ends = [*(line.start for line in best[1:]), len(text)]
    return [Span(a.start, end, "heading", text[a.start : a.end]) for a, end in zip(best, ends, strict=True)]


def _longest_chain(lines: Iterable[_NumberedLine]) -> Iterator[_NumberedLine]:
    """Yields, from its end, the chain of lines over the largest part of the text. Each line of a chain has the next
    number of its style after the line before it, as 2 or 1.1 after 1, or 3 after 2.4.
    """
    chains, longest = dict[tuple[str, tuple[int, ...]], _HeadingChain](), None
    for line in lines:
        *above, last = line.number
        before = chains.get((line.style, (*above, last - 1) if last > 1 else tuple(above)))
        if not before and line.number != (1,):
            continue
        chain = _HeadingChain(line, before, before.start if before else line.start)
        chains |= {(line.style, line.number[:n]): chain for n in range(1, len(line.number) + 1)}
        longest = chain if not longest or chain.length >= longest.length else longest
    while longest:
        yield longest.line
        longest = longest.before


def _lines(text: str) -> Iterator[_NumberedLine]:
    """Yields the lines that may be headings. Lines of lists and of tables of contents, which are followed by lines
    alike, are left out.
    """
    found = [line for match in _LINE.finditer(text) if (line := _line(match))]
    for line, following in zip(found, [*found[1:], None], strict=False):
        between = text[line.end : following.start].strip() if following else text
        if not following or between or following.style != line.style or following.number[:-1] == line.number:
            yield line


def _line(match: re.Match[str]) -> _NumberedLine | None:
    part, number, title = (match["part"] or "").lower(), match["number"], match["title"] or ""
    titled = title[:1].isupper() and title.rstrip()[-1:] not in ".,;:!" and not _DOTS.search(title)
    if not (titled or (part and not title)) or (not part and number.isalpha() and not match["close"]):
        return None  # a line such as "I said so" begins with no number
    if number.isalpha():
        return _NumberedLine(match.start("whole"), match.end("whole"), f"{part} I", (_roman(number.upper()),))
    return _NumberedLine(match.start("whole"), match.end("whole"), f"{part} 1", tuple(map(int, number.split("."))))


def _roman(letters: str) -> int:
    values = [_ROMAN[letter] for letter in letters]
    return sum(-value if value < max(values[i:]) else value for i, value in enumerate(values))
