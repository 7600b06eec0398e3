"""Keeping: restored pages come from the store, sealed ones go to it behind the reading.

Nothing here stops an answer: when the store cannot be used, ``failed`` says why and the reading goes on without it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from localctx.budget import measure_store_budget
from localctx.errors import StoreError, format_bytes
from localctx.kv.cache import Cache
from localctx.shape import PAGE
from localctx.store.caches import CacheRow
from localctx.store.documents import StoredDocument
from localctx.store.eviction import make_room
from localctx.store.store import Store, store_errors
from localctx.store.stored_pages import PageWriter

COMMIT = 16  # pages between commits: a power cut costs at most the reading of 1,024 tokens


@dataclass(frozen=True)
class CacheIdentity:
    """What pages are kept under: a fingerprint, and the model and codec it stands for.

    ``part`` of the documents, where not the whole of them was read; ``chat`` and its ``branch``, where it is theirs (0:
    what the chat read last, whatever comes of it).
    """

    fingerprint: bytes
    model: str
    codec: str
    part: str = ""
    chat: str | None = None
    branch: int = 0


class CachePersister:
    """Restores and keeps the pages of ``tokens``, with which every question on ``documents``, or in a chat, begins.

    All kept pages together take ``disk`` bytes at most, or the share that ``budget`` grants (None).
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        documents: Sequence[StoredDocument],
        identity: CacheIdentity,
        tokens: Sequence[int],
        disk: int | None = None,
    ) -> None:
        self._open_store, self._documents, self._identity, self._tokens = open_store, documents, identity, tokens
        self._pages, self._disk = -(-len(tokens) // PAGE), disk
        self._full = False
        self.notes = list[str]()  # what was given up to make room, and what found none
        self._written = self._committed = 0
        self.nbytes = 0  # of the pages restored and written
        self._cache_id = ""
        self._writer: PageWriter | None = None
        self.rate: float | None = None  # tokens of this model read per second, as last measured here
        self.failed: StoreError | None = None

    def restore(self, cache: Cache) -> list[str]:
        """Put the kept pages the sequence begins with into the empty ``cache``; says why there are not more."""
        notes = list[str]()
        self._try(lambda store: notes.extend(self._restore(store, cache)))
        return notes

    def enter(self, cache: Cache) -> None:
        """Enter the documents, and what is to be kept of them. Before, nothing was written: a plan may still refuse."""
        self._try(lambda store: self._enter(store, cache))

    @property
    def kept(self) -> int:
        """Pages that are kept by now."""
        return 0 if self.failed else self._committed

    def __call__(self, cache: Cache) -> None:
        """Write what was sealed since the last call; commit now and then."""
        self._try(lambda store: self._write(store, cache))
        if self._written - self._committed >= COMMIT:
            self._try(self._commit)

    def extend(self, cache: Cache, tokens: Sequence[int], branch: int) -> None:
        """Keep ``tokens``, which go on from what the ``cache`` holds, under a ``branch`` of the chat.

        An open page that was kept is kept again when it is fuller.
        """
        self._try(lambda store: self._extend(store, cache, tokens, branch))

    def close(self, cache: Cache, rate: float | None = None) -> None:
        """Commit what is sealed; the cache is ready when that is everything. ``rate`` is for the next plan.

        What was never entered leaves nothing.
        """
        if not self._writer:
            return
        self._try(lambda store: self._write(store, cache))
        self._try(self._commit)
        if rate:
            self._try(lambda store: store.caches.note_rate(self._identity.fingerprint, rate))
        self._writer.close()

    def _try(self, work: Callable[[Store], None]) -> None:
        if self.failed:
            return
        try:
            store = self._open_store()
            with store_errors(store.home):
                work(store)
        except StoreError as e:
            self.failed = e

    def _restore(self, store: Store, cache: Cache) -> list[str]:
        prefix = store.pages.longest_prefix(self._identity.fingerprint, self._tokens)
        cache.adopt(prefix.payloads)
        if prefix.tail is not None:
            cache.adopt_tail(prefix.tail)
        self.nbytes = sum(map(len, prefix.payloads)) + (0 if prefix.tail is None else len(prefix.tail))
        self.rate = store.caches.rate(self._identity.fingerprint)
        if prefix.fault:
            return [f"{prefix.fault}; reading again from token {cache.length:,}"]
        return [] if cache.length or self._identity.part else self._other_readings(store)

    def _enter(self, store: Store, cache: Cache) -> None:
        with store.db.atomic():  # or another process may remove a document before its cache is entered
            if not self._identity.chat:  # its documents were entered with it
                for row, text, spans in self._documents:
                    store.documents.add(row, text, spans)
            self._open(store, cache, -(-cache.length // PAGE))

    def _extend(self, store: Store, cache: Cache, tokens: Sequence[int], branch: int) -> None:
        assert self._writer
        self._commit(store)
        self._writer.close()
        whole = min(self._written, len(self._tokens) // PAGE, len(cache.pages))
        self._tokens, self._pages = tokens, -(-len(tokens) // PAGE)
        self._identity = replace(self._identity, branch=branch)
        self._open(store, cache, whole)

    def _open(self, store: Store, cache: Cache, kept: int) -> None:
        """Enter the cache, the first ``kept`` pages of which are there already."""
        of, documents = self._identity, [row.id for row, _, _ in self._documents]
        self._cache_id = store.caches.open(
            of.fingerprint,
            documents,
            model=of.model,
            codec=of.codec,
            keeper=cache.keeper.name,
            tokens=len(self._tokens),
            part=of.part,
            chat=of.chat,
            branch=of.branch,
        )
        self._written = self._committed = kept
        slot_bytes = cache.pool.shape.slot_bytes(of.codec)
        self._writer = store.pages.writer(of.fingerprint, self._tokens, slot_bytes, self._cache_id)
        self._writer.commit(self._written)  # what was restored is this cache's too, and not given up for the rest

    def _write(self, store: Store, cache: Cache) -> None:
        assert self._writer
        while cache.exact and not self._full and self._written < self._writable(cache):
            sealed = self._written < len(cache.pages)
            payload = cache.pool.payload(cache.pages[self._written]).cpu().numpy() if sealed else cache.tail_payload()
            if not self._make_room(store, self._writer.takes(self._written, len(payload))):
                break
            self._writer.write(self._written, payload)
            self._written, self.nbytes = self._written + 1, self.nbytes + len(payload)

    def _writable(self, cache: Cache) -> int:
        """Pages that are sealed, and the open one where the sequence ends just there."""
        if cache.length == len(self._tokens):
            return self._pages
        return min(len(self._tokens) // PAGE, len(cache.pages))

    def _make_room(self, store: Store, need: int) -> bool:
        kept = store.pages.nbytes()
        budget = measure_store_budget(store.home, kept, self._disk)
        if kept + need <= budget:
            return True
        self._commit(store)  # or pages that this cache found kept would not count as its own
        room = make_room(store, budget, need, self._cache_id)
        self.notes += map(str, room.given_up)
        if need and not room.enough:
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
        if self._written == self._pages:
            store.caches.ready(self._cache_id)

    def _other_readings(self, store: Store) -> list[str]:
        notes = []
        for row, _, _ in self._documents:
            kept = [c for c in store.caches.of(row.id) if c.pages]
            if kept and all(c.fingerprint != self._identity.fingerprint for c in kept):
                notes.append(f"{row.name} is read again: {self._difference(kept[0])}")
        return notes

    def _difference(self, other: CacheRow) -> str:
        mine = self._identity
        if (other.model, other.codec) == (mine.model, mine.codec):
            return f"the files or settings of model {other.model} changed since its pages were kept"
        return f"its pages were kept for {other.model} with {other.codec} KV, not {mine.model} with {mine.codec} KV"
