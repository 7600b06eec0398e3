"""Renders the evidence of an answer as HTML: the quoted sentences, each with a link to its place in the document."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from localctx.document_parts import tell_place
from localctx.library.citations.cite import likeliest_sentence
from localctx.library.citations.excerpt import reflowed, words_to_mark
from localctx.ui.markdown_signs import without_signs
from localctx.ui.render import escape, opener

MAX_QUOTE = 600  # characters of a quotation
MAX_PLACES = 8  # links to further places
NEAR = 1000  # characters before and after a citation in which the ends of its sentences are searched
LONG = 20_000  # characters; in longer texts, a place without a page is named as a percentage of the text

TextOf = Callable[[str], str | None]
"""A function that returns the text of a document by the document's id, or None if the document was deleted."""


@dataclass(frozen=True)
class EvidencePlace:
    """The place of a citation, extended to whole sentences: the characters ``start..end`` of a document, and their
    ``text``.

    ``where`` names the page or heading in a few words; it is "" if there is none. ``row`` is the number of a row of the
    sheet ``sheet``; both are "" elsewhere.
    """

    document: str
    name: str
    where: str
    start: int
    end: int
    text: str
    row: str = ""
    sheet: str = ""

    @property
    def label(self) -> str:
        """The name of the document with the page or heading."""
        return f"{self.name} · {self.where}" if self.where else self.name

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
        return self._button(self.label)

    @property
    def short_link(self) -> str:
        """The HTML of a button that opens the document at this place, labelled without the document's name."""
        return self._button(self.where)

    @property
    def row_link(self) -> str:
        """The HTML of a button that opens the document at this row, labelled with the row's number alone."""
        return f'<button type="button" {self.attributes} aria-label="{escape(self.where)}">{escape(self.row)}</button>'

    def _button(self, text: str) -> str:
        return f'<button type="button" {self.attributes}>{escape(text)} <i aria-hidden="true">↗</i></button>'


def place_of(c: dict[str, Any], text_of: TextOf) -> EvidencePlace:
    """Returns the place of a citation, given as JSON.

    If the document was deleted or its text has changed, the place is not extended to whole sentences.
    """
    text, start, end = text_of(c["document"]), c["start"], c["end"]
    row = c["page"].removeprefix("row ") if (c["page"] or "").startswith("row ") else ""
    place = EvidencePlace(c["document"], c["name"], _where(c, None), start, end, c["quote"], row, row and _heading(c))
    if text is None or text[start:end] != c["quote"]:
        return place
    before = max(0, start - NEAR)
    near = text[before : end + NEAR]
    _, _, (first, last) = likeliest_sentence(near, [(start - before, end - before)], "")
    first += len(near[first:last]) - len(near[first:last].lstrip())
    said = near[first:last].rstrip()
    return replace(place, where=_where(c, text), start=before + first, end=before + last, text=said)


def _heading(c: dict[str, Any]) -> str:
    return " ".join((c["heading"] or "").split())[:60]


def _where(c: dict[str, Any], text: str | None) -> str:
    told = tell_place(c["page"], _heading(c))
    told = re.sub(r"^pages ", "pp. ", re.sub(r"^page ", "p. ", told))
    if not told and text and len(text) > LONG:
        told = f"{max(1, round(100 * c['start'] / len(text)))} % in"
    return told


class Quotation(NamedTuple):
    """A place whose text is quoted. Words that ``answer_text`` also uses are bold, unless that is the whole
    text. ``number`` is the number of the source.
    """

    place: EvidencePlace
    answer_text: str = ""
    number: int | None = None


def quotation(place: EvidencePlace, answer_text: str = "", css: str = "") -> str:
    """Returns a place's words as a quotation in HTML. ``css`` is a further CSS class."""
    return _figure([Quotation(place, answer_text)], css)


def quotations(quoted: Sequence[Quotation]) -> str:
    """Returns quotations in HTML. Quotations from the same page (with the same label) are grouped above one link."""
    labels = dict.fromkeys(quote.place.label for quote in quoted)
    return "".join(_figure([quote for quote in quoted if quote.place.label == label]) for label in labels)


def further_quotations(quoted: Sequence[Quotation]) -> str:
    """Returns quotations in HTML that are shown when the line with their number is clicked; "" if there are none."""
    if not quoted:
        return ""
    line = f"{len(quoted)} more quotation{'s' * (len(quoted) > 1)}"
    return f'<details class="lc-further"><summary>{line}</summary>{quotations(quoted)}</details>'


def _figure(quoted: Sequence[Quotation], css: str = "") -> str:
    shown = "".join(f"<blockquote{_number(quote)}>{_quoted(quote)}</blockquote>" for quote in quoted)
    return f'<figure class="lc-quote {css}">{shown}<figcaption>{quoted[0].place.link}</figcaption></figure>'


def _number(quote: Quotation) -> str:
    return f' data-number="{quote.number}"' if quote.number else ""


def _quoted(quote: Quotation) -> str:
    text = without_signs(quote.place.text, quote.place.name)
    return _bold(text if len(text) <= MAX_QUOTE else text[:MAX_QUOTE].rsplit(None, 1)[0] + " …", quote.answer_text)


def _bold(words: str, answer_text: str) -> str:
    """Returns ``words`` as HTML, in which words that ``answer_text`` also has are bold."""
    shown, html, at = reflowed(words), "", 0
    for a, b in _ranges(words, answer_text):
        html += f"{escape(shown[at:a])}<strong>{escape(shown[a:b])}</strong>"
        at = b
    return html + escape(shown[at:])


def _ranges(words: str, answer_text: str) -> Sequence[tuple[int, int]]:
    if not answer_text or squeezed(answer_text) == squeezed(words):
        return []
    pattern = r"\s+".join(map(re.escape, answer_text.strip(" .,;").split()))
    if pattern and (found := re.search(pattern, words, re.IGNORECASE)):
        return [found.span()]
    return words_to_mark(words, 0, len(words), answer_text)


def squeezed(text: str) -> str:
    """Returns ``text`` normalized for comparisons: in lower case, with single spaces, without punctuation at both
    ends.
    """
    return " ".join(text.casefold().split()).strip(" .,;:!?\"'“”‘’*")  # noqa: RUF001


def links(places: Sequence[EvidencePlace], above: Sequence[EvidencePlace] = (), uncited: int = 0) -> str:
    """Returns a list of links, grouped by document. Each page or heading has one link; those of the places ``above``
    are left out.

    ``uncited`` is the number of further places that the answer is based on but does not cite.
    """
    linked = {place.label for place in above}
    by_label = {place.label: place for place in reversed(places) if place.label not in linked}
    found = sorted(by_label.values(), key=places.index)
    if not found:
        return ""
    shown = "".join(f"<li>{line}</li>" for line in _lines(found[:MAX_PLACES]))
    more = max(0, len(found) - MAX_PLACES) + uncited
    rest = f"<li>and {more:,} more</li>" if more > 0 else ""
    return f'<ul class="lc-places" aria-label="Further places">{shown}{rest}</ul>'


def _lines(places: Sequence[EvidencePlace]) -> Iterator[str]:
    """Yields a line for each document, with the links to its places. Only the beginning of a line names the
    document.
    """
    for document in dict.fromkeys(place.document for place in places):
        of_document = [place for place in places if place.document == document]
        sheets = dict.fromkeys(place.sheet for place in of_document if place.row)
        groups = [[p for p in of_document if p.row and p.sheet == sheet] for sheet in sheets]
        lists = [group for group in groups if len(group) > 1]
        alone = [place for place in of_document if not any(place in group for group in lists)]
        first = alone[0].link if alone else f"{escape(of_document[0].name)} ·"
        yield " ".join([first, *(place.short_link for place in alone[1:] if place.where), *map(_rows, lists)])


def _rows(group: Sequence[EvidencePlace]) -> str:
    """Returns links to rows of one sheet: ``Invoices: rows 3, 4, 7``."""
    sheet = f"{escape(group[0].sheet)}: " if group[0].sheet else ""
    return f"<span class='lc-rows'>{sheet}rows {', '.join(place.row_link for place in group)}</span>"
