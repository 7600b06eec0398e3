"""Persisting: restored pages come from the store, sealed ones are written to it behind the prefill.

Nothing here stops an answer: if the store cannot be used, ``failed`` says why and the prefill goes on without it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from localctx.budget import measure_store_budget
from localctx.errors import StoreError, format_bytes
from localctx.kv.cache import Cache
from localctx.kv.pages import Activation, page_names
from localctx.kv.pool import Pool
from localctx.kv.tiers import StoredBytes
from localctx.shape import PAGE, SINK_PAGES
from localctx.store.caches import CacheRow
from localctx.store.documents import StoredDocument
from localctx.store.eviction import make_room
from localctx.store.page_store import PageKey, PrefixMatch
from localctx.store.page_writer import PageWriter
from localctx.store.remote_sync import RemoteSync
from localctx.store.store import Store, store_errors

COMMIT = 16  # pages between commits: a power cut costs at most the prefill of 1,024 tokens


@dataclass(frozen=True)
class CacheIdentity:
    """The identity that pages are stored under: a fingerprint, and the model and codec it was made of.

    ``part`` names the part of the documents that is read, if not all is. ``chat`` and ``branch`` are set if the cache
    belongs to a chat; branch 0 is the prompt that the chat read last, before its answer. ``activation`` is that of the
    tokens that an adapter computes.
    """

    fingerprint: bytes
    model: str
    codec: str
    part: str = ""
    chat: str | None = None
    branch: int = 0
    activation: Activation | None = None


class CachePersister:
    """Restores and persists the pages of ``tokens``, with which every question on ``documents``, or in a chat, begins.

    All stored pages together take at most ``disk`` bytes (None: the share of the disk that ``budget`` grants). Where
    the local store ends, pages come from ``remote``; new ones are uploaded there if it may be written.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        documents: Sequence[StoredDocument],
        identity: CacheIdentity,
        tokens: Sequence[int],
        disk: int | None = None,
        remote: RemoteSync | None = None,
    ) -> None:
        self._open_store, self._documents, self._identity, self._tokens = open_store, documents, identity, tokens
        self._pages, self._disk = -(-len(tokens) // PAGE), disk
        self._remote = remote
        self._full = False
        self.notes = list[str]()  # which caches were evicted to make room, and what found none
        self._written = self._committed = 0
        self._uncommitted = list[tuple[Pool, int, int]]()  # (pool, page id, position) of pages written since
        self.nbytes = 0  # of the pages restored and written
        self._cache_id = ""
        self._writer: PageWriter | None = None
        self.rate: float | None = None  # tokens of this model read per second, as last measured here
        self.failed: StoreError | None = None

    def restore(self, cache: Cache) -> list[str]:
        """Adopt the stored pages that the sequence begins with into the empty ``cache``; returns notes that say why
        there are not more.
        """
        notes = list[str]()
        self._try(lambda store: notes.extend(self._restore(store, cache)))
        return notes

    def enter(self, cache: Cache) -> None:
        """Enter the documents and their cache in the store. To be called once the plan is accepted."""
        self._try(lambda store: self._enter(store, cache))

    @property
    def kept(self) -> int:
        """The number of pages that are durable by now; 0 if anything failed."""
        return 0 if self.failed else self._committed

    def __call__(self, cache: Cache) -> None:
        """Write the pages sealed since the last call; commit when there are enough of them."""
        self._try(lambda store: self._write(store, cache))
        if self._written - self._committed >= _pages_per_commit(cache.pool):
            self._try(self._commit)

    def extend(self, cache: Cache, tokens: Sequence[int], branch: int) -> None:
        """Persist ``tokens``, which continue the sequence of ``cache``, under a ``branch`` of the chat.

        An open page that was stored is stored again when it holds more tokens.
        """
        self._try(lambda store: self._extend(store, cache, tokens, branch))

    def close(self, cache: Cache, rate: float | None = None) -> None:
        """Commit the sealed pages and mark the cache ready if these are all. ``rate`` is the measured prefill rate in
        tokens per second, for the next plan. Does nothing if ``enter`` was not called.
        """
        if not self._writer:
            return
        self._try(lambda store: self._write(store, cache))
        self._try(self._commit)
        if rate:
            self._try(lambda store: store.caches.note_rate(self._identity.fingerprint, rate))
        self._writer.close()
        if self._remote:
            self.notes += self._remote.take_notes()

    def _try(self, operation: Callable[[Store], None]) -> None:
        if self.failed:
            return
        try:
            store = self._open_store()
            with store_errors(store.home):
                operation(store)
        except StoreError as e:
            self.failed = e

    def _restore(self, store: Store, cache: Cache) -> list[str]:
        prefix = store.pages.longest_prefix(self._identity.fingerprint, self._tokens, self._identity.activation)
        cache.adopt(prefix.payloads)
        remote_notes = self._restore_remote(store, cache, prefix)
        if prefix.tail is not None:
            cache.adopt_tail(prefix.tail)
        tail_bytes = 0 if prefix.tail is None else len(prefix.tail)
        self.nbytes = sum(map(len, prefix.payloads)) + tail_bytes
        self.rate = store.caches.rate(self._identity.fingerprint)
        if prefix.fault:
            return [f"{prefix.fault}; reading again from token {cache.length:,}", *remote_notes]
        return remote_notes if cache.length or self._identity.part else remote_notes + self._other_readings(store)

    def _restore_remote(self, store: Store, cache: Cache, prefix: PrefixMatch) -> list[str]:
        """Continue ``prefix`` with full pages of the remote store, which are written to the local one and mapped."""
        if not self._remote or prefix.tail is not None:
            return []
        whole = self._tokens[: len(self._tokens) // PAGE * PAGE]
        keys = list(page_names(self._identity.fingerprint, whole, self._identity.activation))
        while batch := keys[len(prefix.payloads) :][:COMMIT]:
            mapped = self._download(store, cache, batch)
            cache.adopt(mapped)
            prefix.payloads += mapped
            if len(mapped) < len(batch):
                break
        return self._remote.take_notes()

    def _download(self, store: Store, cache: Cache, keys: Sequence[PageKey]) -> list[np.ndarray]:
        """Copy the next pages of the sequence from the remote store; returns those that came, mapped."""
        assert self._remote
        slot_bytes, first = cache.pool.shape.slot_bytes(self._identity.codec), cache.length // PAGE
        sizes = [cache.pool.page_bytes(first + i) for i in range(len(keys))]
        stored = store.pages.nbytes()
        need = sum(-(-size // slot_bytes) * slot_bytes for size in sizes)
        if stored + need > measure_store_budget(store.home, stored, self._disk):  # nothing is evicted for them
            return []
        payloads = list(self._remote.fetch(keys))
        if [len(payload) for payload in payloads] != sizes[: len(payloads)]:
            return []  # they were made with another page layout
        store.pages.append(list(zip(keys, payloads, strict=False)))
        opened = store.pages.open(keys[: len(payloads)])
        return [page.payload for page in opened if page.payload is not None]

    def _enter(self, store: Store, cache: Cache) -> None:
        with store.db.atomic():  # or another process may remove a document before its cache is entered
            if not self._identity.chat:  # its documents were entered with it
                for document in self._documents:
                    store.documents.add(*document.whole)
            self._open(store, cache, -(-cache.length // PAGE))

    def _extend(self, store: Store, cache: Cache, tokens: Sequence[int], branch: int) -> None:
        assert self._writer
        self._commit(store)
        self._writer.close()
        whole = min(self._written, len(self._tokens) // PAGE, len(cache.pages))
        self._tokens, self._pages = tokens, -(-len(tokens) // PAGE)
        self._identity = replace(self._identity, branch=branch)
        self._open(store, cache, whole)

    def _open(self, store: Store, cache: Cache, restored: int) -> None:
        """Enter the cache, whose first ``restored`` pages are stored already."""
        identity, documents = self._identity, [row.id for row, _, _ in self._documents]
        self._cache_id = store.caches.open(
            identity.fingerprint,
            documents,
            model=identity.model,
            codec=identity.codec,
            keeper=cache.keeper.name,
            tokens=len(self._tokens),
            part=identity.part,
            chat=identity.chat,
            branch=identity.branch,
        )
        self._written = self._committed = restored
        slot_bytes = cache.pool.shape.slot_bytes(identity.codec)
        self._writer = store.pages.writer(
            identity.fingerprint, self._tokens, slot_bytes, self._cache_id, identity.activation
        )
        self._writer.commit(self._written)  # restored pages are this cache's too, and not evicted for the rest
        if self._remote:
            self._upload(list(self._writer.mapped(range(min(restored, len(self._tokens) // PAGE)))))

    def _write(self, store: Store, cache: Cache) -> None:
        assert self._writer
        while cache.exact and not self._full and self._written < self._writable(cache):
            sealed = self._written < len(cache.pages)
            payload = cache.pool.payload(cache.pages[self._written]).cpu().numpy() if sealed else cache.tail_payload()
            if not self._make_room(store, self._writer.disk_bytes(self._written, len(payload))):
                break
            self._writer.write(self._written, payload)
            if sealed:
                self._uncommitted.append((cache.pool, cache.pages[self._written], self._written))
            self._written, self.nbytes = self._written + 1, self.nbytes + len(payload)

    def _writable(self, cache: Cache) -> int:
        """Returns how many pages can be written: the sealed ones, and the open one if the sequence ends in it."""
        if cache.length == len(self._tokens):
            return self._pages
        return min(len(self._tokens) // PAGE, len(cache.pages))

    def _make_room(self, store: Store, need: int) -> bool:
        """Evict other caches until ``need`` bytes more fit in the budget; returns False, for good, if they do not."""
        stored = store.pages.nbytes()
        budget = measure_store_budget(store.home, stored, self._disk)
        if stored + need <= budget:
            return True
        self._commit(store)  # or pages that this cache found stored would not count as its own
        eviction = make_room(store, budget, need, self._cache_id)
        self.notes += map(str, eviction.evicted)
        if need and not eviction.enough:
            self._full = True
            left = len(self._tokens) - self._written * PAGE
            self.notes.append(
                f"{left:,} tokens are not kept: kept pages may take {format_bytes(budget)}; "
                "raise --disk, or unpin or remove "
                "a document"
            )
        return not self._full

    def _commit(self, store: Store) -> None:
        assert self._writer
        self._writer.commit(self._written)
        self._committed = self._written
        self._back_pages()
        if self._written == self._pages:
            store.caches.mark_ready(self._cache_id)

    def _back_pages(self) -> None:
        """Let the pool know which of its pages the store holds now."""
        assert self._writer
        pages, self._uncommitted = {position: (pool, page) for pool, page, position in self._uncommitted}, []
        mapped = list(self._writer.mapped(pages))
        for position, stored in mapped:
            pool, page = pages[position]
            pool.add_stored_copy(page, stored)
        self._upload(mapped)

    def _upload(self, mapped: Sequence[tuple[int, StoredBytes]]) -> None:
        """Upload stored pages of documents in the background; what was said in a chat stays here."""
        if self._remote and self._writer and not self._identity.chat:
            self._remote.upload([(self._writer.keys[position], stored) for position, stored in mapped])

    def _other_readings(self, store: Store) -> list[str]:
        """Returns a note for each document whose stored pages are all of another model, codec or setting."""
        notes = []
        for row, _, _ in self._documents:
            caches = [c for c in store.caches.of_document(row.id) if c.pages]
            if caches and all(c.fingerprint != self._identity.fingerprint for c in caches):
                notes.append(f"{row.name} is read again: {self._difference(caches[0])}")
        return notes

    def _difference(self, other: CacheRow) -> str:
        mine = self._identity
        if (other.model, other.codec) == (mine.model, mine.codec):
            return f"the files or settings of model {other.model} changed since its pages were kept"
        return f"its pages were kept for {other.model} with {other.codec} KV, not {mine.model} with {mine.codec} KV"


def _pages_per_commit(pool: Pool) -> int:
    """Returns COMMIT, or less if the device is small: a page that is pushed down should be committed by then, because
    it then leaves memory without a write. A chunk fills half of the device at most, so a quarter of it may wait.
    """
    limit = pool.limits.device
    return COMMIT if limit is None else max(1, min(COMMIT, limit // pool.page_bytes(SINK_PAGES) // 4))
