"""Reads one document's answer to a plain question: a value that a quotation contains, a text, or nothing."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from localctx.document_parts import Citation
from localctx.library.citations.cite import cite_characters
from localctx.library.wording.identify_language import language_of
from localctx.library.wording.quantities import Quantity, QuantityKind, read_quantities
from localctx.library.wording.sentences import sentences
from localctx.library.wording.values import day_comes_first
from localctx.store.documents import StoredDocument
from localctx.workflows.comparing.rules import ComparingQuestion
from localctx.workflows.comparing.subjects import SUBJECTS, Subject, names_another
from localctx.workflows.comparing.wording import WORDINGS

ValueState = Literal["said", "missing", "unsure"]

_KINDS: dict[str, QuantityKind] = {"earlier": "date", "later": "date", "longer": "duration", "shorter": "duration"}
_AROUND = " \t\n.。;"
_LONGEST_LABEL = 60  # characters
_LABEL = re.compile(r"(?:^|[\n.])[ \t]*([^\n.]{1,40})[.:\s]*$")
_CLAUSE_ENDS = re.compile(r"[,;，；]|\b(?:and|und|et|y)\b")  # noqa: RUF001


@dataclass(frozen=True)
class DocumentValue:
    """The answer of one document. If ``state`` is ``said``, the answer is ``text``, which ``citation`` supports.
    ``quantity`` is the value in it, if there is one, and ``several`` is True if the quotation has another value that
    may be meant.

    The state is ``missing`` if the document does not answer, and ``unsure`` if the model answered, but no quotation
    about the subject contains the answer.
    """

    document: str
    name: str
    state: ValueState
    text: str = ""
    quantity: Quantity | None = None
    several: bool = False
    citation: Citation | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the value as JSON, with ``value``, ``unit`` and ``period`` None if there is no single value."""
        q = None if self.several else self.quantity
        value = {"value": q and q.value, "unit": q and q.unit, "period": q and q.period}
        return {"document": self.document, "name": self.name, "state": self.state, "text": self.text, **value}


@dataclass(frozen=True)
class _Reader:
    """Reads the quantities of a document's text, of the kind that is asked for."""

    asked: ComparingQuestion
    language: str
    day_first: bool | None

    @property
    def kind(self) -> QuantityKind | None:
        return self.asked.subject.kind or _KINDS.get(self.asked.order)

    def all_in(self, text: str) -> list[Quantity]:
        return read_quantities(text, self.language, self.day_first)

    def wanted_in(self, text: str) -> list[Quantity]:
        found = [q for q in self.all_in(text) if self.kind in (None, q.kind)]
        return found or [q for q in self.all_in(text) if self.kind == "duration" and q.kind == "number"]


def missing(document: StoredDocument) -> DocumentValue:
    """Returns the DocumentValue of a document that does not answer."""
    return DocumentValue(document.id, document.name, "missing")


def read_value(
    asked: ComparingQuestion, document: StoredDocument, answer: str, citations: Sequence[Citation]
) -> DocumentValue:
    """Returns the value that ``document`` gives, according to the model's ``answer`` and the answer's ``citations``,
    best first.

    A value must be in a citation about the subject, or else in a sentence of the document about the subject. An answer
    without a value, as to "what is the purpose of the two papers", need not name the subject. The answer to a plain
    question about no known subject is taken as it is.
    """
    if asked.implied and not asked.subject.names and citations:
        return DocumentValue(document.id, document.name, "said", answer.strip(_AROUND), citation=citations[0])
    reader = _Reader(asked, language_of(document.text) or asked.language, day_comes_first(document.text))
    is_text = asked.subject.kind is None and asked.order == "none"
    about = [c for c in citations if is_text or _is_about(reader, document, c)]
    if reader.all_in(answer):
        quotes = chain(about, _sentences_about(asked, document))
        if held := next((value for quote in quotes if (value := _held(reader, document, answer, quote))), None):
            return held
    if about and not reader.wanted_in(answer):
        return DocumentValue(document.id, document.name, "said", answer.strip(_AROUND), citation=about[0])
    known = asked.subject.names and reader.language in WORDINGS and not asked.subject.is_in(document.text)
    return missing(document) if known else DocumentValue(document.id, document.name, "unsure")


def _is_about(reader: _Reader, document: StoredDocument, citation: Citation) -> bool:
    """Returns True if a citation names the subject. An amount of money is a cost without saying so."""
    words, subject = _with_label(document, citation.start, citation.end), reader.asked.subject
    is_cost = subject is SUBJECTS["cost"] and bool(reader.wanted_in(citation.quote))
    return is_cost or subject.is_in(f"{citation.heading or ''} {words}")


def _sentences_about(asked: ComparingQuestion, document: StoredDocument) -> Iterator[Citation]:
    for start, end in sentences(document.text, 0, len(document.text)):
        if asked.subject.is_in(_with_label(document, start, end)):
            yield cite_characters(document, start, end)


def _with_label(document: StoredDocument, start: int, end: int) -> str:
    """Returns a sentence, with the label before it if there is one: a few words such as "3. Rent.", or a line of its
    own.
    """
    label = _LABEL.search(document.text[max(0, start - _LONGEST_LABEL) : start])
    return f"{label[1] if label else ''} {document.text[start:end]}"


def _held(reader: _Reader, document: StoredDocument, answer: str, citation: Citation) -> DocumentValue | None:
    """Returns the DocumentValue for a value that both the quotation ``citation`` and the answer have, or None if there
    is no such value.
    """
    named, quoted = reader.all_in(answer), reader.wanted_in(citation.quote)
    held = [q for q in quoted if any(q.is_same(n) for n in named)]
    wanted = reader.wanted_in(answer)
    if not held or not all(any(w.is_same(q) for q in held) for w in wanted):
        return None
    value, subject = held[0], reader.asked.subject
    if names_another(_clause(citation.quote, quoted, value), subject):
        return None
    rivals = [q for q in quoted if _rivals(q, value) and not names_another(_clause(citation.quote, quoted, q), subject)]
    rivals = [q for q in rivals if not _is_nearer(citation.quote, quoted, value, q, subject)]
    several = bool(rivals) or not all(q.is_same(value) for q in held)
    text = _shown(reader, answer, citation.quote, value)
    return DocumentValue(document.id, document.name, "said", text, value, several, citation)


def _rivals(other: Quantity, value: Quantity) -> bool:
    """Returns True if ``other`` may be meant in place of ``value``: another value of the same kind, unit and period."""
    same_kind = (other.kind, other.unit, other.period) == (value.kind, value.unit, value.period)
    return same_kind and other.number != value.number


def _is_nearer(quote: str, quoted: Sequence[Quantity], value: Quantity, other: Quantity, subject: Subject) -> bool:
    """Returns True if the words around ``value`` have all words of the subject that those around ``other`` have, and
    more: of "12 years on modules, 5 years on the inverter", the second is nearer to the warranty on the inverter.

    The words before the first value of the quotation may be said of all values, so they do not count.
    """
    start = min(q.start for q in quoted)
    near, further = (
        subject.words_in(f"{_CLAUSE_ENDS.split(quote[start : q.start])[-1]} {_CLAUSE_ENDS.split(quote[q.end :])[0]}")
        for q in (value, other)
    )
    return near > further


def _clause(quote: str, quoted: Sequence[Quantity], value: Quantity) -> str:
    """Returns the words around a value: from the previous value of the quotation to the value, and from there to the
    end of the clause.
    """
    before = max((q.end for q in quoted if q.end <= value.start), default=0)
    after = min((q.start for q in quoted if q.start >= value.end), default=len(quote))
    return f"{quote[before : value.start]} {_CLAUSE_ENDS.split(quote[value.end : after])[0]}"


def _shown(reader: _Reader, answer: str, quote: str, value: Quantity) -> str:
    """Returns the text to show: the answer, if the quotation has the same words and the value has the same period, else
    the value in the quotation's words.
    """
    words, said = (" ".join(text.split()).casefold() for text in (quote, answer.strip(_AROUND)))
    if said in words and any(n.kind == value.kind and n.period == value.period for n in reader.wanted_in(answer)):
        return answer.strip(_AROUND)
    return quote[value.start : value.end] + WORDINGS[reader.asked.language].periods.get(value.period or "", "")
