"""The benchmark engines that run localctx: on torch with pages of KV, or on llama.cpp with snapshots of its state."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic

import torch

from localctx.engine.llama_engine import context_bytes
from localctx.engine.persistence.page_persister import PagePersister
from localctx.engine.persistence.persister import CacheIdentity, Persister
from localctx.engine.persistence.snapshot_persister import SnapshotPersister
from localctx.engine.planning.cache_plan import CachePlan
from localctx.kv.cache import Cache
from localctx.kv.keepers import make_keeper
from localctx.models.base import AnyCache, ForwardRequest, Model, PagedModel
from localctx.models.llama_cpp.cache import LlamaCache
from localctx.models.llama_cpp.model import LlamaModel
from localctx.models.llama_cpp.options import CELLS
from localctx.store.store import Store

IsCancelled = Callable[[], bool]


class OwnEngine(ABC, Generic[AnyCache]):
    """A benchmark engine (``BenchEngine``) that runs localctx. The cache has keys and values in the format ``kv``, and
    texts are prefilled ``chunk`` tokens at a time.
    """

    prefills = True

    def __init__(self, model: Model, name: str, kv: str, chunk: int, cancelled: IsCancelled) -> None:
        self.name, self.kv = name, kv
        self._model, self._chunk, self._cancelled = model, chunk, cancelled
        self.cache: AnyCache | None = None

    @abstractmethod
    def _new_cache(self) -> AnyCache: ...

    @abstractmethod
    def persister(self, store: Store, identity: CacheIdentity, tokens: Sequence[int]) -> Persister[AnyCache]:
        """Returns an object that saves a cache of ``tokens`` in ``store``, and restores it from there."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the cache's keys and values."""

    def forget(self) -> None:
        """Free the memory that remains in use after caches were dropped, as a restart would. Most engines have none."""

    def read(self, tokens: Sequence[int]) -> int:
        (self.cache or self.start()).enter_phase("reading")
        return self.read_more(tokens)

    def start(self) -> AnyCache:
        """Replace the cache with an empty one and return it."""
        self.reset()
        self.cache = self._new_cache()
        return self.cache

    def read_more(self, tokens: Sequence[int], after_each: Callable[[AnyCache], None] = lambda cache: None) -> int:
        """Read ``tokens`` in chunks and call ``after_each`` after each chunk. Returns the most likely next token, or 0
        without tokens. Raises Cancelled.
        """
        assert self.cache, "it was not started"
        logits = torch.zeros(1)
        for at in range(0, len(tokens), self._chunk):
            logits = self._model.forward(tokens[at : at + self._chunk], self.cache, 1, self._cancelled)
            after_each(self.cache)
        return int(logits.argmax())

    def decode(self, tokens: Sequence[int]) -> list[int]:
        assert self.cache, "nothing was read"
        self.cache.enter_phase("answering")
        return [int(self._model.forward([t], self.cache, 1, self._cancelled).argmax()) for t in tokens]

    def reset(self) -> None:
        if self.cache:
            self.cache.drop()
        self.cache = None


class LocalctxEngine(OwnEngine[Cache]):
    """The benchmark engine that runs localctx on torch. ``name`` is its name in tables, and ``plan`` makes its
    caches.
    """

    def __init__(
        self, model: PagedModel, plan: CachePlan, spill: Path, cancelled: IsCancelled, name: str = "localctx"
    ) -> None:
        super().__init__(model, name, plan.codec, plan.chunk, cancelled)
        self._paged, self._plan, self._spill = model, plan, spill

    def _new_cache(self) -> Cache:
        return self._plan.new_cache(self._paged, self._spill)

    def persister(self, store: Store, identity: CacheIdentity, tokens: Sequence[int]) -> PagePersister:
        return PagePersister(lambda: store, [], identity, tokens)

    @property
    def nbytes(self) -> int:
        """Bytes of the sealed pages on all tiers, their sketches, and the open page."""
        assert self.cache, "nothing was read"
        return self.cache.bytes_with(0) + self.cache.sketch_bytes()


def decode_each(engines: Sequence[LocalctxEngine], tokens: Sequence[int]) -> None:
    """Decode one token of each engine's text in one forward pass. All must compute the same model. Raises Cancelled."""
    requests = list[ForwardRequest]()
    for engine, token in zip(engines, tokens, strict=True):
        assert engine.cache, "nothing was read"
        engine.cache.enter_phase("answering")
        requests.append(ForwardRequest([token], engine.cache))
    for logits in engines[0]._model.forward_each(requests, engines[0]._cancelled):
        logits.argmax().item()


class SelectEngine(LocalctxEngine):
    """The benchmark engine that runs localctx with the keeper ``select``. Prefill is the same as with ``full``, so this
    engine forks the cache of ``source`` instead.
    """

    prefills = False

    def __init__(self, source: LocalctxEngine, keep: str) -> None:
        super().__init__(source._paged, source._plan, source._spill, source._cancelled)
        self.name, self._source, self._keep = f"{source.name} {keep}", source, keep

    def read(self, tokens: Sequence[int]) -> int:
        """Fork the cache of ``source``, which must have read exactly ``tokens``. Returns 0, because there are no
        logits.
        """
        self.reset()
        assert self._source.cache, "its source reads first"
        self.cache = self._source.cache.fork(make_keeper(self._keep, self._source.cache.length))
        return 0


class LocalctxLlamaEngine(OwnEngine[LlamaCache]):
    """The benchmark engine that runs localctx on llama.cpp, with keys and values in ``codec``. Its cache has room for
    ``context`` tokens.
    """

    def __init__(self, model: LlamaModel, codec: str, context: int, chunk: int, cancelled: IsCancelled) -> None:
        super().__init__(model, "localctx", codec, chunk, cancelled)
        self._llama, self._context = model, context

    def _new_cache(self) -> LlamaCache:
        cache = self._llama.new_cache(self.kv, self._context)
        cache.memory.allow(self._llama.sizes.largest(self.kv, context_bytes(self._llama, None)))
        return cache

    def forget(self) -> None:
        """Free llama.cpp's memory, including the sequence that is kept for the next question."""
        self._llama.memory(self.kv).release()

    def persister(self, store: Store, identity: CacheIdentity, tokens: Sequence[int]) -> SnapshotPersister:
        return SnapshotPersister(lambda: store, [], identity, tokens)

    @property
    def nbytes(self) -> int:
        """Bytes of the tokens' keys and values, and of the sequence's recurrent states."""
        assert self.cache, "nothing was read"
        sizes = self._llama.sizes
        states = sizes.at(self.kv, CELLS).states / self._llama.kind.sequences
        return round(self.cache.length * sizes.bytes_per_token(self.kv) + states)
