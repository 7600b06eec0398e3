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
    """The plan for one cache. ``limits`` is the number of bytes that are free in each tier, and ``caps`` the number of
    bytes that the settings allow (None: no cap). ``chunk`` is the maximum number of tokens prefilled in one step.
    """

    codec: str
    keeper: Keeper = field(default_factory=Full)
    limits: TierLimits = field(default_factory=TierLimits)
    chunk: int = 512
    caps: TierLimits = NO_CAPS

    def new_cache(self, model: PagedModel, spill: Path | None = None, pools: "PoolSet | None" = None) -> Cache:
        """Create an empty cache for ``model`` by this plan. The cache uses one of ``pools`` if given. Otherwise it uses
        a new pool, whose disk tier is in the folder ``spill`` (None: the system's folder for temporary files).
        """
        pool = (pools or PoolSet()).pool_for(self, model, spill)
        return Cache(pool, model.dtype, self.keeper, model.context)


class PoolSet:
    """The open pools of one model: one pool for each combination of codec, RoPE scaling and prefill loss (the share of
    attention that sparse prefill may skip). Concurrent sequences use one pool, so they share memory and pages.
    ``retained`` are pages kept for later prompts. A pool is freed when no cache and no retained page is left in it.
    """

    def __init__(self) -> None:
        self._pools = WeakValueDictionary[tuple[str, Rope | None, float], Pool]()
        self.retained = RetainedPages()

    def pool_for(self, plan: CachePlan, model: PagedModel, spill: Path | None) -> Pool:
        """Returns the pool for one more cache by ``plan``. If the pool exists, its limits become the bytes that it
        holds plus the limits of ``plan``. ``spill`` is the folder of the disk tier of a new pool.
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
        """Return the memory of released pages to the system. Otherwise it would stay in pools that still have retained
        pages.
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
        of the pages that are read from the store's files.
        """
        pools = list(self._pools.values())
        tiers = [Counter(pool.nbytes()) for pool in pools]
        return {**sum(tiers, Counter()), "kept": sum(pool.mapped_bytes for pool in pools)}


def plan_cache(model: PagedModel, settings: Settings, codec: str, tokens: int, unused: int = 0) -> CachePlan:
    """Plan the cache of a prompt of ``tokens`` tokens for the memory that is free now. ``unused`` is the size in bytes
    of the pages on the device that are only kept for later prompts; it counts as free.

    The chunk is the largest whose activations fit in half of the free memory and whose pages fit in half of the
    device's budget. Raises UsageError for an unknown keeper, and for a keeper that evicts tokens if the model has
    recurrent states.
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
    """Raise UsageError if ``model`` has recurrent states, from which tokens cannot be evicted. ``keeper`` is the name
    of the eviction policy, for the message.
    """
    if model.engine == "torch" and cast(PagedModel, model).shape.states:
        what = f"{model.name} has layers that remember all tokens in states, of which {keeper} can drop nothing"
        raise UsageError(what, "use --keep full or select; in a full chat: summarize, or begin a new one")


def choose_codec(shape: KVShape, passed: Callable[[str], bool | None]) -> str:
    """Returns the codec with the smallest pages of this ``shape`` that passed the quality gate. Returns int8 if no
    codec was measured, and f32 if none passed.

    ``passed`` returns True or False for a measured codec, None for one that was never measured.
    """
    results = {codec: passed(codec) for codec in FORMATS}
    good = [codec for codec, result in results.items() if result or (result is None and codec in TRUSTED)]
    return min(good, key=shape.bytes_per_token, default="f32")


def longest_prompt(settings: Settings, model: Model) -> float:
    """Returns the maximum number of tokens of a prompt under these settings. It is infinite if the keeper evicts tokens
    and keeps positions within the window, because a prompt of any length can then be read.
    """
    if make_keeper(settings.keep, 0).unbounded_positions:
        return inf
    entry = load_catalog().get(settings.model) if settings.rope == "auto" else None
    return max([model.context, *(w.context for w in entry.longer)] if entry else [model.context])


def choose_window(settings: Settings, model: Model, documents: int, prompt: int) -> ContextWindow:
    """Returns the context window for a prompt of ``prompt`` tokens, of which ``documents`` tokens are documents.

    If the setting ``rope`` is not ``auto``, the result is the model's window under that scaling. If the keeper keeps
    positions within the window, the result is the trained window. Otherwise a window must have room for the prompt, and
    for the documents with MARGIN to spare. The first such window is taken: the trained window, then longer windows that
    were tested, smallest first. If there is none, the result is the smallest window with room for the prompt alone, or
    the trained window.
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
    """Makes room when memory runs out during prefill, so that prefill can continue. It tries these steps in order:
    release pages retained for later prompts, halve the chunk, re-encode pages to the codec that ``smaller_codec``
    names, and move pages to lower tiers.
    """

    chunk: int
    smaller_codec: Callable[[str], str | None] = lambda codec: None

    def __call__(self, cache: Any, of_budget: bool = False) -> str | None:
        """Take the next step. Returns a sentence for the user that describes the step, or None if nothing is left to
        try.

        If ``of_budget``, memory ran out because every tier is at its limit. Then pages are neither released nor moved.
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
    """Re-encode the pages of ``cache`` in ``codec``. Returns False if memory cannot hold the old and the new pages."""
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
    """Returns the codec that ``choose_codec`` would choose, if its pages are smaller than those of ``codec``, the
    current one; else None. ``passed`` returns True or False for a measured codec, None for one that was never measured.
    """
    best = choose_codec(shape, passed)
    return best if shape.bytes_per_token(best) < shape.bytes_per_token(codec) else None
