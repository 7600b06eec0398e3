"""TorchEngine: the engine for models that torch or our own kernels compute. Caches consist of our own pages, in pools
that spill to RAM and disk.
"""

from collections.abc import Sequence
from dataclasses import asdict

from localctx.budget import measure_device
from localctx.engine.events import Planned
from localctx.engine.kv_engine import KVEngine
from localctx.engine.persistence.memory_prefixes import PromptSharing, pass_ends, sharing_root
from localctx.engine.persistence.page_map import page_map
from localctx.engine.persistence.page_persister import PagePersister
from localctx.engine.persistence.persister import CacheIdentity
from localctx.engine.planning.cache_plan import CachePlan, OomRecovery, choose_codec, plan_cache, smaller_codec
from localctx.engine.planning.plan import plan
from localctx.engine.request_report import KVReport
from localctx.errors import UsageError
from localctx.kv.cache import Cache
from localctx.kv.dispatch import max_tokens_at_once
from localctx.models.base import PagedModel
from localctx.settings import Settings, parse_size
from localctx.shape import FORMATS
from localctx.store.documents import StoredDocument
from localctx.store.remote.remote_sync import open_remote

PROMPTS_DIVISOR = 4  # pages of earlier prompts may take free memory divided by this


class TorchEngine(KVEngine):
    """The engine of models that torch or our own kernels compute, with the methods of ``KVEngine``."""

    @property
    def model(self) -> PagedModel:
        """The runtime's model."""
        return self.runtime.paged_model

    @property
    def codec(self) -> str:
        """The codec of new caches: the one that the settings name or, for ``auto``, the codec with the smallest pages
        that passed the quality gate.
        """
        kv = self.runtime.settings.kv
        if kv != "auto" and kv not in FORMATS:
            raise UsageError(f"torch has no {kv} KV", f"use one of: auto, {', '.join(FORMATS)}")
        return choose_codec(self.model.shape, self._passed) if kv == "auto" else kv

    def plan_cache(self, settings: Settings, tokens: int) -> CachePlan:
        self.runtime.pools.trim()
        return plan_cache(self.model, settings, self.codec, tokens, self.runtime.pools.retained.unused_bytes())

    def open_cache(self, planned: CachePlan) -> Cache:
        return planned.new_cache(self.model, self.runtime.settings.home / "spill", self.runtime.pools)

    def plan(self, planned: CachePlan, *, tokens: int, reused: int, answer: int, per_second: float | None) -> Planned:
        return plan(self.model, planned, tokens=tokens, reused=reused, answer=answer, per_second=per_second)

    def oom_recovery(self, planned: CachePlan) -> OomRecovery:
        return OomRecovery(planned.chunk, self._smaller_codec)

    def persister(
        self,
        documents: Sequence[StoredDocument],
        tokens: Sequence[int],
        identity: CacheIdentity,
        end: int,
        remote: bool,
    ) -> PagePersister:
        settings = self.runtime.settings
        pages = open_remote(settings.remote, settings.remote_mode) if remote else None
        return PagePersister(lambda: self.runtime.store, documents, identity, tokens, settings.caps["disk"], pages)

    def sharing(self, planned: CachePlan, tokens: Sequence[int]) -> PromptSharing | None:
        settings, retained = self.runtime.settings, self.runtime.pools.retained
        if settings.prompts == "off" or not planned.keeper.pages_may_persist:
            return None
        ends = pass_ends(tokens, self.model.tokenizer.stop_ids, planned.chunk)
        root = sharing_root(self.fingerprint(planned.codec), planned.chunk)
        return PromptSharing(retained, root, tokens, ends, self._prompt_bytes)

    def _prompt_bytes(self) -> int:
        """Returns the maximum number of bytes that retained pages may take now."""
        if (size := self.runtime.settings.prompts) != "auto":
            return parse_size(size, "prompts")
        free = measure_device(str(self.model.device)).free
        return (free + self.runtime.pools.retained.nbytes) // PROMPTS_DIVISOR

    def report(self, cache: Cache, *, window: int, chunk: int, restored: int) -> KVReport:
        pool = cache.pool
        return KVReport(
            codec=pool.codec,
            keeper=cache.keeper.name,
            bytes_per_token=pool.shape.bytes_per_token(pool.codec),
            pages=pool.counts(cache.pages),
            bytes=pool.nbytes(cache.table.ids.tolist()),
            sketch_bytes=cache.sketch_bytes(),
            window=window,
            chunk=chunk,
            evicted=[{"start": e.start, "stop": e.stop, "kept": round(e.kept, 4)} for e in cache.evicted],
            map=asdict(page_map(cache, restored)),
            reading=self.runtime.settings.reading,
        )

    def max_tokens_at_once(self, cache: Cache) -> int:
        return max_tokens_at_once(cache)

    def _smaller_codec(self, codec: str) -> str | None:
        auto = self.runtime.settings.kv == "auto"
        return smaller_codec(self.model.shape, self._passed, codec) if auto else None

    def _passed(self, codec: str) -> bool | None:
        """Returns True if ``codec`` passed the quality gate with this model, False if not, None if it was not measured.
        Sparse and full prefill share one result.
        """
        sparse = self.model.prefill_loss > 0
        fingerprint = self.model.with_prefill_loss(0).fingerprint(codec) if sparse else self.fingerprint(codec)
        return self.runtime.read_store(lambda store: store.quality_results.passed(fingerprint))
