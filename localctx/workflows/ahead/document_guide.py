"""Tells what a document is about, without a model: its headings, a few of its sentences, and its tables."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from localctx.document_parts import tell_place
from localctx.library.citations.summary_sentences import key_sentences
from localctx.library.outline import outline
from localctx.library.tables.question_words import wanted
from localctx.library.tables.table import DataTable, tables_of
from localctx.library.tables.table_queries import queries
from localctx.library.tables.table_question import repeats
from localctx.store.documents import Span, StoredDocument, part_labels

SENTENCES = 3
QUESTIONS = 3  # about a table
_AMOUNT = re.compile(
    r"\b(?:amount|price|cost|net|gross|fee|rent|salary|wage|revenue|sales|turnover|paid|quantity|units|hours|budget|tax|"
    r"vat|deposit|profit|income|expenses?)s?\b|[€$£]",
    re.IGNORECASE,
)
"""The names of columns whose sum means something."""

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
class TableGuide:
    """A table of a document: the name of its ``sheet``, its columns, the characters ``start..end`` of its first row,
    and ``questions`` that are computed over all its rows.
    """

    sheet: str
    columns: Sequence[str]
    start: int
    end: int
    questions: Sequence[str]


@dataclass(frozen=True)
class DocumentGuide:
    """What a document is about: the spans of its headings, without its title, key sentences and tables, in text
    order.
    """

    headings: Sequence[Span] = ()
    sentences: Sequence[GuideSentence] = ()
    tables: Sequence[TableGuide] = ()


NOTHING_TOLD = DocumentGuide()


def document_guide(document: StoredDocument) -> DocumentGuide:
    """Returns the guide of a document. A document with rows of a table has no key sentences, and headings that are
    names of its tables are not listed twice. A text of more than MAX_READ characters has no tables.
    """
    text, spans = document.text, document.spans
    headings, part = outline(text, spans), part_labels(spans)
    is_table = any(span.kind == "row" for span in spans)
    found = [] if is_table else key_sentences(text[:MAX_READ], SENTENCES, headings)
    told = [GuideSentence(a, b, " ".join(text[a:b].split()), tell_place(part(a), None)) for a, b in found]
    tables = tables_of(document) if is_table and len(text) <= MAX_READ else []
    told_tables = [_table_guide(table, asks=len(tables) == 1) for table in tables]
    sheets = {table.sheet for table in tables}
    return DocumentGuide([h for h in headings if h.label not in sheets], told, told_tables)


def _table_guide(table: DataTable, asks: bool) -> TableGuide:
    first, asked = table.rows[0], list[str]()
    if asks:  # of several tables, a question does not say which one it is about
        asked = [question for question in _questions(table) if len(queries(table, question)) == 1][:QUESTIONS]
    return TableGuide(table.sheet, table.names, first.start, first.end, asked)


def _questions(table: DataTable) -> Iterator[str]:
    """Yields questions about the columns with amounts, which may have no query."""
    kinds = {name: column.kind for name, column in table.columns.items()}
    amounts = [n for n, kind in kinds.items() if kind == "number" and _AMOUNT.search(n) and not wanted(n).computes]
    groups = [n for n, kind in kinds.items() if kind == "text" and repeats(table, n)]
    for amount in map(_in_sentence, amounts):
        yield f"What is the total {amount}?"
        yield from (f"What is the total {amount} per {_in_sentence(group)}?" for group in groups[:1])
        yield f"Which row has the highest {amount}?"


def _in_sentence(name: str) -> str:
    """Returns the name of a column as it stands inside a sentence: "Net amount" becomes "net amount", "VAT" stays."""
    return name[:1].lower() + name[1:] if name[1:].islower() else name
