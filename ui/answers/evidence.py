"""Renders the evidence of an answer as HTML: its quoted sentences, each with a link to its place."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from localctx.document_parts import tell_place
from localctx.library.citations.cite import likeliest_sentence
from localctx.library.citations.excerpt import reflowed, words_to_mark
from localctx.ui.render import escape, opener

MAX_QUOTE = 600  # characters of a quotation
MAX_PLACES = 8  # further places that are linked
NEAR = 1000  # characters before and after a citation searched for the ends of its sentences
LONG = 20_000  # characters of a text from which on a place without a page is told as a share of it

TextOf = Callable[[str], str | None]
"""A function that returns the text of a document by the document's id, or None if the document was deleted."""


@dataclass(frozen=True)
class EvidencePlace:
    """The place of a citation, widened to whole sentences: characters ``start..end`` of a document, and their text.

    ``label`` names the document and the page or heading in a few words.
    """

    document: str
    name: str
    label: str
    start: int
    end: int
    text: str

    def overlaps(self, other: "EvidencePlace") -> bool:
        """Returns True if both places have a character in common."""
        return self.document == other.document and self.start < other.end and other.start < self.end

    @property
    def attributes(self) -> str:
        """The HTML attributes with which an element opens the document at this place."""
        return opener(self.document, self.name, self.start, self.end)

    @property
    def link(self) -> str:
        """The HTML of a button that opens the document at this place."""
        return f'<button type="button" {self.attributes}>{escape(self.label)} <i aria-hidden="true">↗</i></button>'


def place_of(c: dict[str, Any], text_of: TextOf) -> EvidencePlace:
    """Returns the place of a citation, given as JSON.

    If the document was deleted or its text has changed, the place is the citation itself.
    """
    text, start, end = text_of(c["document"]), c["start"], c["end"]
    if text is None or text[start:end] != c["quote"]:
        return EvidencePlace(c["document"], c["name"], _label(c, None), start, end, c["quote"])
    before = max(0, start - NEAR)
    near = text[before : end + NEAR]
    _, _, (first, last) = likeliest_sentence(near, [(start - before, end - before)], "")
    first += len(near[first:last]) - len(near[first:last].lstrip())
    return EvidencePlace(
        c["document"], c["name"], _label(c, text), before + first, before + last, near[first:last].rstrip()
    )


def _label(c: dict[str, Any], text: str | None) -> str:
    told = tell_place(c["page"], c["heading"] and " ".join(c["heading"].split())[:60])
    told = re.sub(r"^pages ", "pp. ", re.sub(r"^page ", "p. ", told))
    if not told and text and len(text) > LONG:
        told = f"{max(1, round(100 * c['start'] / len(text)))} % in"
    return f"{c['name']} · {told}" if told else c["name"]


def quotation(place: EvidencePlace, said: str = "", number: int | None = None, css: str = "") -> str:
    """Returns a place's words as a quotation in HTML.

    Words that the answer ``said`` uses are bold, unless all are. ``number`` is the number of the source, ``css`` a
    further class.
    """
    words = place.text if len(place.text) <= MAX_QUOTE else place.text[:MAX_QUOTE].rsplit(None, 1)[0] + " …"
    mark = f'<b class="lc-n">{number}</b> ' if number else ""
    return (
        f'<figure class="lc-quote {css}"><blockquote>{_bold(words, said)}</blockquote>'
        f"<figcaption>{mark}{place.link}</figcaption></figure>"
    )


def _bold(words: str, said: str) -> str:
    """Returns ``words`` as HTML, in which the words of ``said`` are bold."""
    shown, html, at = reflowed(words), "", 0
    for a, b in _ranges(words, said):
        html += f"{escape(shown[at:a])}<strong>{escape(shown[a:b])}</strong>"
        at = b
    return html + escape(shown[at:])


def _ranges(words: str, said: str) -> Sequence[tuple[int, int]]:
    if not said or squeezed(said) == squeezed(words):
        return []
    pattern = r"\s+".join(map(re.escape, said.strip(" .,;").split()))
    if pattern and (found := re.search(pattern, words, re.IGNORECASE)):
        return [found.span()]
    return words_to_mark(words, 0, len(words), said)


def squeezed(text: str) -> str:
    """Returns ``text`` in a form for comparisons: lower case, single spaces, no punctuation at its ends."""
    return " ".join(text.casefold().split()).strip(" .,;:!?\"'“”‘’*")  # noqa: RUF001


def links(places: Sequence[EvidencePlace]) -> str:
    """Returns a list of links, one for each place. Several places with the same label are numbered."""
    if not places:
        return ""
    shown = "".join(f"<li>{link}</li>" for link in _links(places[:MAX_PLACES]))
    more = len(places) - MAX_PLACES
    rest = f"<li>and {more:,} more</li>" if more > 0 else ""
    return f'<ul class="lc-places" aria-label="Further places">{shown}{rest}</ul>'


def _links(places: Sequence[EvidencePlace]) -> Iterator[str]:
    labels = list(dict.fromkeys(place.label for place in places))
    for label in labels:
        first, *others = (place for place in places if place.label == label)
        more = (f'<button type="button" {p.attributes}>{n}</button>' for n, p in enumerate(others, 2))
        yield " ".join([first.link, *more])
