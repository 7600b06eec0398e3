"""Plans the cache of a request: context window, codec, keeper, tier limits and prefill chunk size."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, cast
from weakref import WeakValueDictionary

import torch

from localctx.budget import TierLimits, measure_device, measure_limits
from localctx.errors import OutOfKVMemory, UsageError
from localctx.kv.cache import Cache
from localctx.kv.keepers import Keeper, make_keeper
from localctx.kv.keepers.full import Full
from localctx.kv.keepers.keeper import TokenBudget
from localctx.kv.pool import Pool
from localctx.kv.reencode import reencode
from localctx.kv.retained_pages import RetainedPages
from localctx.kv.rotary import Rope
from localctx.models.architecture.geometry import largest_chunk
from localctx.models.base import Model, PagedModel
from localctx.models.catalog import ContextWindow, load_catalog, window_for
from localctx.settings import Settings
from localctx.shape import FORMATS, PAGE, KVShape

TRUSTED = ("int8", "bf16", "f32")  # codecs used without a measurement
NO_CAPS = TierLimits(None, None, None)
MEMORY_ERRORS = ("allocate memory", "out of memory", "STATUS_ALLOC_FAILED")
"""Texts of errors that mean that memory ran out: torch's on a CPU, CUDA's outside of torch's allocator, cuBLAS's."""
MARGIN = 512  # tokens reserved for question and answer, so every question about a document gets the same window


@dataclass(frozen=True)
class CachePlan:
    """The plan for one cache. ``limits`` are how many bytes are free in each tier. ``caps`` are how many bytes the
    settings allow (None: no cap). ``chunk`` is the most tokens prefilled in one step.
    """

    codec: str
    keeper: Keeper = field(default_factory=Full)
    limits: TierLimits = field(default_factory=TierLimits)
    chunk: int = 512
    caps: TierLimits = NO_CAPS

    def new_cache(self, model: PagedModel, spill: Path | None = None, pools: "PoolSet | None" = None) -> Cache:
        """Create an empty cache by this plan. Its pool is one of ``pools`` if given, else a new one, whose disk tier is
        in the folder ``spill`` (None: the system's).
        """
        pool = (pools or PoolSet()).pool_for(self, model, spill)
        return Cache(pool, model.dtype, self.keeper, model.context)


class PoolSet:
    """The open pools of one model: one for each codec, RoPE scaling and prefill loss. Concurrent sequences share a
    pool, so they share memory and pages. A pool is freed with its last cache and its last page in ``retained``.
    """

    def __init__(self) -> None:
        self._pools = WeakValueDictionary[tuple[str, Rope | None, float], Pool]()
        self.retained = RetainedPages()

    def pool_for(self, plan: CachePlan, model: PagedModel, spill: Path | None) -> Pool:
        """Returns the pool for one more cache. The pool may then take the limits of ``plan`` in addition to the bytes
        that it holds already. ``spill`` is the folder of the disk tier of a new pool.
        """
        key = plan.codec, model.rope, model.prefill_loss
        if pool := self._pools.get(key):
            pool.allow(plan.limits, plan.caps, self.retained.unused_bytes(pool))
            return pool
        pool = Pool(
            model.shape, plan.codec, model.device, model.rope, plan.limits, spill, prefill_loss=model.prefill_loss
        )
        pool.give_up = self.retained.give_up
        self._pools[key] = pool
        return pool

    def trim(self) -> None:
        """Return the memory of released pages to the system. Without this it would stay in pools that retained pages
        keep alive.
        """
        for pool in list(self._pools.values()):
            pool.trim()

    @property
    def page_counts(self) -> dict[str, int]:
        """The number of pages in each tier, by the name of the tier: ``device``, ``host`` and ``disk``."""
        tiers = [tier for pool in list(self._pools.values()) for tier in pool.tiers]
        return {name: sum(len(tier) for tier in tiers if tier.name == name) for name in ("device", "host", "disk")}

    @property
    def nbytes(self) -> dict[str, int]:
        """The size in bytes, by the name of the tier, of the KV of open caches and retained pages. ``kept`` is the size
        of the store's pages that are read in place.
        """
        pools = list(self._pools.values())
        tiers = [Counter(pool.nbytes()) for pool in pools]
        return {**sum(tiers, Counter()), "kept": sum(pool.mapped_bytes for pool in pools)}


def plan_cache(model: PagedModel, settings: Settings, codec: str, tokens: int, unused: int = 0) -> CachePlan:
    """Plan the cache of a prompt of ``tokens`` for the memory that is free now. ``unused`` is how many bytes of the
    device hold pages of earlier prompts; they count as free, because they can be given up.

    The chunk is the largest whose activations fit in half of the free memory and whose pages fit in half of the
    device's budget. Raises UsageError for an unknown keeper. Raises UsageError for a keeper that evicts tokens, if the
    model has states.
    """
    keeper = make_keeper(settings.keep, tokens)
    if isinstance(keeper, TokenBudget):
        refuse_eviction(model, keeper.name)
    device, itemsize = str(model.device), model.dtype.itemsize
    free, kind = measure_device(device).free + unused, model.device.type
    room = free // 2
    chunk = largest_chunk(model.geometry, room, settings.chunk, context=tokens, itemsize=itemsize, device=kind)
    reserve = model.geometry.activation_bytes(chunk, tokens, itemsize, kind)
    limits = measure_limits(device, settings.home, reserve, free=free, **settings.caps)
    if limits.device is not None:
        pages = limits.device // 2 // model.shape.page_bytes(codec)
        chunk = min(chunk, max(1, pages) * PAGE)
    caps = TierLimits(*settings.caps.values())
    return CachePlan(codec, keeper, limits, min(chunk, settings.chunk), caps)


def refuse_eviction(model: Model, keeper: str) -> None:
    """Raise UsageError for a model with states (memory of all tokens without pages). ``keeper`` is the name of the
    policy, which cannot evict tokens from states.
    """
    if model.engine == "torch" and cast(PagedModel, model).shape.states:
        what = f"{model.name} has layers that remember all tokens in states, of which {keeper} can drop nothing"
        raise UsageError(what, "use --keep full or select; in a full chat: summarize, or begin a new one")


def choose_codec(shape: KVShape, passed: Callable[[str], bool | None]) -> str:
    """Returns the codec with the smallest pages of this ``shape`` that passed the quality gate: int8 if no codec was
    measured, f32 if none passed.

    ``passed`` returns True or False for a measured codec, None for one that was never measured.
    """
    results = {codec: passed(codec) for codec in FORMATS}
    good = [codec for codec, result in results.items() if result or (result is None and codec in TRUSTED)]
    return min(good, key=shape.bytes_per_token, default="f32")


def longest_prompt(settings: Settings, model: Model) -> float:
    """Returns the most tokens that a prompt may have under these settings. The result is infinite if the keeper evicts
    tokens and bounds the positions, so that a prompt of any length can be read.
    """
    if make_keeper(settings.keep, 0).unbounded_positions:
        return inf
    entry = load_catalog().get(settings.model) if settings.rope == "auto" else None
    return max([model.context, *(w.context for w in entry.longer)] if entry else [model.context])


def choose_window(settings: Settings, model: Model, documents: int, prompt: int) -> ContextWindow:
    """Returns the context window for a prompt of ``prompt`` tokens, of which ``documents`` tokens are documents.

    If the setting ``rope`` is not ``auto``, this is the model's window under that scaling. Else it is the trained
    window, if that has room for the prompt, and for the documents with MARGIN. Else it is the smallest longer window
    that was tested and has this room. If none has, it is the smallest with room for the prompt alone, or the trained
    window. With a keeper that bounds the positions it is the trained window.
    """
    plain = ContextWindow(model.trained)
    if settings.rope != "auto":
        return ContextWindow(model.context, settings.rope)
    with_margin = max(documents + MARGIN, prompt + 1)
    if with_margin <= plain.context or make_keeper(settings.keep, prompt).unbounded_positions:
        return plain
    return window_for(settings.model, with_margin) or window_for(settings.model, prompt + 1) or plain


@dataclass
class OomRecovery:
    """Makes room when memory runs out during prefill, which then continues. It takes these steps in order: give up
    pages retained for later prompts, halve the chunk, re-encode to the codec that ``smaller_codec`` names, and move
    pages to lower tiers.
    """

    chunk: int
    smaller_codec: Callable[[str], str | None] = lambda codec: None

    def __call__(self, cache: Any, of_budget: bool = False) -> str | None:
        """Take the next step; returns a sentence that says what was done, or None if nothing is left to try.

        ``of_budget``: memory ran out because every tier is at its limit, so pages are neither given up nor moved.
        """
        return next(self._tries(cache, of_budget), None)

    def _tries(self, cache: Cache, of_budget: bool) -> Iterator[str]:
        if not of_budget and cache.pool.give_up_all():
            yield "memory ran out: pages of earlier prompts were dropped"
        if self.chunk > PAGE:
            self.chunk = max(PAGE, self.chunk // 2 // PAGE * PAGE)
            yield f"memory ran out: reading {self.chunk} tokens at a time"
        if (codec := self.smaller_codec(cache.pool.codec)) and _reencoded(cache, codec):
            yield f"memory ran out: keys and values are kept as {codec} from here on, and not on disk"
        if not of_budget and (moved := cache.pool.shrink()):
            yield f"memory ran out: {moved} pages of KV were moved from the device"


def _reencoded(cache: Cache, codec: str) -> bool:
    """Re-encode the pages of ``cache``; returns False if memory could not hold both copies."""
    try:
        reencode(cache, codec)
    except (MemoryError, RuntimeError, OutOfKVMemory) as e:
        if isinstance(e, OutOfKVMemory) or out_of_memory(e):
            return False
        raise
    return True


def out_of_memory(e: BaseException) -> bool:
    """Returns True if this is an error that torch, CUDA or cuBLAS raises when the device or RAM is full."""
    if isinstance(e, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(e, RuntimeError) and any(text in str(e) for text in MEMORY_ERRORS)


def smaller_codec(shape: KVShape, passed: Callable[[str], bool | None], codec: str) -> str | None:
    """Returns the codec that ``choose_codec`` would choose, if its pages are smaller than those of the current
    ``codec``; else None. ``passed`` returns True or False for a measured codec, None for one that was never measured.
    """
    best = choose_codec(shape, passed)
    return best if shape.bytes_per_token(best) < shape.bytes_per_token(codec) else None
