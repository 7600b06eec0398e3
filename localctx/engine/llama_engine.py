"""LlamaEngine: the engine for GGUF models. llama.cpp holds the KV cache, and sequences are persisted as snapshots."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from localctx.budget import measure_device, measure_ram
from localctx.engine.events import Planned
from localctx.engine.kv_engine import KVEngine
from localctx.engine.persistence.memory_prefixes import LlamaSharing
from localctx.engine.persistence.page_map import PageMap
from localctx.engine.persistence.persister import CacheIdentity
from localctx.engine.persistence.snapshot_persister import SnapshotPersister
from localctx.engine.planning.cache_plan import OomRecovery
from localctx.engine.prompt import Prompt
from localctx.engine.request_report import KVReport
from localctx.errors import TooLong, UsageError, format_bytes
from localctx.kv.keepers import KEEPERS, make_keeper
from localctx.kv.keepers.keeper import Keeper
from localctx.models.llama_cpp.cache import LlamaCache
from localctx.models.llama_cpp.library import NATIVE_CODEC, kv_types
from localctx.models.llama_cpp.model import MIN_BATCH, LlamaModel
from localctx.models.llama_cpp.options import CELLS, LLAMA_KEEPERS
from localctx.settings import Settings
from localctx.shape import PAGE
from localctx.store.documents import StoredDocument

SMALLER = "int8"  # chosen automatically if the native codec does not fit


@dataclass(frozen=True)
class LlamaPlan:
    """The plan for one cache in llama.cpp (a ``PlannedCache``). ``limit`` is the size in bytes that all contexts
    together may have now, and ``tokens`` is the length of the prompt.
    """

    codec: str
    limit: int
    tokens: int
    chunk: int
    keeper: Keeper

    def cells(self, answer: int) -> int:
        """Returns the number of tokens that the cache must hold at once for the prompt and an answer of ``answer``
        tokens. The number is rounded up to llama.cpp's blocks of cells.
        """
        tokens = self.tokens + answer
        held = self.keeper.max_tokens_held(tokens)
        if held < tokens:  # a chunk is added before the keeper evicts, which it does by pages
            held = min(tokens, held + self.chunk + PAGE)
        return math.ceil(held / CELLS) * CELLS


class NoRecovery(OomRecovery):
    """An OomRecovery that does nothing, because llama.cpp's sequences are preempted before memory runs out."""

    def __call__(self, cache: object, of_budget: bool = False) -> str | None:
        return None


class LlamaEngine(KVEngine):
    """The engine of a GGUF that llama.cpp computes, with the methods of ``KVEngine``."""

    always_cuts = False  # llama.cpp's last digits depend on the batch anyway

    @property
    def model(self) -> LlamaModel:
        """The runtime's model."""
        return self.runtime.llama_model

    @property
    def codec(self) -> str:
        """The codec of new caches: the one that the settings name or, for ``auto``, llama.cpp's default. If caches in
        the default codec do not fit in memory, ``plan_cache`` takes the codec SMALLER.
        """
        kv = self.runtime.settings.kv
        if kv != "auto":
            kv_types(kv)  # raises for an unknown codec
            return kv
        return NATIVE_CODEC

    def plan_cache(self, settings: Settings, tokens: int) -> LlamaPlan:
        refuse_settings(settings)
        keeper, chunk = make_keeper(settings.keep, tokens), max(MIN_BATCH, settings.chunk)
        planned = LlamaPlan(self.codec, context_bytes(self.model, settings.caps["memory"]), tokens, chunk, keeper)
        short = self._cells(planned.codec, planned.limit) < planned.cells(settings.max_tokens)
        if short and settings.kv == "auto" and SMALLER in self.model.sizes.contexts:
            planned = replace(planned, codec=SMALLER)
        if keeper.unbounded_positions:
            self.model.refuse_shifts(planned.codec)
        return planned

    def cuts(self, prompt: Prompt) -> Sequence[int]:
        """Returns the token counts at which a chunk must end while ``prompt`` is prefilled. They are where the
        documents and the history of a chat end, and where the question itself begins, because the same wording comes
        before most questions.

        A model with recurrent states or sliding windows, whose sequences cannot be trimmed to any length, has no cut at
        the question, because all its states would be stored once more there.
        """
        return sorted({prompt.shared, prompt.question}) if self.model.kind.rewinds else [prompt.shared]

    def open_cache(self, planned: LlamaPlan) -> LlamaCache:
        expected = planned.cells(self.runtime.settings.max_tokens)
        cache = self.model.new_cache(planned.codec, expected, planned.keeper)
        cache.memory.allow(self._cells(planned.codec, planned.limit))
        return cache

    def plan(self, planned: LlamaPlan, *, tokens: int, reused: int, answer: int, per_second: float | None) -> Planned:
        model, keeper = self.model, planned.keeper
        if not keeper.unbounded_positions:
            answer = min(answer, model.context - tokens)
        need, held = planned.cells(answer), keeper.max_tokens_held(tokens + answer)
        context = model.sizes.at(planned.codec, need)
        if need > (room := self._cells(planned.codec, planned.limit)):
            raise TooLong(
                f"{tokens:,} tokens take {format_bytes(context.need.total)} in llama.cpp; "
                f"there are {format_bytes(planned.limit)}, enough for {room:,} tokens",
                "close other programs, raise --memory, try a smaller --kv (int8, int4), or ask a shorter part",
            )
        return Planned(
            mode="full",
            reason=f"{keeper.name} keeps about {held:,} of the tokens at a time"
            if held < tokens
            else "the documents fit the model's window",
            tokens=tokens,
            reused=reused,
            kv_bytes=round(context.need.kv),
            seconds=(tokens - reused) / per_second if per_second else None,
            answer_tokens=answer,
            window=model.context,
            codec=planned.codec,
            keeper=keeper.name,
            unusual=held < tokens or model.context > model.trained,
            tiers={"device": round(context.need.kv), "host": 0, "disk": 0},
        )

    def oom_recovery(self, planned: LlamaPlan) -> OomRecovery:
        return NoRecovery(planned.chunk)

    def persister(
        self,
        documents: Sequence[StoredDocument],
        tokens: Sequence[int],
        identity: CacheIdentity,
        end: int,
        remote: bool,
    ) -> SnapshotPersister:
        """Returns the persister for the sequence ``tokens`` about ``documents``, in which the documents end at token
        ``end``. ``identity`` is the identity under which its snapshots are stored. ``remote`` has no effect: snapshots
        stay local, because another machine may have another build of llama.cpp.
        """
        settings = self.runtime.settings
        return SnapshotPersister(lambda: self.runtime.store, documents, identity, tokens, settings.caps["disk"], end)

    def sharing(self, planned: LlamaPlan, tokens: Sequence[int]) -> LlamaSharing | None:
        if self.runtime.settings.prompts == "off" or not planned.keeper.pages_may_persist:
            return None
        return LlamaSharing(self.fingerprint(planned.codec), tokens)

    def report(self, cache: LlamaCache, *, window: int, chunk: int, restored: int) -> KVReport:
        memory, where = cache.memory, list("d" * (cache.length // PAGE) + "o" * bool(cache.length % PAGE))
        for evicted in cache.evicted:
            where[evicted.start // PAGE : evicted.stop // PAGE] = "x" * ((evicted.stop - evicted.start) // PAGE)
        pages = len(where) - where.count("x")
        return KVReport(
            codec=memory.codec,
            keeper=cache.keeper.name,
            bytes_per_token=memory.page_bytes // PAGE,
            pages={"device": pages, "host": 0, "disk": 0},
            bytes={"device": pages * memory.page_bytes, "host": 0, "disk": 0},
            sketch_bytes=0,
            window=window,
            chunk=chunk,
            evicted=[asdict(evicted) for evicted in cache.evicted],
            map=asdict(PageMap("".join(where), min(-(-restored // PAGE), len(where)), [])),
            engine="llama.cpp",
        )

    def max_tokens_at_once(self, cache: LlamaCache) -> int:
        """Returns 1, because llama.cpp's results for several tokens at once differ in the last digits. So tokens are
        never drafted.
        """
        return 1

    def _cells(self, codec: str, limit: int) -> int:
        """Returns the maximum number of tokens of a context in ``codec`` that takes at most ``limit`` bytes."""
        return self.model.sizes.largest(codec, limit)


def context_bytes(model: LlamaModel, cap: int | None) -> int:
    """Returns the size in bytes that llama.cpp's contexts for ``model`` may have: the free memory plus the memory that
    they hold now, at most ``cap`` (None: no cap).
    """
    device, ram = measure_device(str(model.device)).free, measure_ram().free
    free = model.layers.context_limit(device, ram) + sum(model.kv_nbytes.values())
    return free if cap is None else min(free, cap)


def refuse_settings(settings: Settings) -> None:
    """Raise UsageError for settings that llama.cpp does not support."""
    name = settings.keep.partition(":")[0]
    if name in KEEPERS and name not in LLAMA_KEEPERS:
        raise UsageError(
            f"--keep {name} needs attention or keys, which llama.cpp does not report",
            "use --keep full, --keep sink-window or --engine torch",
        )
    if settings.blend == "on":
        raise UsageError(
            "llama.cpp cannot combine passages that it read separately", "use --blend off or --engine torch"
        )
