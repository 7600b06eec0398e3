"""Caches: a cache lists the stored pages, by name, that one model has for some documents. Also stores measured rates,
such as prefill tokens per second.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sqlite_utils import Database

from localctx.store.pages.page_reader import IN_SLOTS

ANSWER_RATE = "answer"
"""The name of the rate at which answers are generated, in tokens a second."""

_UNEVICTABLE = """caches.id = ? OR caches.id IN
    (SELECT cache FROM cache_documents JOIN documents ON documents.id = document WHERE pinned)"""


@dataclass(frozen=True)
class CacheRow:
    """A stored cache: a model's pages for some documents. ``pages`` is the number of pages that are safely on disk;
    ``bytes`` is their size, and ``kept`` their number of tokens. ``tokens`` is the number of tokens of the complete
    cache.
    """

    id: str
    model: str
    codec: str
    keeper: str
    fingerprint: bytes
    tokens: int
    state: str
    created: float
    used: float
    chat: str | None
    pages: int
    bytes: int
    kept: int


def cache_id(
    fingerprint: bytes, documents: Sequence[str], chat: str | None = None, branch: int = 0, part: str = ""
) -> str:
    """Returns the id of the cache of ``documents`` in this order. ``part`` names the part of the documents that the
    cache has (empty: all). With ``chat``, returns the id of the cache of a branch of that chat.
    """
    owner = "".join(documents) + (f"#{part}" if part else "") + (f"/{chat}/{branch}" if chat else "")
    return hashlib.sha256(fingerprint + owner.encode()).hexdigest()


class Caches:
    """The caches in a store."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def open(
        self,
        fingerprint: bytes,
        documents: Sequence[str],
        *,
        model: str,
        codec: str,
        keeper: str,
        tokens: int,
        chat: str | None = None,
        branch: int = 0,
        part: str = "",
    ) -> str:
        """Register the cache of these documents, in this order, in the state ``writing``. Returns the id of the cache.

        ``part`` names the part of the documents that was read, if not all. A cache with a ``chat`` belongs to a
        ``branch`` of the chat (see ``Chats.branch_of``), and is removed with the chat, or with one of its documents.
        ``share`` can register the document pages of such a cache also under the cache of the documents alone.
        """
        cache = cache_id(fingerprint, documents, chat, branch, part)
        now = time.time()
        row = {"id": cache, "fingerprint": fingerprint, "model": model, "codec": codec, "keeper": keeper, "chat": chat}
        with self._db.atomic():
            self._db.table("caches").insert(
                {**row, "tokens": tokens, "state": "writing", "created": now, "used": now}, ignore=True
            )
            self._db.table("cache_documents").insert_all(
                ({"cache": cache, "position": i, "document": d} for i, d in enumerate(documents)), ignore=True
            )
            new_tokens = "state = CASE tokens WHEN ? THEN state ELSE 'writing' END, tokens = ?"
            self._db.execute(f"UPDATE caches SET used = ?, {new_tokens} WHERE id = ?", [now, tokens, tokens, cache])
        return cache

    def share(self, cache: str, own: str, tokens: int, pages: int) -> None:
        """Register the first ``pages`` pages of a chat's ``cache`` also under ``own``, the cache of the chat's
        documents alone. These pages then stay when the chat is removed.

        ``tokens`` is the number of tokens of ``own`` when it is complete. Does nothing if ``cache`` was removed.
        """
        new = "'writing', created, used FROM caches WHERE id = ?"
        with self._db.atomic():
            self._db.execute(
                f"""INSERT OR IGNORE INTO caches (id, fingerprint, model, codec, keeper, tokens, state, created, used)
                SELECT ?, fingerprint, model, codec, keeper, ?, {new}""",
                [own, tokens, cache],
            )
            self._copy("cache_documents", "document", cache, own)
            self._copy("cache_pages", "page", cache, own, pages)
            held = """SELECT sum(length(pages.tokens)) / 4 FROM pages JOIN cache_pages ON page = name
                WHERE cache = caches.id"""
            ready = f"state = CASE tokens WHEN ({held}) THEN 'ready' ELSE state END"
            self._db.execute(f"UPDATE caches SET used = ?, {ready} WHERE id = ?", [time.time(), own])

    def mark_ready(self, cache: str) -> None:
        """Record that every page of the cache is stored."""
        self._db.execute("UPDATE caches SET state = 'ready' WHERE id = ?", [cache])

    def of_document(self, document: str) -> list[CacheRow]:
        """Returns the caches of a document, most recently used first."""
        return self._rows("caches.id IN (SELECT cache FROM cache_documents WHERE document = ?)", document)

    def documents(self, cache: str) -> list[str]:
        """Returns the ids of the documents of a cache, in the order in which they were read."""
        rows = self._db.query("SELECT document FROM cache_documents WHERE cache = ? ORDER BY position", [cache])
        return [row["document"] for row in rows]

    def ready_tokens(self, ids: Sequence[str]) -> dict[str, int]:
        """Returns the number of tokens of each cache in ``ids`` whose pages are all stored, by the id of the cache.
        Other caches are left out.
        """
        where = "state = 'ready' AND id IN (SELECT value FROM json_each(?))"
        rows = self._db.query(f"SELECT id, tokens FROM caches WHERE {where}", [json.dumps(list(ids))])
        return {row["id"]: row["tokens"] for row in rows}

    def note_used(self, ids: Sequence[str]) -> None:
        """Record that the caches ``ids`` were used now. Caches that were used long ago are evicted first."""
        where = "id IN (SELECT value FROM json_each(?))"
        self._db.execute(f"UPDATE caches SET used = ? WHERE {where}", [time.time(), json.dumps(list(ids))])

    def usage(self, document: str) -> tuple[int, int, int]:
        """Returns the numbers of pages, tokens and bytes that are stored for a document. A page in several caches
        counts once.

        Counts only caches of this document alone, not those of several documents or of a chat.
        """
        (row,) = self._db.query(
            """SELECT count(nullif(length(tokens), 0)) AS pages, coalesce(sum(length(tokens)), 0) / 4 AS tokens,
            coalesce(sum(bytes), 0) AS bytes FROM pages WHERE name IN (SELECT page
            FROM cache_pages JOIN cache_documents USING (cache) JOIN caches ON caches.id = cache
            WHERE document = ? AND chat IS NULL
            AND (SELECT count(*) FROM cache_documents AS all_of_it WHERE all_of_it.cache = caches.id) = 1)""",
            [document],
        )
        return row["pages"], row["tokens"], row["bytes"]

    def evictable(self, using: str = "") -> list[CacheRow]:
        """Returns the caches whose pages may be evicted. All caches are returned except the cache ``using``, which is
        in use, and the caches of pinned documents.
        """
        return [c for c in self._rows(f"NOT ({_UNEVICTABLE})", using) if c.pages]

    def unevictable_bytes(self, using: str = "") -> int:
        """Returns the size in bytes, in page files, of the pages that may not be evicted: those of the cache ``using``,
        which is in use, and of pinned documents.
        """
        (row,) = self._db.query(
            f"""SELECT coalesce(sum({IN_SLOTS}), 0) AS bytes FROM pages JOIN segments ON segments.id = segment
            WHERE name IN (SELECT page FROM cache_pages JOIN caches ON caches.id = cache WHERE {_UNEVICTABLE})""",
            [using],
        )
        return row["bytes"]

    def names(self, cache: str) -> list[str]:
        """Returns the names of a cache's documents, or the title of its chat if it has one."""
        rows = self._db.query(
            """SELECT title AS name FROM caches JOIN chats ON chats.id = chat WHERE caches.id = :cache
            UNION ALL SELECT name FROM cache_documents JOIN documents ON documents.id = document
            JOIN caches ON caches.id = cache WHERE cache = :cache AND chat IS NULL""",
            {"cache": cache},
        )
        return [row["name"] for row in rows]

    def drop_pages(self, cache: str) -> None:
        """Remove all pages from a cache. The cache stays registered, and the next question prefills its pages again."""
        self._db.execute("DELETE FROM cache_pages WHERE cache = ?", [cache])
        self._db.execute("UPDATE caches SET state = 'writing' WHERE id = ?", [cache])

    def remove_document(self, document: str) -> None:
        """Remove every cache of a document, including those of chats."""
        self._remove("SELECT cache FROM cache_documents WHERE document = ?", document)

    def remove_chat(self, chat: str) -> None:
        """Remove a chat's caches."""
        self._remove("SELECT id FROM caches WHERE chat = ?", chat)

    def remove(self, ids: Sequence[str]) -> None:
        """Remove the caches ``ids``."""
        self._remove("SELECT value FROM json_each(?)", json.dumps(list(ids)))

    def _copy(self, table: str, column: str, cache: str, to: str, rows: int = -1) -> None:
        """Copy a cache's entries for its first ``rows`` pages and their snapshots to the cache ``to`` (-1: all)."""
        some = f"AND position BETWEEN {-2 * rows} AND {rows - 1}" if rows >= 0 else ""
        self._db.execute(
            f"""INSERT OR IGNORE INTO {table} (cache, position, {column}) SELECT ?, position, {column} FROM {table}
            WHERE cache = ? {some}""",
            [to, cache],
        )

    def _rows(self, where: str, value: str) -> list[CacheRow]:
        rows = self._db.query(
            f"""SELECT caches.*, count(nullif(length(pages.tokens), 0)) AS pages,
            coalesce(sum(pages.bytes), 0) AS bytes, coalesce(sum(length(pages.tokens)), 0) / 4 AS kept
            FROM caches LEFT JOIN cache_pages ON cache_pages.cache = caches.id
            LEFT JOIN pages ON pages.name = cache_pages.page
            WHERE {where} GROUP BY caches.id ORDER BY used DESC""",
            [value],
        )
        return [CacheRow(**row) for row in rows]

    def _remove(self, which: str, value: str) -> None:
        for cache in [next(iter(row.values())) for row in self._db.query(which, [value])]:
            for table, column in (("cache_pages", "cache"), ("cache_documents", "cache"), ("caches", "id")):
                self._db.execute(f"DELETE FROM {table} WHERE {column} = ?", [cache])

    def rate(self, fingerprint: bytes, what: str = "prefill") -> float | None:
        """Returns the last rate that was measured with the model and codec of ``fingerprint``, in tokens per second;
        None if no rate was measured. ``what`` names the rate, such as ``prefill``.
        """
        key = [_rate_key(fingerprint, what)]
        row = next(iter(self._db.query("SELECT per_second FROM rates WHERE what = ?", key)), None)
        return row["per_second"] if row else None

    def rates_of_models(self, what: str = "prefill") -> dict[str, float]:
        """Returns the last measured rate of each model with a stored cache, in tokens per second, by model name.
        ``what`` names the rate, such as ``prefill``.
        """
        rows = self._db.query(
            """SELECT DISTINCT model, per_second, measured FROM caches
            JOIN rates ON what = ? || lower(hex(fingerprint)) ORDER BY measured""",
            [_rate_key(b"", what)],
        )
        return {row["model"]: row["per_second"] for row in rows}

    def prepared_documents(self, model: str) -> dict[str, int]:
        """Returns the documents whose pages for this model are all stored, so that they need not be prefilled again.
        The result maps the id of a document to the number of its characters.
        """
        rows = self._db.query(
            """SELECT id, chars FROM documents WHERE id IN (SELECT document FROM cache_documents
            JOIN caches ON caches.id = cache WHERE model = ? AND state = 'ready' AND chat IS NULL
            AND caches.id IN (SELECT cache FROM cache_pages))""",
            [model],
        )
        return {row["id"]: row["chars"] for row in rows}

    def note_rate(self, fingerprint: bytes, per_second: float, what: str = "prefill") -> None:
        """Store a rate that was measured with the model and codec of ``fingerprint``, in tokens per second. ``what``
        names the rate, such as ``prefill``.
        """
        row = {"what": _rate_key(fingerprint, what), "per_second": per_second, "measured": time.time()}
        self._db.table("rates").upsert(row, pk="what")


def _rate_key(fingerprint: bytes, what: str) -> str:
    return f"{what} {fingerprint.hex()}"
