"""Finds the passages of documents that a question is about, by words and vectors. ``focus_on_passages`` hides all other
pages from the question.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.decoding.attribution import pages_of_text
from localctx.engine.run_request import prefill_request
from localctx.engine.runtime import Runtime
from localctx.library.search.indexing import try_with_embedder
from localctx.library.search.search import (
    Passage,
    all_passages,
    cut_passages,
    search,
)
from localctx.models.catalog import load_catalog
from localctx.models.embedder import Embedder
from localctx.shape import SINK_PAGES
from localctx.store.documents import DocumentBeginning, StoredDocument
from localctx.store.store import Store, store_errors
from localctx.workflows.answer.answer_case import AnswerCase
from localctx.workflows.answer.every_passage import open_store
from localctx.workflows.answer.question_kind import asks_of_the_whole
from localctx.workflows.index_documents import make_searchable


@dataclass(frozen=True)
class FoundPassages:
    """The passages found by search, their documents by id, and a warning about the search, if any."""

    passages: list[Passage]
    documents: dict[str, StoredDocument]
    warning: str | None


def passage_count(runtime: Runtime) -> int:
    """Returns the number of passages that an answer is made from.

    This is the setting ``passages``, or the number measured with the adapter, or the catalogue's number for the model,
    or 1, whichever is found first.
    """
    settings, adapter = runtime.settings, runtime.adapter
    measured = adapter.measured_count("passages") if adapter else 0
    entry = load_catalog().get(settings.model)
    return settings.passages or measured or (entry.passages if entry else 0) or 1


def find_passages(
    runtime: Runtime, store: Store, documents: Sequence[StoredDocument] | None, question: str, top: int
) -> EngineCoroutine[FoundPassages]:
    """Search for ``question`` in ``documents`` (None: in the whole library), after making them searchable. Returns at
    most ``top`` passages, best first. Raises Cancelled.
    """
    ids = None if documents is None else [document.id for document in documents]
    rows = {d.id: d for d in store.documents.all() if (d.id in ids if ids is not None else not d.superseded)}
    indexing = yield from make_searchable(runtime, store, list(rows))
    beginning = _beginning(documents)

    def find(embedder: Embedder | None) -> list[Passage]:
        before = len(beginning.text) if beginning else None
        passages = search(store, question, embedder, list(rows), top, before).passages
        # the model then decides whether these passages answer the question
        if not passages and (documents or asks_of_the_whole(question)):
            passages = all_passages(store, list(rows))[:top]
        return cut_passages(passages, beginning) if beginning else passages

    passages, warning = try_with_embedder(lambda: runtime.embedder, find)
    text_of, spans_of, given = store.documents.text, store.documents.spans, {d.id: d for d in documents or ()}
    named = {p.document for p in passages}
    passages = [replace(p, name=given[p.document].name) if p.document in given else p for p in passages]
    found = {d: given.get(d) or StoredDocument(rows[d], text_of(d), spans_of(d)) for d in named}
    return FoundPassages(passages, found, indexing or warning)


def focus_on_passages(case: AnswerCase, answering: EngineCoroutine[None]) -> EngineCoroutine[None]:
    """Prefill the documents, evict the pages without any of the question's best passages, and run ``answering``.

    Small models are distracted by other text that resembles the answer. As in Quest (arXiv:2406.10774), the question
    attends to few pages; but here a search of the text chooses these pages, once for all layers. The other pages stay
    in the store for later questions. If the search finds nothing, all pages are seen.
    """
    request = case.request
    yield from prefill_request(request, request.prompt.boundary)
    if passages := (yield from _passages_of(case)):
        indices = {document.id: i for i, document in enumerate(request.prompt.documents)}
        ranges = [(indices[p.document], p.start, p.end) for p in passages]
        texts = [document.text for document in request.prompt.documents]
        pages = pages_of_text(request.model.tokenizer, request.prompt.tokens[: request.prompt.boundary], texts, ranges)
        request.paged_cache.keep_pages(pages | set(range(SINK_PAGES)))
    yield from answering


def _passages_of(case: AnswerCase) -> EngineCoroutine[list[Passage]]:
    """Returns the passages that the question and the previous question of the chat are about."""
    request, runtime = case.request, case.builder.runtime
    asked = f"{request.prompt.asked_before} {case.question}".strip()
    with open_store(runtime, request.persister is not None) as store, store_errors(store.home):
        for document in request.prompt.documents:
            store.documents.add(*document.whole)
        found = yield from find_passages(runtime, store, request.prompt.documents, asked, passage_count(runtime))
        return found.passages


def _beginning(documents: Sequence[StoredDocument] | None) -> DocumentBeginning | None:
    """Returns the one document that is read only up to a mark, if there is one."""
    return next((document for document in documents or () if isinstance(document, DocumentBeginning)), None)
