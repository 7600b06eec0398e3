"""Caches: which pages, of which model, remember which documents. Ints and names; also measured rates."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sqlite_utils import Database

from localctx.shape import PAGE


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
    pages: int
    bytes: int

    @property
    def kept(self) -> int:
        """Tokens whose pages are durable; the last page may be an open one."""
        return min(self.pages * PAGE, self.tokens)


class Caches:
    """The caches of a store."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def open(
        self, fingerprint: bytes, documents: Sequence[str], *, model: str, codec: str, keeper: str, tokens: int
    ) -> str:
        """The id of the cache of these documents, in this order, under this fingerprint; entered as ``writing``."""
        cache = hashlib.sha256(fingerprint + "".join(documents).encode()).hexdigest()
        now = time.time()
        row = {"id": cache, "fingerprint": fingerprint, "model": model, "codec": codec, "keeper": keeper}
        with self._db.atomic():
            self._db.table("caches").insert(
                {**row, "tokens": tokens, "state": "writing", "created": now, "used": now}, ignore=True
            )
            self._db.table("cache_documents").insert_all(
                ({"cache": cache, "position": i, "document": d} for i, d in enumerate(documents)), ignore=True
            )
            self._db.execute("UPDATE caches SET used = ? WHERE id = ?", [now, cache])
        return cache

    def ready(self, cache: str) -> None:
        """Every full page of the documents is kept."""
        self._db.execute("UPDATE caches SET state = 'ready' WHERE id = ?", [cache])

    def of(self, document: str) -> list[CacheRow]:
        """The caches a document is part of."""
        return [
            CacheRow(**row)
            for row in self._db.query(
                """SELECT caches.*, count(pages.name) AS pages, coalesce(sum(pages.bytes), 0) AS bytes
                FROM caches LEFT JOIN cache_pages ON cache_pages.cache = caches.id
                LEFT JOIN pages ON pages.name = cache_pages.page
                WHERE caches.id IN (SELECT cache FROM cache_documents WHERE document = ?)
                GROUP BY caches.id ORDER BY used DESC""",
                [document],
            )
        ]

    def remove_of(self, document: str) -> None:
        """Forget every cache a document is part of."""
        of = "IN (SELECT cache FROM cache_documents WHERE document = ?)"
        self._db.execute(f"DELETE FROM cache_pages WHERE cache {of}", [document])
        caches = [
            r["cache"] for r in self._db.query("SELECT cache FROM cache_documents WHERE document = ?", [document])
        ]
        for cache in caches:
            self._db.execute("DELETE FROM cache_documents WHERE cache = ?", [cache])
            self._db.execute("DELETE FROM caches WHERE id = ?", [cache])

    def rate(self, what: str) -> float | None:
        """The last measured rate of ``what``, per second; None before the first measurement."""
        row = next(iter(self._db.query("SELECT per_second FROM rates WHERE what = ?", [what])), None)
        return row["per_second"] if row else None

    def note_rate(self, what: str, per_second: float) -> None:
        """Remember a measured rate."""
        self._db.table("rates").upsert({"what": what, "per_second": per_second, "measured": time.time()}, pk="what")
