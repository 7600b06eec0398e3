"""Persists snapshots: states that llama.cpp exports are stored, verified and restored."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

from localctx.engine.persistence.persister import CacheIdentity, Persister
from localctx.errors import OutOfKVMemory
from localctx.models.llama_cpp.cache import LlamaCache
from localctx.models.llama_cpp.context import StateRefused
from localctx.store.documents import StoredDocument
from localctx.store.pages.page_store import PageKey
from localctx.store.pages.stored_snapshots import SnapshotWriter, StoredSnapshot
from localctx.store.store import Store

STEP = 1024  # tokens between snapshots: a power cut costs at most the prefill of these
STATE_STEP = 4096  # if each snapshot includes a recurrent state, which is large
MIN_TOKENS = 64  # fewer tokens of an interrupted sequence are not worth a snapshot


class SnapshotPersister(Persister[LlamaCache]):
    """The ``Persister`` for llama.cpp, which stores snapshots in place of pages. It takes a snapshot every STEP tokens
    (STATE_STEP with recurrent states), at the ``end`` of the documents, at the end of ``tokens``, and at the end of a
    chat turn. Each snapshot covers the tokens since the previous snapshot.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        documents: Sequence[StoredDocument],
        identity: CacheIdentity,
        tokens: Sequence[int],
        disk: int | None = None,
        end: int = 0,
    ) -> None:
        super().__init__(open_store, documents, identity, tokens, disk)
        self._documents_end = end
        self._keys = list[PageKey]()  # keys of the snapshots that the cache holds whole
        self._at = 0  # the token where the next snapshot begins
        self._committed = 0
        self._closing = False

    _writer: SnapshotWriter | None

    @property
    def kept(self) -> int:
        return 0 if self.failed else self._committed

    @property
    def kept_tokens(self) -> int:
        return _tokens_of(self._keys[: self.kept])

    def _restore(self, store: Store, cache: LlamaCache) -> list[str]:
        rewinds = cache.memory.kind.rewinds
        found = store.snapshots.longest_prefix(self._identity.fingerprint, self._tokens, partial=rewinds)
        self.rate = store.caches.rate(self._identity.fingerprint)
        try:
            fault = self._append(cache, found)
        except (StateRefused, OutOfKVMemory) as e:
            fault = None if isinstance(e, OutOfKVMemory) else f"llama.cpp refused a kept snapshot ({e.what})"
            cache.trim(0)
            self._keys, self._at, self.nbytes = [], 0, 0
        if cache.length == len(self._tokens):
            cache.mark()
        if fault:
            return [f"{fault}; reading again from token {cache.length:,}"]
        return [] if cache.length or self._identity.part else self._other_readings(store)

    def _append(self, cache: LlamaCache, found: Sequence[StoredSnapshot]) -> str | None:
        """Load the ``found`` snapshots into llama.cpp, except those still in its memory. The last one is trimmed to the
        tokens that match. Returns a description of the first damaged snapshot, None if there is none.
        """
        there = next((i for i, one in reversed([*enumerate(found)]) if self._is_there(cache, one)), -1)
        for i, snapshot in enumerate(found):
            if i > there:
                opened = snapshot.open()
                if opened.payload is None:
                    return f"kept snapshot {i + 1} {opened.fault}"
                cache.append(snapshot.stop, opened.payload)
            self.nbytes += snapshot.nbytes
            if snapshot.same == snapshot.stop:
                self._keys, self._at = [*self._keys, snapshot.key], snapshot.stop
            else:
                cache.trim(snapshot.same)
        return None

    def _is_there(self, cache: LlamaCache, snapshot: StoredSnapshot) -> bool:
        return snapshot.same == snapshot.stop and cache.begin_with(snapshot.key[0])

    def _open_writer(self, store: Store, cache: LlamaCache) -> None:
        self._writer = store.snapshots.writer(self._identity.fingerprint, self._keys, self._cache_id)
        self._commit(store)  # restored snapshots belong to this cache too, so it does not evict them for the rest

    def _is_commit_due(self, cache: LlamaCache) -> bool:
        return len(self._keys) > self._committed

    def _write(self, store: Store, cache: LlamaCache) -> None:
        """Take a snapshot if one is due: every STEP tokens, and where the persisted sequence ends."""
        assert self._writer
        end, length = len(self._tokens), cache.length
        if self._full or not cache.exact or not self._at < length <= end:
            return
        step = STATE_STEP if cache.memory.kind.recurrent else STEP
        ends_here = length in (end, self._documents_end, self._identity.document_tokens)
        if not ends_here and length - self._at < step and not self._closing:
            return
        key = self._writer.next_key(self._tokens[self._at : length])
        try:
            payload = None if self._writer.has(key) else cache.snapshot(self._at)
        except StateRefused as e:
            self._full = True
            self.notes.append(f"{end - self._at:,} tokens are not kept: llama.cpp does not give them ({e.what})")
            return
        if payload is not None and not self._make_room(store, len(payload), self._at):
            return
        self._writer.append(key, payload)
        self._keys, self._at = [*self._keys, key], length
        self.nbytes += 0 if payload is None else len(payload)
        if length == end:
            cache.mark()

    def close(self, cache: LlamaCache, rate: float | None = None) -> None:
        """Write a last snapshot with the remaining tokens, and commit. For an interrupted sequence, a snapshot is only
        written if there are at least MIN_TOKENS such tokens. If the cache is complete, it is marked ready. ``rate`` is
        the measured prefill rate in tokens per second, which is stored for the next plan. Does nothing unless
        ``register`` was called.
        """
        self._closing = cache.length - self._at >= MIN_TOKENS
        super().close(cache, rate)
        if self._keys and not self.failed and cache.exact:
            cache.retain(_ends_of(self._keys))

    def _commit(self, store: Store) -> None:
        assert self._writer
        self._writer.commit(len(self._keys))
        self._committed = len(self._keys)
        if self._at == len(self._tokens):
            store.caches.mark_ready(self._cache_id)
        self._share_documents(store)

    @property
    def _document_pages(self) -> int:
        ends = _ends_of(self._keys[: self._committed]).values()
        return sum(end <= self._identity.document_tokens for end in ends)

    def _extend(self, store: Store, cache: LlamaCache, tokens: Sequence[int], branch: int) -> None:
        assert self._writer
        self._commit(store)
        self._writer.close()
        while self._keys and self._at > cache.length:  # the cache was trimmed back to a mark
            self._keys = self._keys[:-1]
            self._at = _tokens_of(self._keys)
        self._tokens, self._identity = tokens, replace(self._identity, branch=branch)
        self._open(store, cache)


def _ends_of(keys: Sequence[PageKey]) -> dict[bytes, int]:
    """Maps the name of each snapshot in ``keys`` to the token where the snapshot ends."""
    ends = accumulate(len(tokens) // 4 for _, tokens in keys)
    return {name: end for (name, _), end in zip(keys, ends, strict=True)}


def _tokens_of(keys: Sequence[PageKey]) -> int:
    return sum(len(tokens) // 4 for _, tokens in keys)
