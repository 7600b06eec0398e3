"""The search index: chunks (ranges of documents), their words for BM25, and their vectors. It does not compute vectors.

FTS5 keeps no copy of the text. To remove a chunk's words, the same title and text must be passed as when they were
added.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sqlite_utils import Database

from localctx.store.search_words import (
    COMMON_WORDS,
    indexed_words,
    is_other_language,
    parts_of_query,
    parts_of_word,
    words_of_query,
)

TERMS = 64  # a query is searched by its first 64 distinct words
_BLOCK = 1024  # vectors compared at once, so that the float32 copy of the float16 block stays in the CPU's cache
_EMBEDDED = "EXISTS (SELECT 1 FROM vectors WHERE chunk = chunks.id AND part = 0 AND embedder = ?)"
_THESE = "IN (SELECT value FROM json_each(?))"


@dataclass(frozen=True)
class ChunkRow:
    """A chunk of a document, the unit of search: the characters ``start..end``. ``title`` is a heading or name that is
    searched together with this text.
    """

    id: int
    document: str
    start: int
    end: int
    title: str


@dataclass(frozen=True)
class _Matrix:
    """The vectors of one embedder; row i belongs to a part of ``chunks[i]``. ``last`` is the rowid of the last vector
    that was read from the table. When vectors are removed, ``state`` becomes outdated.
    """

    state: tuple[object, ...]
    last: int
    chunks: np.ndarray
    vectors: np.ndarray


class SearchIndex:
    """The search index in a store. It adds and removes chunks, and finds chunks by words or by vectors."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._matrix: _Matrix | None = None

    def add(self, document: str, text: str, chunks: Sequence[tuple[int, int, str]], latin: bool) -> bool:
        """Add the next chunks (start, end, title) of a stored document to the index. ``latin`` is the result of
        ``is_other_language(text)``.

        Returns False and adds nothing if the document was removed, or if another process added chunks meanwhile.
        """
        with self._db.atomic():
            is_stored = self._db.table("documents").count_where("id = ?", [document])
            if not is_stored or self.has(document) or self.end(document) > chunks[0][0]:
                return False
            for start, end, title in chunks:
                at = self._db.execute(
                    'INSERT INTO chunks (document, start, "end", title) VALUES (?, ?, ?, ?)',
                    [document, start, end, title],
                )
                words = indexed_words(f"{title}\n{text[start:end]}", latin)
                self._db.execute("INSERT INTO chunk_words (rowid, words) VALUES (?, ?)", [at.lastrowid, words])
            return True

    def finish(self, document: str) -> None:
        """Record that all chunks of a document were added, if it is still stored."""
        self._db.execute("INSERT OR IGNORE INTO indexed SELECT id FROM documents WHERE id = ?", [document])

    def remove(self, document: str, text: str, at_once: int | None = None) -> bool:
        """Remove the last ``at_once`` chunks of a document (None: all), with their words and vectors. ``text`` is the
        text of the document. Returns True if chunks are left.
        """
        with self._db.atomic():
            latin = is_other_language(text)
            last = self._rows("document = ? ORDER BY start DESC LIMIT ?", document, at_once or -1)
            self._db.execute("DELETE FROM indexed WHERE document = ?", [document])
            self.note_removal()
            for c in last:
                words = indexed_words(f"{c.title}\n{text[c.start : c.end]}", latin)
                self._db.execute(
                    "INSERT INTO chunk_words (chunk_words, rowid, words) VALUES ('delete', ?, ?)", [c.id, words]
                )
            removed = [json.dumps([c.id for c in last])]
            self._db.execute(f"DELETE FROM vectors WHERE chunk {_THESE}", removed)
            self._db.execute(f"DELETE FROM chunks WHERE id {_THESE}", removed)
        return bool(self.count(document))

    def note_removal(self) -> None:
        """Make all processes read the vectors from the database again, because rows were removed, or because VACUUM has
        renumbered rows.
        """
        self._db.execute("UPDATE vector_removals SET count = count + 1")

    def has(self, document: str) -> bool:
        """Returns True if all chunks of the document were added."""
        return bool(self._db.table("indexed").count_where("document = ?", [document]))

    def end(self, document: str) -> int:
        """Returns the end of the last chunk that was added for a document so far, as a character index in the text; 0
        if there is no chunk.
        """
        return self._db.execute('SELECT coalesce(max("end"), 0) FROM chunks WHERE document = ?', [document]).fetchone()[
            0
        ]

    def count(self, document: str) -> int:
        """Returns the number of a document's chunks."""
        return self._db.table("chunks").count_where("document = ?", [document])

    def of_document(self, document: str) -> list[ChunkRow]:
        """Returns a document's chunks in order."""
        return self._rows("document = ? ORDER BY start", document)

    def get(self, chunks: Sequence[int]) -> list[ChunkRow]:
        """Returns the chunks with these ids, in the order given; skips ids that are gone."""
        rows = {c.id: c for c in self._rows(f"id {_THESE}", json.dumps(list(chunks)))}
        return [rows[i] for i in chunks if i in rows]

    def without_vectors(self, document: str, embedder: str) -> list[ChunkRow]:
        """Returns those chunks of a document that have no vectors by ``embedder`` yet, shortest first."""
        return self._rows(f'document = ? AND NOT {_EMBEDDED} ORDER BY "end" - start, id', document, embedder)

    def coverage(self, embedder: str | None, documents: Sequence[str] | None = None) -> tuple[int, int]:
        """Returns the number of chunks of these documents (None: of all documents), and how many of these chunks have
        vectors by ``embedder``.
        """
        where, args = _within(documents)
        sql = f"SELECT count(*) AS chunks, total({_EMBEDDED}) AS vectors FROM chunks WHERE {where}"
        row = next(iter(self._db.query(sql, [embedder, *args])))
        return row["chunks"], int(row["vectors"])

    def put_vectors(self, embedder: str, chunks: Sequence[ChunkRow], vectors: Sequence[np.ndarray]) -> None:
        """Store the vectors of ``chunks`` in float16, in place of older ones. ``vectors`` has an array [parts, d] for
        each chunk, because a chunk may have several vectors.

        Chunks that were removed meanwhile are skipped, even if a chunk of another document has got the same id.
        """
        with self._db.atomic():
            for chunk, parts in zip(chunks, vectors, strict=True):
                if self._rows("id = ? AND document = ?", chunk.id, chunk.document):
                    if self._db.execute("DELETE FROM vectors WHERE chunk = ?", [chunk.id]).rowcount:
                        self.note_removal()
                    rows = [(chunk.id, i, embedder, v.tobytes()) for i, v in enumerate(parts.astype("<f2"))]
                    self._db.conn.executemany("INSERT INTO vectors VALUES (?, ?, ?, ?)", rows)

    def by_words(self, query: str, top: int, documents: Sequence[str] | None = None) -> list[int]:
        """Returns the ids of the ``top`` chunks that match words of ``query`` best, by BM25, best first. ``documents``
        limits the search to these documents (None: all).

        Words match by their stems and, in languages other than English, by parts of words. The most common English
        words count only if the query has no other words.
        """
        words = words_of_query(query)
        terms = [*([w for w in words if w not in COMMON_WORDS] or words)[:TERMS], *parts_of_query(query)]
        # the + keeps SQLite from using the rowid index, so that it searches the words first
        where, args = _within(documents, "+rowid IN (SELECT id FROM chunks WHERE {})")
        sql = f"SELECT rowid FROM chunk_words WHERE chunk_words MATCH ? AND {where} ORDER BY rank, rowid LIMIT ?"
        match = " OR ".join(f'"{t}"' for t in terms)
        return [r["rowid"] for r in self._db.query(sql, [match, *args, top])] if terms else []

    def with_each_word(self, query: str, documents: Sequence[str] | None = None) -> dict[str, list[int]]:
        """Returns, for each word of ``query``, the ids of the chunks that match this word. The most common English
        words are left out. ``documents`` limits the search to these documents (None: all).

        A chunk matches if it has a word of the same stem or, in languages other than English, at least half of the
        word's parts.
        """
        words = [word for word in words_of_query(query) if word not in COMMON_WORDS][:TERMS]
        searched = set(parts_of_query(query))
        found = dict[str, list[int]]()
        for word in words:
            parts = [part for part in parts_of_word(word) if part in searched]
            counts = Counter(chunk for part in parts for chunk in self._having(part, documents))
            by_parts = [chunk for chunk, count in counts.items() if 2 * count >= len(parts)]
            found[word] = list(dict.fromkeys([*self._having(word, documents), *by_parts]))
        return found

    def _having(self, term: str, documents: Sequence[str] | None) -> list[int]:
        where, args = _within(documents, "+rowid IN (SELECT id FROM chunks WHERE {})")
        sql = f"SELECT rowid FROM chunk_words WHERE chunk_words MATCH ? AND {where}"
        return [row["rowid"] for row in self._db.query(sql, [f'"{term}"', *args])]

    def by_vector(
        self, embedder: str, vector: np.ndarray, top: int, documents: Sequence[str] | None = None
    ) -> list[int]:
        """Returns the ids of the ``top`` chunks whose vectors by ``embedder`` have the greatest dot product with
        ``vector`` [d]. ``documents`` limits the search to these documents (None: all).
        """
        matrix = self._vectors(embedder)
        near = np.empty(len(matrix.chunks), np.float32)
        for at in range(0, len(near), _BLOCK):
            near[at : at + _BLOCK] = matrix.vectors[at : at + _BLOCK].astype(np.float32) @ vector
        chunks = matrix.chunks[np.argsort(-near, kind="stable")]
        if documents is not None:
            wanted = [c.id for c in self._rows(f"document {_THESE}", json.dumps(list(documents)))]
            chunks = chunks[np.isin(chunks, wanted)]
        return list(dict.fromkeys(chunks.tolist()))[:top]

    def _vectors(self, embedder: str) -> _Matrix:
        """Returns all vectors of an embedder. If possible, only vectors added since the last call are read."""
        state = (embedder, self._db.execute("SELECT count FROM vector_removals").fetchone()[0])
        old = self._matrix if self._matrix and self._matrix.state == state else None
        sql = "SELECT rowid, chunk, vector FROM vectors WHERE rowid > ? AND embedder = ? ORDER BY rowid"
        rows = self._db.execute(sql, [old.last if old else 0, embedder]).fetchall()
        if rows or not old:
            vectors = np.frombuffer(b"".join(v for *_, v in rows), "<f2").reshape(len(rows), -1 if rows else 0)
            chunks, last = np.array([c for _, c, _ in rows], np.int64), rows[-1][0] if rows else 0
            if old and len(old.chunks):
                chunks, vectors = np.concatenate([old.chunks, chunks]), np.concatenate([old.vectors, vectors])
            self._matrix = _Matrix(state, last, chunks, vectors)
        assert self._matrix
        return self._matrix

    def _rows(self, where: str, *args: str | int) -> list[ChunkRow]:
        sql = f'SELECT id, document, start, "end", title FROM chunks WHERE {where}'
        return [ChunkRow(**r) for r in self._db.query(sql, args)]


def _within(documents: Sequence[str] | None, where: str = "{}") -> tuple[str, list[str]]:
    """Returns an SQL condition that limits chunks to these documents (None: all documents), and the arguments of the
    condition. The condition is inserted into ``where``.
    """
    return ("1", []) if documents is None else (where.format(f"document {_THESE}"), [json.dumps(list(documents))])
