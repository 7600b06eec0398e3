"""Renders what the documents of a new chat are about as HTML: their names, key sentences and headings.

Each sentence and heading opens the document at its place.
"""

from collections.abc import Sequence

from localctx.store.documents import Span
from localctx.ui.markdown_signs import without_signs
from localctx.ui.reading import ready_text
from localctx.ui.reading.source_list import file_kind
from localctx.ui.render import duration, escape, opener
from localctx.ui.running.read_documents import ReadDocument
from localctx.ui.running.tab_reading import ReadingState
from localctx.workflows.ahead.document_guide import GuideSentence, TableGuide

MAX_DOCUMENTS = 3  # the others are counted
MIN_HEADINGS = 3
MAX_HEADINGS = (12, 6)  # headings that are listed of an only document, and of one of several; the others are counted
MAX_SENTENCES = (3, 2)
MIN_SECONDS = 2  # a summary that takes less time is offered without its time
SUMMARIZE = ("Summarize this document", "Summarize these documents")  # the questions, of one and of several


def guide(state: ReadingState) -> str:
    """Returns the guide to the documents of a chat without messages; "" for other chats."""
    found = [d for d in state.distinct.values() if not d.error]
    if not found or state.wanted.has_messages:
        return ""
    several = len(found) > 1
    head = f"<header>{_count(len(found)) if several else _title(found[0])}{_summarize(found, state)}</header>"
    sections = "".join(_section(d, several) for d in found[:MAX_DOCUMENTS])
    return f'<div class="lc-guide">{head}{sections}</div>'


def _count(number: int) -> str:
    first = f"The first {MAX_DOCUMENTS} of " if number > MAX_DOCUMENTS else ""
    return f"<small>{first}{number:,} documents</small>"


def _title(d: ReadDocument) -> str:
    name, about = escape(d.name or "…"), " · ".join(filter(None, [file_kind(d.name).upper(), ready_text.length(d)]))
    titled = f'<button type="button" {opener(d.document, d.name)}>{name}</button>' if d.document else name
    return f"<div><h2>{titled}</h2><small>{escape(about)}</small></div>"


def _section(d: ReadDocument, several: bool) -> str:
    told = "".join(_sentence(d, sentence) for sentence in d.guide.sentences[: MAX_SENTENCES[several]])
    told += "".join(_table(d, table) for table in d.guide.tables[: MAX_SENTENCES[several]])
    return f"<section>{_title(d) * several}{told}{_contents(d, several)}</section>"


def _table(d: ReadDocument, table: TableGuide) -> str:
    opens, columns = opener(d.document, d.name, table.start, table.end), ", ".join(table.columns)
    name = f"<b>{escape(table.sheet)}</b> " if table.sheet else ""
    asks = "".join(_question_button(question) for question in table.questions)
    told = f'<p><button type="button" {opens}>{name}{escape(columns)}</button></p>'
    return told + f'<p class="lc-offers">{asks}</p>' * bool(asks)


def _question_button(question: str) -> str:
    return f'<button type="button" data-asks="{escape(question)}">{escape(question)}</button>'


def _sentence(d: ReadDocument, s: GuideSentence) -> str:
    words = "… " * s.text[:1].islower() + without_signs(s.text, d.name)
    shown = escape(words) + f" <small>{escape(s.place)}</small>" * bool(s.place)
    return f'<p><button type="button" {opener(d.document, d.name, s.start, s.end)}>{shown}</button></p>'


def _contents(d: ReadDocument, several: bool) -> str:
    headings, most = d.guide.headings, MAX_HEADINGS[several]
    if len(headings) < MIN_HEADINGS:
        return ""
    shown = "".join(_heading(d, heading) for heading in headings[:most])
    shown += f"<li>and {len(headings) - most:,} more</li>" * (len(headings) > most)
    return f'<nav aria-label="Contents of {escape(d.name)}"><ul>{shown}</ul></nav>'


def _heading(d: ReadDocument, heading: Span) -> str:
    end = min(heading.end, heading.start + len(heading.label))
    opens = opener(d.document, d.name, heading.start, end)
    return f'<li><button type="button" {opens}>{escape(heading.label)}</button></li>'


def _summarize(documents: Sequence[ReadDocument], state: ReadingState) -> str:
    """Returns the button that asks for a summary, with the time it takes; "" while files are opened, and for tables."""
    if not all(d.document and d.part != "row" for d in documents):
        return ""
    seconds = state.ready.summary if state.ready else None
    time = f" <small>about {duration(seconds)}</small>" if seconds and seconds >= MIN_SECONDS else ""
    asked = SUMMARIZE[len(documents) > 1]
    return f'<span class="lc-offers"><button type="button" data-asks="{asked}">Summarize{time}</button></span>'


def suggestions(questions: Sequence[str]) -> str:
    """Returns buttons that ask suggested questions; "" if there are none."""
    shown = "".join(map(_question_button, questions))
    return f"<div>{shown}</div>" if shown else ""
