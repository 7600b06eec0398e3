"""Persists pages: restores them from the store, and writes sealed pages to the store while the prefill goes on."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from localctx.budget import measure_store_budget
from localctx.engine.persistence.persister import CacheIdentity, Persister
from localctx.kv.cache import Cache
from localctx.kv.pages import page_names
from localctx.kv.pool import Pool
from localctx.kv.sequence_states import States
from localctx.kv.tiers import StoredBytes
from localctx.shape import PAGE
from localctx.store.documents import StoredDocument
from localctx.store.pages.page_store import PageKey, PrefixMatch
from localctx.store.remote.remote_sync import RemoteSync
from localctx.store.store import Store

MIN_STATE_TOKENS = 256  # fewest tokens whose prefill is worth a recurrent snapshot of 50 MB or more
COMMIT = 16  # pages between commits: a power cut costs at most the prefill of 1,024 tokens


class PagePersister(Persister[Cache]):
    """The ``Persister`` for caches of our own pages. It restores the longest prefix in the local store, and then
    further pages from the ``remote`` store. It uploads new pages to the remote store if that is writable.
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
        super().__init__(open_store, documents, identity, tokens, disk)
        self._pages, self._remote = -(-len(tokens) // PAGE), remote
        self._written = self._committed = 0
        self._states_at = self._window_at = 0  # tokens covered by the last stored snapshot of each kind
        self._closing = False
        self._whole: int | None = None  # full pages of the sequence before it was extended
        self._uncommitted = list[tuple[Pool, int, int]]()  # (pool, page id, position) written since the commit

    @property
    def kept(self) -> int:
        return 0 if self.failed else self._committed

    @property
    def kept_tokens(self) -> int:
        return min(self.kept * PAGE, len(self._tokens))

    def close(self, cache: Cache, rate: float | None = None) -> None:
        self._closing = True  # also write the last states of an interrupted sequence
        super().close(cache, rate)
        if self._writer and self._remote:
            self.notes += self._remote.take_notes()

    def _restore(self, store: Store, cache: Cache) -> list[str]:
        prefix = self._longest_prefix(store, cache)
        if cache.pool.shape.snapshots:
            self._remote = None  # remote pages are useless without the snapshots, which stay local
        cache.adopt(prefix.payloads, prefix.windows)
        remote_notes = self._restore_remote(store, cache, prefix)
        self._adopt_end(cache, prefix)
        restored = (*prefix.payloads, *prefix.windows.values(), prefix.tail, prefix.states)
        self.nbytes = sum(len(x) for x in restored if x is not None)
        self.rate = store.caches.rate(self._identity.fingerprint)
        if prefix.fault:
            return [f"{prefix.fault}; reading again from token {cache.length:,}", *remote_notes]
        return remote_notes if cache.length or self._identity.part else remote_notes + self._other_readings(store)

    def _longest_prefix(self, store: Store, cache: Cache) -> PrefixMatch:
        identity = self._identity
        return store.pages.longest_prefix(identity.fingerprint, self._tokens, identity.activation, cache.pool.shape)

    def _adopt_end(self, cache: Cache, prefix: PrefixMatch) -> None:
        """Restore the open page at the end of ``prefix``, and the states after it."""
        if prefix.tail is not None:
            cache.adopt_tail(prefix.tail)
        if prefix.states is not None:
            cache.adopt_states(prefix.states)
            self._states_at = cache.length
        self._window_at = cache.num_pages * PAGE

    def _restore_remote(self, store: Store, cache: Cache, prefix: PrefixMatch) -> list[str]:
        """Continue ``prefix`` with full pages from the remote store, which are first copied to the local store and
        memory-mapped there. Returns notes for the user.
        """
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
        """Copy the pages ``keys``, the next ones of the sequence, from the remote store to the local one. Returns the
        pages that arrived, memory-mapped.
        """
        assert self._remote
        slot_bytes, first = cache.pool.shape.slot_bytes(self._identity.codec), cache.length // PAGE
        sizes = [cache.pool.page_bytes(first + i) for i in range(len(keys))]
        stored = store.disk_bytes()
        need = sum(-(-size // slot_bytes) * slot_bytes for size in sizes)
        if stored + need > measure_store_budget(store.home, stored, self._disk):  # remote pages evict nothing
            return []
        payloads = list(self._remote.fetch(keys))
        if [len(payload) for payload in payloads] != sizes[: len(payloads)]:
            return []  # the page layout differs
        store.pages.append(list(zip(keys, payloads, strict=False)))
        opened = store.pages.open(keys[: len(payloads)])
        return [page.payload for page in opened if page.payload is not None]

    def _extend(self, store: Store, cache: Cache, tokens: Sequence[int], branch: int) -> None:
        assert self._writer
        self._commit(store)
        self._writer.close()
        self._whole = min(self._written, len(self._tokens) // PAGE, len(cache.pages))
        self._tokens, self._pages = tokens, -(-len(tokens) // PAGE)
        self._identity = replace(self._identity, branch=branch)
        if cache.pool.shape.snapshots:
            self._go_back(store, cache)
        self._open(store, cache)

    def _go_back(self, store: Store, cache: Cache) -> None:
        """Restore the stored prefix if it is longer than the trimmed cache. The cache has states and windows in memory
        for few lengths only, so trimming may have removed more tokens than necessary.
        """
        prefix = self._longest_prefix(store, cache)
        if len(prefix.payloads) * PAGE > cache.length:
            cache.trim(0)
            cache.adopt(prefix.payloads, prefix.windows)
            self._adopt_end(cache, prefix)
            self._whole = None
        self._states_at, self._window_at = (min(at, cache.length) for at in (self._states_at, self._window_at))

    def _open_writer(self, store: Store, cache: Cache) -> None:
        """Open the writer at the first page that is not stored yet. A stored open page is stored again once it holds
        more tokens.
        """
        stored = -(-cache.length // PAGE) if self._whole is None else self._whole
        identity, self._written, self._committed = self._identity, stored, stored
        slot_bytes = cache.pool.shape.slot_bytes(identity.codec)
        self._writer = store.pages.writer(
            identity.fingerprint,
            self._tokens,
            slot_bytes,
            self._cache_id,
            identity.activation,
            cache.pool.shape.snapshots,
        )
        self._writer.commit(stored)  # restored pages belong to this cache too, so it does not evict them for the rest
        if self._remote:
            self._upload(list(self._writer.mapped(range(min(stored, len(self._tokens) // PAGE)))))

    def stops(self, cache: Cache) -> Sequence[int]:
        """Returns the token counts at which a prefill chunk must end, because a snapshot of recurrent states is due
        there. (States are known only at the end of a forward pass.) Empty for a model without states.
        """
        shape, end = cache.pool.shape, len(self._tokens)
        if not shape.recurrent:
            return ()
        return [*self._ends, *range(0, end, shape.snapshot_step(cache.pool.codec, cache.dtype.itemsize))]

    def _is_commit_due(self, cache: Cache) -> bool:
        return self._written - self._committed >= _pages_per_commit(cache.pool)

    def _write(self, store: Store, cache: Cache) -> None:
        assert self._writer
        while cache.exact and not self._full and self._written < self._writable(cache):
            sealed = self._written < len(cache.pages)
            payload = cache.pool.payload(cache.pages[self._written]).cpu().numpy() if sealed else cache.tail_payload()
            need = self._writer.disk_bytes(self._written, len(payload))
            if not self._make_room(store, need, self._written * PAGE):
                break
            self._writer.write(self._written, payload)
            if sealed:
                self._uncommitted.append((cache.pool, cache.pages[self._written], self._written))
            self._written, self.nbytes = self._written + 1, self.nbytes + len(payload)
        for length in self._due_windows(cache):
            if not self._write_window(store, cache, length):
                break
        for length, states in self._due_states(cache):
            if not self._write_states(store, length, cache.states.snapshot(states)):
                break

    def _due_windows(self, cache: Cache) -> list[int]:
        """Returns the lengths, in tokens, at which windows of sliding layers must be written now: after every window
        step, at the end of the documents or the sequence, and where prefill was interrupted.
        """
        whole = min(len(self._tokens) // PAGE, cache.num_pages)  # an answer may have filled the last, open page
        shape, written = cache.pool.shape, min(self._written, whole) * PAGE
        if self._full or not shape.window or not cache.exact:
            return []
        steps = range(0, written + 1, shape.window_step(cache.pool.codec))
        due = {*steps, *self._ends, *([written] if self._closing else [])}
        return sorted(length for length in due if self._window_at < length <= written)

    def _write_window(self, store: Store, cache: Cache, length: int) -> bool:
        """Write the pages that sliding layers see after ``length`` tokens, except those that are stored already. If the
        cache no longer has all of them, nothing is written. Returns False if the store had no room.
        """
        assert self._writer
        seen = cache.pool.shape.pages_seen(length)
        new = {i: cache.sliding_payload(i) for i in seen if not self._writer.take_snapshot("sliding", i)}
        payloads = {i: payload for i, payload in new.items() if payload is not None}
        if len(payloads) == len(new):
            if not self._make_room(store, sum(map(len, payloads.values())), self._window_at):
                return False
            for i, payload in payloads.items():
                self._writer.write_snapshot("sliding", i, payload)
                self.nbytes += len(payload)
        self._window_at = length
        return True

    def _due_states(self, cache: Cache) -> list[tuple[int, States]]:
        """Returns the (length, states) snapshots to write now: those at page ends, and the one after the last token if
        the model has only convolution states, whose snapshots are small.
        """
        if self._full or not cache.states.now or not cache.exact:
            return []
        written = min(self._written * PAGE, len(self._tokens))
        ends = [end for end in sorted(cache.states.ends) if self._states_at < end <= written]
        if not cache.pool.shape.recurrent:
            due = [(end, cache.states.ends[end]) for end in ends]
            whole = self._states_at < cache.length == len(self._tokens) and self._written == self._pages
            return [*due, (cache.length, cache.states.now)] if whole and cache.length % PAGE else due
        return [(end, cache.states.ends[end]) for end in ends if self._is_worth_states(cache, end, end == ends[-1])]

    def _is_worth_states(self, cache: Cache, end: int, last: bool) -> bool:
        """Returns True if a recurrent snapshot after ``end`` tokens is worth its bytes: a step after the last one, at
        the end of documents or sequence, or after an interruption. A passage needs none if its pages are much smaller.
        """
        shape, codec, itemsize = cache.pool.shape, cache.pool.codec, cache.dtype.itemsize
        more = end - self._states_at
        if self._identity.part and more * shape.bytes_per_token(codec) < shape.state_bytes(itemsize) // 2:
            return False
        ends_here = end in self._ends or (self._closing and last)
        return more >= shape.snapshot_step(codec, itemsize) or (ends_here and more >= MIN_STATE_TOKENS)

    def _write_states(self, store: Store, length: int, snapshot: np.ndarray) -> bool:
        """Write a snapshot of the states after ``length`` tokens, if it is not stored. Returns False if the store had
        no room.
        """
        assert self._writer
        position = -(-length // PAGE) - 1
        if not self._writer.take_snapshot("states", position):
            if not self._make_room(store, len(snapshot), self._states_at):
                return False
            self._writer.write_snapshot("states", position, snapshot)
            self.nbytes += len(snapshot)
        self._states_at = length
        return True

    @property
    def _ends(self) -> frozenset[int]:
        """The lengths, in tokens, of the full pages of the documents and of the full pages of the sequence. An edited
        document or chat continues from there.
        """
        return frozenset(end // PAGE * PAGE for end in (self._identity.document_tokens, len(self._tokens)))

    def _writable(self, cache: Cache) -> int:
        """Returns how many pages can be written: the sealed ones, and the open one if the sequence ends in it."""
        if cache.length == len(self._tokens):
            return self._pages
        return min(len(self._tokens) // PAGE, len(cache.pages))

    def _commit(self, store: Store) -> None:
        assert self._writer
        self._writer.commit(self._written)
        self._committed = self._written
        self._back_pages()
        if self._written == self._pages and not self._full:
            store.caches.mark_ready(self._cache_id)
        self._share_documents(store)

    @property
    def _document_pages(self) -> int:
        """The number of committed pages that hold only document tokens. The open page counts if the sequence ends where
        the documents end.
        """
        of_documents = self._identity.document_tokens
        whole = self._pages if len(self._tokens) == of_documents else of_documents // PAGE
        return min(self._committed, whole)

    def _back_pages(self) -> None:
        """Tell the pool which of its pages the store holds now."""
        assert self._writer
        pages, self._uncommitted = {position: (pool, page) for pool, page, position in self._uncommitted}, []
        mapped = list(self._writer.mapped(pages))
        for position, stored in mapped:
            pool, page = pages[position]
            pool.add_stored_copy(page, stored)
        self._upload(mapped)

    def _upload(self, mapped: Sequence[tuple[int, StoredBytes]]) -> None:
        """Upload stored pages of documents in the background; pages of chats stay local."""
        if self._remote and self._writer and not self._identity.chat:
            self._remote.upload([(self._writer.keys[position], stored) for position, stored in mapped])


def _pages_per_commit(pool: Pool) -> int:
    """Returns the number of pages between two commits: COMMIT, or fewer if the device tier is small. A page should be
    committed before it moves to a lower tier, because it then needs no second write. A chunk fills at most half of the
    device tier, so pages of a quarter of it may wait.
    """
    limit = pool.limits.device
    return COMMIT if limit is None else max(1, min(COMMIT, limit // pool.bytes_of_page // 4))
