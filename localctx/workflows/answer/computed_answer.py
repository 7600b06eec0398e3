"""Answers a question about a table with a query over all rows, so that numbers are computed and not generated.

The possible queries are derived from the words of the question. If there are several, the model chooses one: a grammar
limits the model's output to exactly these queries.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from localctx.document_parts import Citation
from localctx.engine.coroutine import EngineCoroutine, map_events
from localctx.engine.events import Token
from localctx.engine.prompt import NO_CONVERSATION, Conversation
from localctx.engine.prompt_wording import AS_IT_IS
from localctx.engine.request import Request
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.run_request import answer_request, emit_text
from localctx.errors import DocumentError, TooLong
from localctx.library.citations.cite import cite_characters
from localctx.library.search.search import Passage
from localctx.library.tables.question_words import wanted
from localctx.library.tables.table import DataTable, tables_of
from localctx.library.tables.table_answer import tell_not_computed, tell_result
from localctx.library.tables.table_database import parse_query, run_query
from localctx.library.tables.table_lookups import lookup_query, may_look_up
from localctx.library.tables.table_queries import likeliest_table, queries, why_not_computed
from localctx.models.constraint import choice_grammar
from localctx.models.token_controls import NO_CONTROLS, TokenControls
from localctx.store.documents import StoredDocument
from localctx.workflows.answer.answer_case import AnswerCase

NOT_COMPUTED = "This was read, not calculated. To count, add up or compare all rows, ask about only the table"
"""The note to an answer that is made from passages with rows of a table, and not computed."""

_MAX_CITED = 10  # rows
_EXAMPLES = 3  # values of a column that are shown to the model
_LONGEST = 60  # characters of a value that is shown
_MAX_QUERY = 512  # tokens
_PROMPT = """Here is the SQLite table t:
{columns}

Write the one query over t that answers the question.

Question: {question}"""


class TableWorkflow:
    """Builds requests whose answer is computed over a table; ``answer_from_table`` answers them."""

    def __init__(self, builder: RequestBuilder) -> None:
        self._builder, self._runtime = builder, builder.runtime

    def open(
        self, documents: Sequence[StoredDocument] | None, question: str, conversation: Conversation = NO_CONVERSATION
    ) -> Request | None:
        """Build the request that answers ``question`` by computing over a table of the documents, or from one of its
        rows.

        Returns None if the question asks for neither, if no document has a table, if several tables could be
        meant, or if there are several possible queries and the model cannot choose among them. If the question computes
        over all rows but has words that no query uses, the answer says so; if there are other documents, returns None,
        as they may answer. A row is only looked up if the document is the only one.
        """
        computes, has_others = wanted(question).computes, len(documents or ()) > 1
        if self._runtime.settings.mode != "auto" or not conversation.is_free:
            return None
        if not computes and (has_others or not may_look_up(question)):
            return None
        found = [d for d in documents or () if any(span.kind == "row" for span in d.spans)]
        asked = [(d, *_asked_of(tables, question)) for d in found if (tables := tables_of(d))]
        if len(asked) > 1:
            asked = [one for one in asked if one[2]]
        if len(asked) != 1:
            return None
        document, table, possible = asked[0]
        unused = why_not_computed(table, question) if computes and not (possible or has_others) else []
        if not possible and not unused:
            return None
        if len(possible) > 1 and self._builder.model.engine != "torch":
            return None
        try:
            request = self._request(document, table, question, possible)
        except TooLong:  # the table has very many columns
            return None
        request.prompt.unused_words = unused
        return request

    def _request(self, document: StoredDocument, table: DataTable, question: str, possible: Sequence[str]) -> Request:
        prompt = _PROMPT.format(columns="\n".join(_columns(table)), question=question)
        asked = prompt if len(possible) > 1 else question  # a single query needs no choice by the model
        conversation = Conversation(form=AS_IT_IS, max_tokens=_MAX_QUERY)
        request = self._builder.build([], [], asked, persist=False, conversation=conversation)
        request.prompt.documents, request.prompt.possible_queries = [document], possible
        rows = f"{len(table.rows):,} rows of a table"
        reason = f"the question {'computes over' if wanted(question).computes else 'names one of'} the {rows}"
        request.plan = replace(request.plan, mode="table", reason=reason, unusual=True)
        return request


def answer_from_table(case: AnswerCase) -> EngineCoroutine[None]:
    """Answer with the result of the likeliest query, and cite the rows that it is based on. If there is no query, say
    why nothing was computed.

    Raises Cancelled, OutOfKVMemory, and DocumentError if the query takes too long.
    """
    request, (document,) = case.request, case.request.prompt.documents
    table, _ = _asked_of(tables_of(document), case.question)
    if not request.prompt.possible_queries:
        yield from emit_text(request, tell_not_computed(table, request.prompt.unused_words))
        request.result.stopped = "unanswered"
        return
    query = yield from _chosen(case)
    try:
        result = run_query(table, query)
    except TimeoutError as e:
        problem = f"computing this over {document.name} takes too long"
        raise DocumentError(problem, "ask about fewer rows, or give a smaller table") from e
    request.result.query, request.result.matched_rows = query, len(result.rows)
    request.result.citations = [_cite(document, row.start, row.end) for row in result.rows[:_MAX_CITED]]
    yield from emit_text(request, tell_result(table, parse_query(query), result, case.question))
    request.result.stopped = "eos" if result.rows else "unanswered"


def may_need_table(passages: Sequence[Passage], question: str) -> bool:
    """Returns True if ``question`` asks for a computation, and at least one of the ``passages`` found for it is a row
    of a table.
    """
    return any((p.page or "").startswith("row ") for p in passages) and wanted(question).computes


def _asked_of(tables: Sequence[DataTable], question: str) -> tuple[DataTable, list[str]]:
    """Returns the table that the question is about, and the queries that may answer it."""
    if wanted(question).computes:
        table = likeliest_table(tables, question)
        return table, queries(table, question)
    found = lookup_query(tables, question)
    return (found[0], [found[1]]) if found else (tables[0], [])


def _chosen(case: AnswerCase) -> EngineCoroutine[str]:
    """Returns the query that the model chooses among the possible ones."""
    request, possible = case.request, case.request.prompt.possible_queries
    if len(possible) == 1:
        return possible[0]
    request.controls = TokenControls(grammar=choice_grammar(possible))
    greedy = replace(case.settings, temperature=0.0, n=1, beams=1, repeats="allow")
    yield from map_events(answer_request(request, greedy), lambda event: None if isinstance(event, Token) else event)
    written = request.texts[0]
    request.result.answers, request.controls = [[]], NO_CONTROLS
    return written if written in possible else possible[0]


def _columns(table: DataTable) -> Iterator[str]:
    for name in table.names:
        texts = dict.fromkeys(text[:_LONGEST] for row in table.rows if (text := row.texts.get(name, "")))
        yield f'"{name}" ({table.columns[name].kind}), such as {", ".join(list(texts)[:_EXAMPLES])}'


def _cite(document: StoredDocument, start: int, end: int) -> Citation:
    return replace(cite_characters(document, start, end), source="passage")
