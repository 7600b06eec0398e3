"""Persister: restores a sequence from the store, and writes it there while the prefill goes on, for any engine.

No error here stops an answer: if the store fails, ``failed`` says why and prefill goes on without it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from localctx.budget import measure_store_budget
from localctx.errors import StoreError, format_bytes
from localctx.kv.pages import Activation
from localctx.models.base import AnyCache
from localctx.store.caches import ANSWER_RATE, CacheRow, cache_id
from localctx.store.documents import StoredDocument
from localctx.store.maintenance.eviction import make_room
from localctx.store.pages.page_writer import PageWriter
from localctx.store.store import Store, store_errors


@dataclass(frozen=True)
class CacheIdentity:
    """The identity under which the pages of a cache are stored: the ``fingerprint``, and the ``model`` and ``codec``
    that it was computed from.

    ``part`` names the part of the documents that is read, empty for all. ``chat`` and ``branch`` are set for the cache
    of a chat; branch 0 is the prompt of the last question, before its answer. ``activation`` names the LoRA adapter and
    the first token that it applies to. The first ``document_tokens`` tokens belong to the documents alone. For a chat,
    these are also stored under the documents' own cache, so that they outlive the chat.
    """

    fingerprint: bytes
    model: str
    codec: str
    part: str = ""
    chat: str | None = None
    branch: int = 0
    activation: Activation | None = None
    document_tokens: int = 0


class Persister(ABC, Generic[AnyCache]):
    """Restores and persists the sequence ``tokens``, with which every prompt about ``documents``, or in a chat, begins.

    The store may take at most ``disk`` bytes (None: the default of ``measure_store_budget``). ``notes`` are lines for
    the user: caches that were evicted from the store, and tokens for which the store had no room. ``nbytes`` is the
    number of bytes restored and written. ``rate`` is the last measured prefill rate of this model on this machine, in
    tokens per second.
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
        self._disk, self._full = disk, False
        self.notes = list[str]()
        self.nbytes = 0
        self.rate: float | None = None
        self.failed: StoreError | None = None
        self._cache_id = ""
        self._writer: PageWriter | None = None

    def restore(self, cache: AnyCache) -> list[str]:
        """Restore the longest stored prefix of the sequence into ``cache``, which is empty. Returns notes for the user
        that say why the prefix is not longer.
        """
        notes = list[str]()
        self._try(lambda store: notes.extend(self._restore(store, cache)))
        return notes

    def stops(self, cache: AnyCache) -> Sequence[int]:
        """Returns the token counts at which a prefill chunk must end, because a snapshot is taken there."""
        return ()

    def register(self, cache: AnyCache) -> None:
        """Register the documents and their cache in the store. Call it once the plan is accepted."""
        self._try(lambda store: self._enter(store, cache))

    def __call__(self, cache: AnyCache) -> None:
        """Write what was prefilled since the last call, and commit if enough was written."""
        self._try(lambda store: self._write(store, cache))
        if self._is_commit_due(cache):
            self._try(self._commit)

    def extend(self, cache: AnyCache, tokens: Sequence[int], branch: int) -> None:
        """Persist ``tokens``, a sequence that continues the one in ``cache`` with an answer, as a ``branch`` of the
        chat (numbered).
        """
        self._try(lambda store: self._extend(store, cache, tokens, branch))

    def close(self, cache: AnyCache, rate: float | None = None) -> None:
        """Write the remaining pages, and commit. If the cache is complete, it is marked ready. ``rate`` is the measured
        prefill rate in tokens per second, which is stored for the next plan. Does nothing unless ``register`` was
        called.
        """
        if not self._writer:
            return
        self._try(lambda store: self._write(store, cache))
        self._try(self._commit)
        if rate:
            self._try(lambda store: store.caches.note_rate(self._identity.fingerprint, rate))
        self._writer.close()

    def note_answer_rate(self, per_second: float) -> None:
        """Store the measured decode rate, ``per_second``, in tokens per second. Does nothing unless ``register`` was
        called.
        """
        if self._writer:
            self._try(lambda store: store.caches.note_rate(self._identity.fingerprint, per_second, ANSWER_RATE))

    @property
    @abstractmethod
    def kept(self) -> int:
        """The number of pages or snapshots that are safely on disk; 0 if anything failed."""

    @property
    @abstractmethod
    def kept_tokens(self) -> int:
        """The number of tokens that are safely on disk."""

    @abstractmethod
    def _restore(self, store: Store, cache: AnyCache) -> list[str]: ...

    @abstractmethod
    def _write(self, store: Store, cache: AnyCache) -> None: ...

    @abstractmethod
    def _commit(self, store: Store) -> None:
        """Commit what was written, and call ``_share_documents``."""

    @property
    @abstractmethod
    def _document_pages(self) -> int:
        """The number of committed pages or snapshots that hold only document tokens."""

    @abstractmethod
    def _extend(self, store: Store, cache: AnyCache, tokens: Sequence[int], branch: int) -> None: ...

    @abstractmethod
    def _open_writer(self, store: Store, cache: AnyCache) -> None:
        """Open a writer for the registered cache and link its stored pages."""

    @abstractmethod
    def _is_commit_due(self, cache: AnyCache) -> bool: ...

    def _try(self, operation: Callable[[Store], None]) -> None:
        if self.failed:
            return
        try:
            store = self._open_store()
            with store_errors(store.home):
                operation(store)
        except StoreError as e:
            self.failed = e

    def _enter(self, store: Store, cache: AnyCache) -> None:
        with store.db.atomic():  # another process could remove a document in between
            if not self._identity.chat:  # a chat registered its documents itself
                for document in self._documents:
                    store.documents.add(*document.whole)
            self._open(store, cache)

    def _open(self, store: Store, cache: AnyCache) -> None:
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
        self._open_writer(store, cache)

    def _share_documents(self, store: Store) -> None:
        """Register the document pages of a chat's cache under the documents' own cache too."""
        identity, documents = self._identity, [row.id for row, _, _ in self._documents]
        if identity.chat and documents and (pages := self._document_pages):
            own = cache_id(identity.fingerprint, documents, part=identity.part)
            store.caches.share(self._cache_id, own, identity.document_tokens, pages)

    def _make_room(self, store: Store, need: int, written: int) -> bool:
        """Evict other caches from the store until ``need`` more bytes fit in the budget. If they do not fit, returns
        False, and nothing more is written for this sequence. ``written`` is the number of tokens already written.
        """
        stored = store.disk_bytes()
        budget = measure_store_budget(store.home, stored, self._disk)
        if stored + need <= budget:
            return True
        self._commit(store)  # makes reused pages count as this cache's own, so eviction spares them
        eviction = make_room(store, budget, need, self._cache_id)
        self.notes += map(str, eviction.evicted)
        if need and not eviction.enough:
            self._full = True
            left = len(self._tokens) - written
            self.notes.append(
                f"{left:,} tokens are not kept: kept pages may take {format_bytes(budget)}; "
                "raise --disk, or unpin or remove "
                "a document"
            )
        return not self._full

    def _other_readings(self, store: Store) -> list[str]:
        """Returns a note for each document that is stored only for another model, codec or setting."""
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
