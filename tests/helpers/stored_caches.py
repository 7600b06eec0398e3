"""Kept caches of a store, made without any model."""

import time

from stored_documents import MODEL, add, keep

from localctx.shape import PAGE
from localctx.store.store import Store


def tokens_of(n: int, pages: int = 5) -> list[int]:
    """Tokens that share no page with those of another ``n``."""
    return [n, *range(1, pages * PAGE)]


def shelve(store: Store, name: str, n: int, ago: float, pages: int = 5, fingerprint: bytes = MODEL) -> str:
    """A document with ``pages`` of its own, last used ``ago`` seconds ago; its id."""
    (document,) = add(store, name)
    cache = keep(store, [document], tokens_of(n, pages), fingerprint)
    store.caches.mark_ready(cache)
    store.db.execute("UPDATE caches SET used = ? WHERE id = ?", [time.time() - ago, cache])
    return document
