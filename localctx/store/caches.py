"""Caches: which pages, of which model, remember which documents. Ints and names; also measured rates."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sqlite_utils import Database

from localctx.shape import PAGE
from localctx.store.page_file import IN_SLOTS

_STAYS = """caches.id = ? OR caches.id IN
    (SELECT cache FROM cache_documents JOIN documents ON documents.id = document WHERE pinned)"""


@dataclass(frozen=True)
class CacheRow:
    """A kept cache as listed; ``pages`` and their ``bytes`` are what is durable now, of ``tokens``."""

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

    @property
    def kept(self) -> int:
        """Tokens whose pages are durable; the last page may be an open one."""
        return min(self.pages * PAGE, self.tokens)


def cache_id(
    fingerprint: bytes, documents: Sequence[str], chat: str | None = None, branch: int = 0, part: str = ""
) -> str:
    """The id of the cache of ``documents`` in this order, or a part of them, or of a chat's branch about them."""
    whose = "".join(documents) + (f"#{part}" if part else "") + (f"/{chat}/{branch}" if chat else "")
    return hashlib.sha256(fingerprint + whose.encode()).hexdigest()


class Caches:
    """The caches of a store."""

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
        """The id of the cache of these documents, in this order, under this fingerprint; entered as ``writing``.

        ``part`` names what was read of them, where that is not the whole. With ``chat`` it is that chat's, for one
        ``branch`` of it (``Chats.branch_of``), and goes with the chat, or with a document it is about.
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
            grown = "state = CASE tokens WHEN ? THEN state ELSE 'writing' END, tokens = ?"
            self._db.execute(f"UPDATE caches SET used = ?, {grown} WHERE id = ?", [now, tokens, tokens, cache])
        return cache

    def ready(self, cache: str) -> None:
        """Every full page of the documents is kept."""
        self._db.execute("UPDATE caches SET state = 'ready' WHERE id = ?", [cache])

    def of(self, document: str) -> list[CacheRow]:
        """The caches a document is part of, the last used first."""
        return self._rows("caches.id IN (SELECT cache FROM cache_documents WHERE document = ?)", document)

    def takes(self, document: str) -> tuple[int, int, int]:
        """(pages, tokens, bytes) kept of a document: a page of several caches counts once."""
        (row,) = self._db.query(
            """SELECT count(*) AS pages, coalesce(sum(length(tokens)), 0) / 4 AS tokens,
            coalesce(sum(bytes), 0) AS bytes FROM pages WHERE name IN (SELECT page
            FROM cache_pages JOIN cache_documents USING (cache) WHERE document = ?)""",
            [document],
        )
        return row["pages"], row["tokens"], row["bytes"]

    def may_go(self, using: str = "") -> list[CacheRow]:
        """The caches with pages that may be given up: not ``using``, and of no pinned document."""
        return [c for c in self._rows(f"NOT ({_STAYS})", using) if c.pages]

    def bytes_that_stay(self, using: str = "") -> int:
        """Bytes that pages which may not be given up take of their files."""
        (row,) = self._db.query(
            f"""SELECT coalesce(sum({IN_SLOTS}), 0) AS bytes FROM pages JOIN segments ON segments.id = segment
            WHERE name IN (SELECT page FROM cache_pages JOIN caches ON caches.id = cache WHERE {_STAYS})""",
            [using],
        )
        return row["bytes"]

    def about(self, cache: str) -> list[str]:
        """The names of a cache's documents, or the title of its chat."""
        rows = self._db.query(
            """SELECT title AS name FROM caches JOIN chats ON chats.id = chat WHERE caches.id = :cache
            UNION ALL SELECT name FROM cache_documents JOIN documents ON documents.id = document
            JOIN caches ON caches.id = cache WHERE cache = :cache AND chat IS NULL""",
            {"cache": cache},
        )
        return [row["name"] for row in rows]

    def empty(self, cache: str) -> None:
        """Let go of a cache's pages; it is read anew when it is wanted."""
        self._db.execute("DELETE FROM cache_pages WHERE cache = ?", [cache])
        self._db.execute("UPDATE caches SET state = 'writing' WHERE id = ?", [cache])

    def remove_of(self, document: str) -> None:
        """Forget every cache a document is part of, those of chats too."""
        self._remove("SELECT cache FROM cache_documents WHERE document = ?", document)

    def remove_of_chat(self, chat: str) -> None:
        """Forget a chat's caches."""
        self._remove("SELECT id FROM caches WHERE chat = ?", chat)

    def _rows(self, where: str, value: str) -> list[CacheRow]:
        rows = self._db.query(
            f"""SELECT caches.*, count(pages.name) AS pages, coalesce(sum(pages.bytes), 0) AS bytes
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

    def rate(self, fingerprint: bytes) -> float | None:
        """Tokens read per second under a fingerprint, as last measured; None before the first measurement."""
        row = next(iter(self._db.query("SELECT per_second FROM rates WHERE what = ?", [_reading(fingerprint)])), None)
        return row["per_second"] if row else None

    def note_rate(self, fingerprint: bytes, per_second: float) -> None:
        """Remember how many tokens were read per second."""
        row = {"what": _reading(fingerprint), "per_second": per_second, "measured": time.time()}
        self._db.table("rates").upsert(row, pk="what")


def _reading(fingerprint: bytes) -> str:
    return f"prefill {fingerprint.hex()}"
