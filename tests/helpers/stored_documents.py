"""Documents and pages of a store, made without any model."""

import hashlib
import time
from contextlib import closing
from pathlib import Path

import numpy as np

from localctx.shape import PAGE
from localctx.store.documents import DocumentRow
from localctx.store.pages.page_writer import PageWriter
from localctx.store.pages.stored_pages import CACHE_TAG
from localctx.store.store import Store

MODEL, OTHER_MODEL = b"m" * 32, b"o" * 32  # fingerprints
SLOT = 4096


def row(name: str, text: str | None = None, path: str = "") -> DocumentRow:
    text = name if text is None else text
    ident = hashlib.sha256(text.encode()).hexdigest()
    return DocumentRow(ident, name, path or f"/texts/{name}", "utf-8", len(text), len(text), time.time(), time.time())


def add(store: Store, *names: str) -> list[str]:
    """Keep a document for each name; their ids."""
    rows = [row(n) for n in names]
    for r in rows:
        store.documents.add(r, r.name, [])
    return [r.id for r in rows]


def open_cache(store: Store, documents: list[str], tokens: list[int], fingerprint: bytes = MODEL) -> str:
    named = {"model": "m", "codec": "int8", "keeper": "full", "tokens": len(tokens)}
    return store.caches.open(fingerprint, documents, **named)


def write(writer: PageWriter, first: int, last: int) -> None:
    for i in range(first, last):
        writer.write(i, payload(i))


def payload(page: int) -> np.ndarray:
    return np.concatenate((np.full(100, page % 251, np.uint8), np.arange(60, dtype=np.uint8)))


def keep(store: Store, documents: list[str], tokens: list[int], fingerprint: bytes = MODEL) -> str:
    """Keep all full pages of ``tokens`` for the cache of ``documents``."""
    cache = open_cache(store, documents, tokens, fingerprint)
    with closing(store.pages.writer(fingerprint, tokens, SLOT, cache)) as writer:
        write(writer, 0, len(tokens) // PAGE)
        writer.commit(len(tokens) // PAGE)
    return cache


def kept(store: Store, tokens: list[int], fingerprint: bytes = MODEL) -> int:
    """How many pages ``tokens`` finds, each with the bytes that were written."""
    prefix = store.pages.longest_prefix(fingerprint, tokens)
    assert prefix.fault is None
    assert all(p.tobytes() == payload(i).tobytes() for i, p in enumerate(prefix.payloads))
    return len(prefix.payloads)


def files(store: Store) -> set[str]:
    return {f.name for f in store.folder.iterdir()} - {CACHE_TAG}


def segments(store: Store) -> set[str]:
    return {f"{s['id']}.kv" for s in store.db.query("SELECT id FROM segments")}


def assert_whole(store: Store) -> None:
    health = store.health()
    assert (health["database"], health["damaged_pages"]) == ("ok", 0)
    assert segments(store) <= files(store)


TOKENS = list(range(5 * PAGE + 10))


def documents(folder: Path, count: int, pages: int) -> list[Path]:
    """Files whose texts share nothing."""
    lines = pages * PAGE // 32
    paths = [folder / f"{i}.txt" for i in range(count)]
    for i, path in enumerate(paths):
        path.write_text("".join(f"{i * lines + n:031x}\n" for n in range(lines)))
    return paths
