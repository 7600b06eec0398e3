"""Searches documents: finds passages by BM25 and by vectors, and fuses the two by reciprocal rank."""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from localctx.library.search.indexing import Unsearchable
from localctx.library.wording.word_forms import FUNCTION_WORDS
from localctx.models.embedder import Embedder
from localctx.store.documents import DocumentRow, StoredDocument, labels, part_labels, part_starts
from localctx.store.search_index import ChunkRow
from localctx.store.store import Store

K = 5  # reciprocal rank fusion: a hit of rank r in a list scores the list's weight / (K + r)
WEIGHTS = {"words": 1.0, "vectors": 0.5}  # words alone rank the right paragraph first more often than vectors alone
DEPTH = 20  # hits of each list that are fused


@dataclass(frozen=True)
class Passage:
    """A passage that a search found: the characters ``start..end`` of a document.

    ``heading`` and ``page`` (or another part: slide, row or message) are the labels at the start of the passage, or
    None. ``parts`` are the starts and names of the parts that begin further inside, such as rows of a sheet. ``ranks``
    has the rank of the passage (from 1) in the two result lists, ``words`` and ``vectors``, as far as they contain it.
    ``score`` orders the passages of one search. ``superseded`` is the id of the document's next version, or None.
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
    parts: tuple[tuple[int, str], ...] = ()
    superseded: str | None = None

    def page_at(self, position: int) -> str | None:
        """Returns the page, or other part, at a document position inside the passage."""
        return next((name for start, name in reversed(self.parts) if start <= position), self.page)


@dataclass(frozen=True)
class SearchResult:
    """The passages that a search found, best first.

    ``chunks`` is the number of chunks that were searched, ``words_only`` the number of chunks without a vector. The
    documents in ``unsearchable`` were not searched, or only their beginnings were searched.
    """

    passages: list[Passage] = field(default_factory=list)
    chunks: int = 0
    words_only: int = 0
    unsearchable: tuple[Unsearchable, ...] = ()


def search_library(store: Store, query: str, embedder: Embedder | None, top: int = 10) -> SearchResult:
    """Returns the ``top`` passages for ``query`` in all documents, by BM25 and vectors fused by rank. Passages of older
    versions of documents come after all others.
    """
    rows = store.documents.all()
    if not any(row.superseded for row in rows):
        return search(store, query, embedder, None, top)
    current = search(store, query, embedder, [row.id for row in rows if not row.superseded], top)
    older = search(store, query, embedder, [row.id for row in rows if row.superseded], top)
    passages = [*current.passages, *older.passages][:top]
    return SearchResult(passages, current.chunks + older.chunks, current.words_only + older.words_only)


def search(
    store: Store,
    query: str,
    embedder: Embedder | None,
    documents: Sequence[str] | None = None,
    top: int = 10,
    before: int | None = None,
) -> SearchResult:
    """Returns the ``top`` passages for ``query`` in ``documents`` (ids; None: all), by BM25 and vectors fused by rank.

    Searches only indexed chunks. Without an ``embedder`` (None), only words are searched. Chunks without a vector are
    found by words alone; ``words_only`` counts them. With ``before``, only chunks that begin before this character of
    their document are returned.
    """
    total, embedded = store.index.coverage(embedder.name if embedder else None, documents)
    depth = max(top, DEPTH) if before is None else total
    lists = {"words": store.index.by_words(query, depth, documents)}
    if embedder and embedded and query.strip():
        lists["vectors"] = store.index.by_vector(embedder.name, embedder.embed_query(query), depth, documents)
    if before is not None:
        lists = {name: _beginning_before(store, ids, before)[: max(top, DEPTH)] for name, ids in lists.items()}
    scores = fuse(lists)
    best = store.index.get(sorted(scores, key=lambda c: (-scores[c], c))[:top])
    ranks = {c.id: {name: l.index(c.id) + 1 for name, l in lists.items() if c.id in l} for c in best}
    document = _document_cache(store)
    passages = [_passage(document(c.document), c, scores[c.id], ranks[c.id]) for c in best]
    return SearchResult(passages, total, total - embedded)


def all_passages(store: Store, documents: Sequence[str], query: str = "") -> list[Passage]:
    """Returns every passage of indexed ``documents`` (ids), in the order of the documents and of their text.

    The score of a passage is the weighted share of the words of ``query`` that the passage has; words are compared by
    their stems, and rare words weigh more.
    """
    document, chunks = _document_cache(store), [chunk for d in documents for chunk in store.index.of_document(d)]
    having = store.index.with_each_word(query, documents)
    weights = {word: math.log(len(chunks) / len(ids)) for word, ids in having.items() if ids}
    shares, total = Counter[int](), sum(weights.values()) or 1.0
    for word, weight in weights.items():
        shares.update(dict.fromkeys(having[word], weight / total))
    return [_passage(document(chunk.document), chunk, shares[chunk.id], {}) for chunk in chunks]


def query_pattern(query: str) -> re.Pattern[str] | None:
    """Returns a pattern that matches the words of ``query``, ignoring case, or None if ``query`` has no words.

    Function words, such as "the", are left out, unless ``query`` has only such words.
    """
    words = re.findall(r"\w+", query)
    terms = "|".join(map(re.escape, [word for word in words if word.casefold() not in FUNCTION_WORDS] or words))
    return re.compile(rf"\b(?:{terms})\b", re.IGNORECASE) if terms else None


def join_adjacent(store: Store, passages: Sequence[Passage]) -> list[Passage]:
    """Join passages that are adjacent and under the same heading. A joined passage has the best score of the passages
    in it.

    Returns the passages, best first.
    """
    joined = list[Passage]()
    document = _document_cache(store)
    for p in sorted(passages, key=lambda p: (p.document, p.start)):
        last = joined[-1] if joined else None
        text = document(p.document).text
        if last and _adjacent(last, p, text):
            ranks = {n: min(r[n] for r in (last.ranks, p.ranks) if n in r) for n in last.ranks | p.ranks}
            score, inside = max(last.score, p.score), text[last.start : p.end]
            begun = ((p.start, p.page),) if p.page else ()
            joined[-1] = replace(
                last, end=p.end, text=inside, score=score, ranks=ranks, parts=(*last.parts, *begun, *p.parts)
            )
        else:
            joined.append(p)
    return sorted(joined, key=lambda p: -p.score)


def cut_passages(passages: Sequence[Passage], document: StoredDocument) -> list[Passage]:
    """Cut passages at the end of ``document``, which may be only the beginning of a stored document, and return them.

    Passages after the end of ``document`` are left out.
    """
    text, heading, page = document.text, labels(document.spans, "heading"), part_labels(document.spans)
    return [
        replace(p, end=end, text=text[p.start : end], heading=heading(p.start), page=page(p.start))
        for p in passages
        if (end := min(p.end, len(text))) > p.start
    ]


def fuse(lists: Mapping[str, Sequence[int]]) -> dict[int, float]:
    """Fuse the results of several searches. Returns the score of each chunk by weighted reciprocal rank fusion
    (Cormack, Clarke and Buettcher, 2009). ``lists`` has the ids of chunks, best first, under the name of the search:
    ``words`` or ``vectors``.
    """
    scores = dict[int, float]()
    for name, ranked in lists.items():
        for rank, chunk in enumerate(ranked, 1):
            scores[chunk] = scores.get(chunk, 0) + WEIGHTS[name] / (K + rank)
    return scores


@dataclass(frozen=True)
class _LoadedDocument:
    """A document in memory, with functions from a position to its heading and page, and from a range to its parts."""

    row: DocumentRow
    text: str
    heading: Callable[[int], str | None]
    page: Callable[[int], str | None]
    parts: Callable[[int, int], tuple[tuple[int, str], ...]]


def _beginning_before(store: Store, chunks: Sequence[int], before: int) -> list[int]:
    return [chunk.id for chunk in store.index.get(chunks) if chunk.start < before]


def _document_cache(store: Store) -> Callable[[str], _LoadedDocument]:
    """Returns a function that takes an id and returns the document. It reads each document from the store once."""
    rows = {d.id: d for d in store.documents.all()}

    @cache
    def load(document: str) -> _LoadedDocument:
        spans = store.documents.spans(document)
        text = store.documents.text(document)
        return _LoadedDocument(rows[document], text, labels(spans, "heading"), part_labels(spans), part_starts(spans))

    return load


def _passage(document: _LoadedDocument, chunk: ChunkRow, score: float, ranks: dict[str, int]) -> Passage:
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
        document.parts(chunk.start, chunk.end),
        document.row.superseded,
    )


def _adjacent(a: Passage, b: Passage, text: str) -> bool:
    between = text[a.end : b.start]
    return (a.document, a.heading) == (b.document, b.heading) and not between.strip()
