"""Tells what a document is about, without a model: its headings, and a few of its sentences."""

from collections.abc import Sequence
from dataclasses import dataclass

from localctx.document_parts import tell_place
from localctx.library.citations.summary_sentences import key_sentences
from localctx.library.outline import outline
from localctx.store.documents import Span, StoredDocument, part_labels

SENTENCES = 3
MAX_READ = 1_000_000  # characters of a document in which sentences are looked for, which takes seconds


@dataclass(frozen=True)
class GuideSentence:
    """A sentence of a document: the characters ``start..end``, their ``text``, and the page or other part they are on,
    in words ("" if there is none).
    """

    start: int
    end: int
    text: str
    place: str


@dataclass(frozen=True)
class DocumentGuide:
    """What a document is about: the spans of its headings, without its title, and key sentences, in text order."""

    headings: Sequence[Span] = ()
    sentences: Sequence[GuideSentence] = ()


NOTHING_TOLD = DocumentGuide()


def document_guide(document: StoredDocument) -> DocumentGuide:
    """Returns the guide of a document. A table has no key sentences."""
    text, spans = document.text, document.spans
    headings, part = outline(text, spans), part_labels(spans)
    is_table = any(span.kind == "row" for span in spans)
    found = [] if is_table else key_sentences(text[:MAX_READ], SENTENCES, headings)
    told = [GuideSentence(a, b, " ".join(text[a:b].split()), tell_place(part(a), None)) for a, b in found]
    return DocumentGuide(headings, told)
