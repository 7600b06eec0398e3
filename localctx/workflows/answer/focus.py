"""Answers a question about a long document that was read whole by showing the model only the best passages' pages.

Small models are distracted by text elsewhere that resembles the answer. As in Quest (arXiv:2406.10774) few pages are
seen; but a search of the text chooses them, once for all layers. The other pages stay in the store for later questions.
"""

from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.decoding.attribution import pages_of_text
from localctx.engine.run_request import prefill_request
from localctx.library.search.search import Passage
from localctx.shape import SINK_PAGES
from localctx.store.store import store_errors
from localctx.workflows.answer.answer_case import AnswerCase
from localctx.workflows.answer.every_passage import open_store
from localctx.workflows.answer.find_passages import find_passages, passage_count


def focus_on_passages(case: AnswerCase, answering: EngineCoroutine[None]) -> EngineCoroutine[None]:
    """Prefill the documents, evict the pages that have none of the question's passages, then run ``answering``.

    If search finds nothing, all pages are seen.
    """
    request = case.request
    yield from prefill_request(request, request.prompt.boundary)
    if passages := (yield from _passages(case)):
        indices = {document.id: i for i, document in enumerate(request.prompt.documents)}
        ranges = [(indices[p.document], p.start, p.end) for p in passages]
        texts = [document.text for document in request.prompt.documents]
        pages = pages_of_text(request.model.tokenizer, request.prompt.tokens[: request.prompt.boundary], texts, ranges)
        request.paged_cache.keep_pages(pages | set(range(SINK_PAGES)))
    yield from answering


def _passages(case: AnswerCase) -> EngineCoroutine[list[Passage]]:
    """Returns the passages that the question, and the one before it, are about."""
    request, runtime = case.request, case.builder.runtime
    asked = f"{request.prompt.asked_before} {case.question}".strip()
    with open_store(runtime, request.persister is not None) as store, store_errors(store.home):
        for document in request.prompt.documents:
            store.documents.add(*document.whole)
        found = yield from find_passages(runtime, store, request.prompt.documents, asked, passage_count(runtime))
        return found.passages
