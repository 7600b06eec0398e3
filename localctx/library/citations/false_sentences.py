"""Leaves out the sentences of a written summary that its document contradicts, or whose names or numbers it lacks."""

from typing import NamedTuple

from localctx.library.citations.source_index import SourceIndex, SourceText
from localctx.library.wording.identify_language import language_of
from localctx.library.wording.sentences import sentences
from localctx.store.documents import StoredDocument


class FilteredSummary(NamedTuple):
    """The ``text`` of a summary, and the sentences that were ``left_out`` of it."""

    text: str
    left_out: list[str]


def without_false_sentences(summary: str, document: StoredDocument) -> FilteredSummary:
    """Returns ``summary`` without the sentences that ``document`` cannot have said: a number or a name of the sentence
    is nowhere in the document, or its words are there but denied.

    A summary in another language than the document is not checked, because its names may be translated.
    """
    said, read = language_of(summary), language_of(document.text)
    if said and read and said != read:
        return FilteredSummary(summary, [])
    index = SourceIndex([SourceText.of(document)])
    kept, left_out, at = list[str](), list[str](), 0
    for start, end in sentences(summary, 0, len(summary)):
        if index.lacks(summary[start:end]) or index.contradicts(summary[start:end]):
            left_out.append(" ".join(summary[start:end].split()))
        else:
            kept.append(summary[at:end])
        at = end
    return FilteredSummary("".join(kept).strip(), left_out)
