"""Finds the passages of documents that a question is about, by words and vectors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from localctx.engine.coroutine import EngineCoroutine
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
from localctx.store.documents import DocumentBeginning, StoredDocument
from localctx.store.store import Store
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

    It is the setting, else the number measured with the adapter, else the catalogue's number for the model, else 1.
    """
    settings, adapter = runtime.settings, runtime.adapter
    measured = adapter.measured_count("passages") if adapter else 0
    entry = load_catalog().get(settings.model)
    return settings.passages or measured or (entry.passages if entry else 0) or 1


def find_passages(
    runtime: Runtime, store: Store, documents: Sequence[StoredDocument] | None, question: str, top: int
) -> EngineCoroutine[FoundPassages]:
    """Returns at most ``top`` passages of ``documents`` (None: of the whole library), best first, after making them
    searchable. Raises Cancelled.
    """
    ids = None if documents is None else [document.id for document in documents]
    rows = {d.id: d for d in store.documents.all() if (d.id in ids if ids is not None else not d.superseded)}
    indexing = yield from make_searchable(runtime, store, list(rows))
    beginning = _beginning(documents)

    def find(embedder: Embedder | None) -> list[Passage]:
        before = len(beginning.text) if beginning else None
        passages = search(store, question, embedder, list(rows), top, before).passages
        if not passages and (documents or asks_of_the_whole(question)):  # the model finds whether they answer it
            passages = all_passages(store, list(rows))[:top]
        return cut_passages(passages, beginning) if beginning else passages

    passages, warning = try_with_embedder(lambda: runtime.embedder, find)
    text_of, spans_of, given = store.documents.text, store.documents.spans, {d.id: d for d in documents or ()}
    named = {p.document for p in passages}
    passages = [replace(p, name=given[p.document].name) if p.document in given else p for p in passages]
    found = {d: given.get(d) or StoredDocument(rows[d], text_of(d), spans_of(d)) for d in named}
    return FoundPassages(passages, found, indexing or warning)


def _beginning(documents: Sequence[StoredDocument] | None) -> DocumentBeginning | None:
    """Returns the one document that is read only up to a mark, if there is one."""
    return next((document for document in documents or () if isinstance(document, DocumentBeginning)), None)
