"""Search over documents: an index of words and vectors, and the passages that both lists together put first."""

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np

from localctx.errors import Cancelled, ModelError
from localctx.library.chunk import Chunk, chunks, views
from localctx.models.embedder import Embedder
from localctx.store.documents import DocumentRow, Span, labels
from localctx.store.search_index import ChunkRow
from localctx.store.store import Store

T = TypeVar("T")
Progress = Callable[[str, int, int], None]  # phase, characters done, of how many

K = 5  # of reciprocal rank fusion: a list's hit of rank r counts its weight / (K + r)
WEIGHTS = {"words": 1.0, "vectors": 0.5}  # words alone put the right paragraph first more often than vectors alone
DEPTH = 20  # hits of each list that are fused
BATCH = 4  # chunks embedded between two looks at the flag: half a second on one slow core
_SEPARATORS = re.compile(r"[_.-]+")
_PROSE = {"", ".txt", ".md", ".markdown", ".rst", ".html", ".htm", ".xhtml", ".pdf", ".docx", ".odt", ".epub", ".tex"}


@dataclass(frozen=True)
class Passage:
    """Characters ``start..end`` of a document, found by a search.

    ``heading`` and ``page`` are those it begins under, None where there is none. ``ranks`` tells which lists found it
    (``words``, ``vectors``) and at what rank, from 1. ``score`` orders the passages of one search.
    """

    document: str
    name: str
    start: int
    end: int
    text: str
    heading: str | None
    page: str | None
    score: float
    ranks: dict[str, int]


@dataclass(frozen=True)
class SearchResult:
    """The passages of a search, best first; ``words_only`` of the ``chunks`` searched had no vector to be found by."""

    passages: list[Passage] = field(default_factory=list)
    chunks: int = 0
    words_only: int = 0


def index(
    store: Store,
    document: DocumentRow,
    embedder: Embedder | None,
    progress: Progress = lambda *p: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> None:
    """Make a kept document searchable: by words and, with an ``embedder``, by vectors. What is there is not made again.

    Reports ``indexing`` and ``embedding`` in characters. Raises Cancelled within a second of ``cancelled``; vectors
    made by then are kept, and the next call goes on with the rest.
    """
    if not store.index.has(document.id):
        text = store.documents.text(document.id)
        titled = _titled(document, text, store.documents.spans(document.id))
        store.index.add(document.id, text, _watched(titled, len(text), progress, cancelled))
    if embedder:
        _embed(store, document, embedder, progress, cancelled)


def unindexed(store: Store, embedder: Embedder | None) -> list[DocumentRow]:
    """The documents for which ``index`` has something to do."""
    name = embedder.name if embedder else None
    return [d for d in store.documents.all() if _unfinished(*store.index.coverage(name, [d.id]), name)]


def index_all(
    store: Store,
    embedder: Embedder | None,
    documents: Container[str] | None = None,
    progress: Progress = lambda *p: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> None:
    """``index`` for each of these documents (ids), or of all, that needs it. Raises Cancelled."""
    for row in unindexed(store, embedder):
        if documents is None or row.id in documents:
            index(store, row, embedder, progress, cancelled)


def with_vectors(load: Callable[[], Embedder | None], work: Callable[[Embedder | None], T]) -> tuple[T, str | None]:
    """What ``work`` gives with the embedder; where that cannot be had, without it, and why."""
    try:
        return work(load()), None
    except ModelError as e:
        return work(None), f"{e.problem}; passages are searched by their words alone"


def search(
    store: Store, query: str, embedder: Embedder | None, documents: Sequence[str] | None = None, top: int = 10
) -> SearchResult:
    """The ``top`` passages for ``query`` in these documents (ids), or all: BM25 and vectors fused by reciprocal rank.

    Nothing is indexed. Where vectors are absent words alone decide, and ``SearchResult.words_only`` tells.
    """
    depth = max(top, DEPTH)
    lists = {"words": store.index.by_words(query, depth, documents)}
    total, embedded = store.index.coverage(embedder.name if embedder else None, documents)
    if embedder and embedded and query.strip():
        lists["vectors"] = store.index.by_vector(embedder.name, embedder.embed([query])[0], depth, documents)
    scores = fuse(lists)
    best = store.index.get(sorted(scores, key=lambda c: (-scores[c], c))[:top])
    ranks = {c.id: {name: l.index(c.id) + 1 for name, l in lists.items() if c.id in l} for c in best}
    open_ = _opener(store)
    passages = [_passage(open_(c.document), c, scores[c.id], ranks[c.id]) for c in best]
    return SearchResult(passages, total, total - embedded)


def words_of(query: str) -> re.Pattern[str] | None:
    """What matches the words of a query, whatever their case; None where it has none."""
    terms = "|".join(map(re.escape, re.findall(r"\w+", query)))
    return re.compile(rf"\b(?:{terms})\b", re.IGNORECASE) if terms else None


def join_neighbours(store: Store, passages: Sequence[Passage]) -> list[Passage]:
    """Passages with those made one that lie side by side under one heading; as good as the best of them, best first."""
    joined = list[Passage]()
    open_ = _opener(store)
    for p in sorted(passages, key=lambda p: (p.document, p.start)):
        last = joined[-1] if joined else None
        text = open_(p.document).text
        if last and _touch(last, p, text):
            ranks = {n: min(r[n] for r in (last.ranks, p.ranks) if n in r) for n in last.ranks | p.ranks}
            score, inside = max(last.score, p.score), text[last.start : p.end]
            joined[-1] = replace(last, end=p.end, text=inside, score=score, ranks=ranks)
        else:
            joined.append(p)
    return sorted(joined, key=lambda p: -p.score)


def fuse(lists: Mapping[str, Sequence[int]]) -> dict[int, float]:
    """Weighted reciprocal rank fusion (Cormack, Clarke and Buettcher, 2009): the score of each chunk in the lists."""
    scores = dict[int, float]()
    for name, ranked in lists.items():
        for rank, chunk in enumerate(ranked, 1):
            scores[chunk] = scores.get(chunk, 0) + WEIGHTS[name] / (K + rank)
    return scores


@dataclass(frozen=True)
class _Open:
    """A document at hand, and what its headings and pages are at a position."""

    row: DocumentRow
    text: str
    heading: Callable[[int], str | None]
    page: Callable[[int], str | None]


def _opener(store: Store) -> Callable[[str], _Open]:
    rows = {d.id: d for d in store.documents.all()}

    @cache
    def open_(document: str) -> _Open:
        spans = store.documents.spans(document)
        text = store.documents.text(document)
        return _Open(rows[document], text, labels(spans, "heading"), labels(spans, "page"))

    return open_


def _passage(document: _Open, chunk: ChunkRow, score: float, ranks: dict[str, int]) -> Passage:
    return Passage(
        document.row.id,
        document.row.name,
        chunk.start,
        chunk.end,
        document.text[chunk.start : chunk.end],
        document.heading(chunk.start),
        document.page(chunk.start),
        score,
        ranks,
    )


def _touch(a: Passage, b: Passage, text: str) -> bool:
    between = text[a.end : b.start]
    return (a.document, a.heading) == (b.document, b.heading) and not between.strip()


def _unfinished(total: int, embedded: int, embedder: str | None) -> bool:
    return not total or (embedder is not None and embedded < total)


def _titled(document: DocumentRow, text: str, spans: Sequence[Span]) -> Iterator[tuple[int, int, str]]:
    """The chunks of a document, each with the document's name and the heading it is under, which are searched too."""
    name = Path(document.name)
    heading = labels(spans, "heading")
    for start, end in chunks(text, spans, in_lines(document.name)):
        yield start, end, " ".join(filter(None, [_SEPARATORS.sub(" ", name.stem), heading(start)]))


def _watched(
    rows: Iterator[tuple[int, int, str]], total: int, progress: Progress, cancelled: Callable[[], bool]
) -> Iterator[tuple[int, int, str]]:
    for count, row in enumerate(rows):
        if cancelled():
            raise Cancelled
        if count % 256 == 0:
            progress("indexing", row[0], total)
        yield row


def _embed(
    store: Store, document: DocumentRow, embedder: Embedder, progress: Progress, cancelled: Callable[[], bool]
) -> None:
    if not (rows := store.index.without_vectors(document.id, embedder.name)):
        return
    text, done, total = store.documents.text(document.id), 0, sum(c.end - c.start for c in rows)
    for at in range(0, len(rows), BATCH):
        if cancelled():
            raise Cancelled
        progress("embedding", done, total)
        batch = rows[at : at + BATCH]
        parts = [[text[slice(*v)] for v in views(text, Chunk(c.start, c.end), in_lines(document.name))] for c in batch]
        made = embedder.embed([f"{c.title}\n{part}" for c, some in zip(batch, parts, strict=True) for part in some])
        store.index.put_vectors(embedder.name, batch, np.split(made, np.cumsum([len(some) for some in parts])[:-1]))
        done += sum(c.end - c.start for c in batch)


def in_lines(name: str) -> bool:
    """Whether a document of this name is source code or a table, which is divided at line ends."""
    return Path(name).suffix.lower() not in _PROSE
