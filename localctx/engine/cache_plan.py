"""Memory: how a question will be remembered: window, codec, keeper, tiers, and how many tokens are read at a time."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from weakref import WeakValueDictionary

import torch

from localctx.budget import TierLimits, measure_device, measure_limits
from localctx.errors import NoRoom
from localctx.kv.cache import Cache
from localctx.kv.keepers import Full, Keeper, make_keeper
from localctx.kv.pool import Pool
from localctx.kv.reencode import reencode
from localctx.kv.rotary import Rope
from localctx.models.base import Model
from localctx.models.catalog import ContextWindow, load_catalog, window_for
from localctx.models.geometry import largest_chunk
from localctx.settings import Settings
from localctx.shape import FORMATS, PAGE, KVShape

TRUSTED = ("int8", "bf16", "f32")  # used until measured to be too coarse
NO_CAPS = TierLimits(None, None, None)
MARGIN = 512  # tokens for question and answer, so that every question on a document takes the same window


@dataclass(frozen=True)
class CachePlan:
    """What was decided for one question. ``limits``: what is free now; ``caps``: what was allowed, None for all."""

    codec: str
    keeper: Keeper = field(default_factory=Full)
    limits: TierLimits = field(default_factory=TierLimits)
    chunk: int = 512
    caps: TierLimits = NO_CAPS

    def new_cache(self, model: Model, spill: Path | None = None, pools: "PoolSet | None" = None) -> Cache:
        """An empty cache like that, in one of ``pools`` where these are given, else in a pool of its own."""
        pool = (pools or PoolSet()).join(self, model, spill)
        return Cache(pool, model.dtype, self.keeper, model.context)


class PoolSet:
    """The pools of one model that are open, one for each codec and way its keys turn: sequences that run at the same
    time share the memory there is. A pool is gone with its last sequence.
    """

    def __init__(self) -> None:
        self._pools = WeakValueDictionary[tuple[str, Rope | None], Pool]()

    def join(self, memory: CachePlan, model: Model, spill: Path | None) -> Pool:
        """The pool for one more sequence, which may take what ``memory`` was found to have beside what is held."""
        if pool := self._pools.get((memory.codec, model.rope)):
            pool.allow(memory.limits, memory.caps)
            return pool
        pool = Pool(model.shape, memory.codec, model.device, model.rope, memory.limits, spill)
        self._pools[memory.codec, model.rope] = pool
        return pool

    @property
    def held(self) -> dict[str, int]:
        """Bytes of KV that is open now, by tier, and ``kept``: pages of the store that are read where they lie."""
        pools = list(self._pools.values())
        tiers = [Counter(pool.nbytes()) for pool in pools]
        return {**sum(tiers, Counter()), "kept": sum(pool.lent for pool in pools)}


def plan_cache(model: Model, settings: Settings, codec: str, tokens: int) -> CachePlan:
    """How a prompt of ``tokens`` will be remembered on this machine now. Raises UsageError for a keeper's name.

    The chunk is the largest whose working memory takes no more than half of what is free, and whose pages no more than
    half of the device's budget.
    """
    device, itemsize = str(model.device), model.dtype.itemsize
    room, kind = measure_device(device).free // 2, model.device.type
    chunk = largest_chunk(model.geometry, room, settings.chunk, context=tokens, itemsize=itemsize, device=kind)
    reserve = model.geometry.activation_bytes(chunk, tokens, itemsize, kind)
    limits = measure_limits(device, settings.home, reserve, **settings.caps)
    if limits.device is not None:
        pages = limits.device // 2 // model.shape.page_bytes(codec)
        chunk = min(chunk, max(1, pages) * PAGE)
    caps = TierLimits(*(settings.caps[name] for name in ("memory", "ram", "disk")))
    return CachePlan(codec, make_keeper(settings.keep, tokens), limits, min(chunk, settings.chunk), caps)


def choose_codec(shape: KVShape, verdict_of: Callable[[str], bool | None]) -> str:
    """The smallest codec that passed the quality gate; int8 until it is measured. f32 where nothing passed.

    ``verdict_of`` tells whether a codec passed, None where it was never measured.
    """
    verdicts = {codec: verdict_of(codec) for codec in FORMATS}
    good = [c for c, v in verdicts.items() if v or (v is None and c in TRUSTED)]
    return min(good, key=shape.bytes_per_token, default="f32")


def longest(settings: Settings, model: Model) -> float:
    """The most tokens that could be read under these settings, whatever is chosen."""
    if make_keeper(settings.keep, 0).turns:
        return inf
    entry = load_catalog().get(settings.model) if settings.rope == "auto" else None
    return max([model.context, *(w.context for w in entry.longer)] if entry else [model.context])


def choose_window(settings: Settings, model: Model, documents: int, prompt: int) -> ContextWindow:
    """The window for a ``prompt`` of so many tokens, ``documents`` of them: the trained one, or a longer one of the
    catalogue that holds them, with a margin where one does. What a keeper never sees at once needs no longer one.
    """
    plain = ContextWindow(model.trained)
    if settings.rope != "auto":
        return ContextWindow(model.context, settings.rope)
    with_margin = max(documents + MARGIN, prompt + 1)
    if with_margin <= plain.context or make_keeper(settings.keep, prompt).turns:
        return plain
    return window_for(settings.model, with_margin) or window_for(settings.model, prompt + 1) or plain


@dataclass
class MemoryRelief:
    """What is tried, in order, when memory runs out in the middle of reading: a smaller chunk, a smaller codec where
    ``smaller`` allows one, pages pushed to lower tiers. The reading goes on where it was.
    """

    chunk: int
    smaller: Callable[[str], str | None] = lambda codec: None

    def __call__(self, cache: Cache, of_budget: bool = False) -> str | None:
        """Do the next thing; what was done, in words. None when there is nothing left to do.

        ``of_budget``: no tier has room in what it may take, so that moving pages between them is no help.
        """
        return next(self._tries(cache, of_budget), None)

    def _tries(self, cache: Cache, of_budget: bool) -> Iterator[str]:
        if self.chunk > PAGE:
            self.chunk = max(PAGE, self.chunk // 2 // PAGE * PAGE)
            yield f"memory ran out: reading {self.chunk} tokens at a time"
        if (codec := self.smaller(cache.pool.codec)) and _recoded(cache, codec):
            yield f"memory ran out: keys and values are kept as {codec} from here on, and not on disk"
        if not of_budget and (moved := cache.pool.shrink()):
            yield f"memory ran out: {moved} pages of KV were moved from the device"


def _recoded(cache: Cache, codec: str) -> bool:
    """Whether there was memory enough to keep ``cache`` in another codec: for a moment it takes both."""
    try:
        reencode(cache, codec)
    except (MemoryError, RuntimeError, NoRoom) as e:
        if isinstance(e, NoRoom) or out_of_memory(e):
            return False
        raise
    return True


def out_of_memory(e: BaseException) -> bool:
    """Whether this is what torch raises when the device, or RAM, is full."""
    if isinstance(e, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(e, RuntimeError) and "allocate memory" in str(e)


def smaller_codec(shape: KVShape, verdict_of: Callable[[str], bool | None], codec: str) -> str | None:
    """What ``choose_codec`` would take now, where it is smaller than ``codec``."""
    best = choose_codec(shape, verdict_of)
    return best if shape.bytes_per_token(best) < shape.bytes_per_token(codec) else None
