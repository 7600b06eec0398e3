"""Makes documents searchable as a coroutine, so that other questions are answered between its steps."""

from collections.abc import Collection

from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.events import Progress
from localctx.engine.runtime import Runtime
from localctx.errors import ModelError
from localctx.library.search.indexing import BATCH, IndexStep, index_steps, lacks_vectors, unindexed, without_vectors
from localctx.models.embedder import Embedder
from localctx.store.documents import DocumentRow
from localctx.store.store import Store

AWAITED = 2_000_000  # characters; for more text, a question does not wait for vectors and searches the words alone
WORDS_ALONE = "the index of so long a text is not complete yet: it is searched by its words alone"


def make_searchable(
    runtime: Runtime, store: Store, documents: Collection[str], awaited: float = AWAITED, batch: int = BATCH
) -> EngineCoroutine[str | None]:
    """Index the words of ``documents`` (ids), and also compute their vectors, unless vectors are missing for more than
    ``awaited`` characters (infinite: no limit).

    Returns a warning if vectors are missing at the end. Yields the progress after each step of ``batch`` chunks. Raises
    Cancelled; finished steps are kept.
    """
    try:
        return (yield from _index(runtime, store, runtime.embedder, documents, awaited, batch))
    except ModelError as e:
        yield from _index(runtime, store, None, documents, awaited, batch)
        return without_vectors(e)


def index_words(runtime: Runtime, store: Store, documents: Collection[str]) -> EngineCoroutine[None]:
    """Index the words of ``documents`` (ids). Yields the progress. Raises Cancelled."""
    yield from _index(runtime, store, None, documents, 0, BATCH)


def progress_of(step: IndexStep) -> Progress:
    """Returns the progress after ``step`` as an event."""
    return Progress("indexing", step.done, step.total, eta=step.eta)


def _index(
    runtime: Runtime,
    store: Store,
    embedder: Embedder | None,
    documents: Collection[str],
    awaited: float,
    batch: int,
) -> EngineCoroutine[str | None]:
    rows = [row for row in unindexed(store, embedder) if row.id in documents]
    used = embedder if _characters(store, rows, embedder) <= awaited else None
    for step in index_steps(store, rows, used, batch):
        runtime.check_cancelled()
        yield progress_of(step)
    return WORDS_ALONE if embedder and not used else None


def _characters(store: Store, rows: list[DocumentRow], embedder: Embedder | None) -> int:
    return sum(row.chars for row in rows if lacks_vectors(store, row, embedder))
