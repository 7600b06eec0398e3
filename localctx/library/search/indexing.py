"""Makes documents searchable in small steps, so that other work can run between them.

The words of all documents are indexed first, then their vectors. Finished steps are kept, and the next run continues
after them.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from localctx.errors import ModelError
from localctx.library.search.chunk import Chunk, chunks, views
from localctx.models.embedder import Embedder
from localctx.store.documents import DocumentRow, StoredDocument, labels
from localctx.store.search_index import ChunkRow
from localctx.store.search_words import is_other_language
from localctx.store.store import Store

T = TypeVar("T")

WORDS_AT_ONCE = 32  # chunks of a step of words: a thirtieth of a second, for which the store is locked
BATCH = 4  # chunks of a step of vectors: half a second on one slow core
VECTOR_COST = 100  # the vectors of a text take about 100 times as long as its words
MEASURED = 2.0  # seconds of a phase after which its speed says how long the rest takes
_SEPARATORS = re.compile(r"[_.-]+")
_PROSE = {"", ".txt", ".md", ".markdown", ".rst", ".html", ".htm", ".xhtml", ".tex"}
_PROSE |= {".pdf", ".docx", ".odt", ".rtf", ".epub", ".pptx", ".odp", ".eml", ".mbox", ".ipynb", ".srt", ".vtt"}


@dataclass(frozen=True)
class IndexStep:
    """The progress of indexing after a step.

    ``done`` and ``total`` are characters of all documents of this run; characters count more for vectors than for
    words. ``eta`` is the remaining time in seconds, None if unknown.
    """

    done: int
    total: int
    eta: float | None = None


@dataclass(frozen=True)
class Unsearchable:
    """A document whose words are not all indexed yet. ``share`` (0 to 1) is the share of its text that is indexed."""

    document: str
    name: str
    share: float


def index_steps(
    store: Store,
    documents: Sequence[DocumentRow],
    embedder: Embedder | None,
    batch: int = BATCH,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[IndexStep]:
    """Index stored documents by words and, with an ``embedder``, by vectors, ``batch`` chunks at a time.

    Yields the progress after each step; it never decreases. Skips documents that are removed meanwhile.
    """
    progress = _IndexProgress(store, documents, embedder, clock)
    for row in documents:
        yield from map(progress.add_words, _add_words(store, row))
    progress.start_vectors()
    for row in documents if embedder else ():
        yield from map(progress.add_vectors, _add_vectors(store, row, embedder, batch))  # type: ignore[arg-type]


def index(store: Store, document: DocumentRow, embedder: Embedder | None) -> None:
    """Index one stored document completely: its words and, with an ``embedder``, its vectors."""
    for _ in index_steps(store, [document], embedder):
        pass


def unindexed(store: Store, embedder: Embedder | None) -> list[DocumentRow]:
    """Returns the documents whose words are not all indexed, or that lack vectors by ``embedder`` (None: vectors are
    not needed).
    """
    return [d for d in store.documents.all() if not store.index.has(d.id) or lacks_vectors(store, d, embedder)]


def lacks_vectors(store: Store, document: DocumentRow, embedder: Embedder | None) -> bool:
    """Returns True if a document has no chunks yet, or chunks without vectors by ``embedder``. Returns False if
    ``embedder`` is None.
    """
    if embedder is None:
        return False
    total, embedded = store.index.coverage(embedder.name, [document.id])
    return not total or embedded < total


def unsearchable(store: Store, documents: Sequence[str] | None = None) -> list[Unsearchable]:
    """Returns the documents whose words are not all indexed, among ``documents`` (ids; None: all)."""
    rows = [d for d in store.documents.all() if (documents is None or d.id in documents) and not store.index.has(d.id)]
    return [Unsearchable(d.id, d.name, _words_share(store, d)) for d in rows]


def try_with_embedder(load: Callable[[], Embedder | None], run: Callable[[Embedder | None], T]) -> tuple[T, str | None]:
    """Call ``run`` with the embedder that ``load`` returns. Returns its result and None. If the embedder fails with a
    ModelError, calls ``run(None)``, and returns its result and a warning.
    """
    try:
        return run(load()), None
    except ModelError as e:
        return run(None), without_vectors(e)


def without_vectors(error: ModelError) -> str:
    """Returns a warning for the user: search works without vectors because of ``error``."""
    return f"{error.problem}; passages are searched by their words alone"


def is_line_based(name: str) -> bool:
    """Returns True if ``name`` has the suffix of source code or a table, because such files are divided at line ends.

    Prose is divided at sentence ends.
    """
    return Path(name).suffix.lower() not in _PROSE


class _IndexProgress:
    """Counts the finished work: a character counts once when its words are indexed, and VECTOR_COST times when its
    vector is computed.
    """

    def __init__(
        self, store: Store, rows: Sequence[DocumentRow], embedder: Embedder | None, clock: Callable[[], float]
    ) -> None:
        self._cost, self._clock = VECTOR_COST if embedder else 0, clock
        self._total = (1 + self._cost) * sum(row.chars for row in rows)
        name = embedder.name if embedder else None
        shares = [(row.chars, _words_share(store, row), _vectors_share(store, row, name)) for row in rows]
        self._done = sum(chars * (words + self._cost * vectors) for chars, words, vectors in shares)
        self._begun, self._start = self._done, clock()

    def start_vectors(self) -> None:
        self._begun, self._start = self._done, self._clock()

    def add_words(self, characters: int) -> IndexStep:
        self._done += characters
        return self._step(None if self._cost else self._eta())

    def add_vectors(self, characters: int) -> IndexStep:
        self._done += self._cost * characters
        return self._step(self._eta())

    def _step(self, eta: float | None) -> IndexStep:
        return IndexStep(min(round(self._done), self._total), self._total, eta)

    def _eta(self) -> float | None:
        seconds, done = self._clock() - self._start, self._done - self._begun
        return max(0.0, self._total - self._done) * seconds / done if seconds >= MEASURED and done else None


def _words_share(store: Store, row: DocumentRow) -> float:
    return 1.0 if store.index.has(row.id) else store.index.end(row.id) / max(1, row.chars)


def _vectors_share(store: Store, row: DocumentRow, embedder: str | None) -> float:
    total, embedded = store.index.coverage(embedder, [row.id])
    return embedded / total if total and store.index.has(row.id) else 0.0


def _add_words(store: Store, row: DocumentRow) -> Iterator[int]:
    """Index the words of a document. Yields the number of characters of each step."""
    document = None if store.index.has(row.id) else store.documents.stored(row.id)
    if not document:
        return
    latin, end = is_other_language(document.text), store.index.end(row.id)
    for some in _batches(_titled(document, end), WORDS_AT_ONCE):
        if not store.index.add(row.id, document.text, some, latin):  # removed, or indexed by another process
            return
        yield some[-1][1] - end
        end = some[-1][1]
    store.index.finish(row.id)


def _titled(document: StoredDocument, begin: int) -> Iterator[tuple[int, int, str]]:
    """Yields the chunks of a document from character ``begin`` on, each with a title: the document's name and the
    chunk's heading. Titles are searched too.
    """
    name, heading = _SEPARATORS.sub(" ", Path(document.name).stem), labels(document.spans, "heading")
    for start, end in chunks(document.text, document.spans, is_line_based(document.name), begin):
        yield start, end, " ".join(filter(None, [name, heading(start)]))


def _add_vectors(store: Store, row: DocumentRow, embedder: Embedder, batch: int) -> Iterator[int]:
    """Compute the missing vectors of a document. Yields the number of characters of each step."""
    rows = store.index.without_vectors(row.id, embedder.name)
    document = store.documents.stored(row.id) if rows else None
    for some in _batches(iter(rows), batch):
        if not document or not store.documents.has(row.id):
            return
        _embed(store, embedder, document.text, some, is_line_based(row.name))
        yield sum(chunk.end - chunk.start for chunk in some)


def _batches(items: Iterator[T], length: int) -> Iterator[list[T]]:
    while some := list(islice(items, length)):
        yield some


def _embed(store: Store, embedder: Embedder, text: str, rows: Sequence[ChunkRow], lines: bool) -> None:
    parts = [[text[slice(*view)] for view in views(text, Chunk(row.start, row.end), lines)] for row in rows]
    titled = [f"{row.title}\n{part}" for row, texts in zip(rows, parts, strict=True) for part in texts]
    ends = np.cumsum([len(texts) for texts in parts])[:-1]
    store.index.put_vectors(embedder.name, rows, np.split(embedder.embed(titled), ends))
