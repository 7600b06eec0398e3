"""Variants: which codec and which keeper are measured, and on what; the one place that makes their caches."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import groupby
from pathlib import Path

from localctx.budget import TierLimits
from localctx.engine.cache_plan import CachePlan, plan_cache
from localctx.kv.cache import Cache
from localctx.kv.keepers import make_keeper
from localctx.models.base import Model
from localctx.settings import Settings
from localctx.shape import FORMATS

REFERENCE = "f32"  # what every variant is compared with: sealed pages without loss
_LATE = ("full", "select", "snapkv")  # keepers that read a document as ``full`` does and act when a question comes


@dataclass(frozen=True)
class Variant:
    """A codec of ``localctx.shape.FORMATS`` and a keeper as the engine parses it (``full``, ``select:1/4``)."""

    codec: str
    keep: str = "full"

    @property
    def name(self) -> str:
        """``int8``, or ``int8 select:1/4``."""
        return self.codec if self.keep == "full" else f"{self.codec} {self.keep}"

    def key(self, fingerprint: bytes) -> bytes:
        """What its verdict is kept under, for a model and codec of this fingerprint."""
        return fingerprint if self.keep == "full" else sha256(fingerprint + f"keep {self.keep}".encode()).digest()

    @property
    def late(self) -> bool:
        """Reading leaves every page there, so that other late variants of the codec may share it."""
        return self.keep.partition(":")[0] in _LATE


def variants_of(codecs: Iterable[str], keeps: Iterable[str]) -> list[Variant]:
    """The reference, each codec with the full keeper, and each keeper with each codec asked for (none: int8).

    Without either, every codec there is.
    """
    codecs, keeps = list(codecs), [k for k in keeps if k != "full"]
    plain = codecs or ([] if keeps else list(FORMATS))
    all_of_them = [Variant(REFERENCE), *map(Variant, plain)]
    all_of_them += [Variant(c, k) for c in codecs or ["int8"] for k in keeps]
    return list(dict.fromkeys(all_of_them))


def groups(variants: Sequence[Variant]) -> list[list[Variant]]:
    """Variants that can share one reading of a document, in the order of the first of each."""
    order = {v.codec: i for i, v in reversed([*enumerate(variants)])}
    late = sorted((v for v in variants if v.late), key=lambda v: order[v.codec])
    return [list(g) for _, g in groupby(late, lambda v: v.codec)] + [[v] for v in variants if not v.late]


@dataclass(frozen=True)
class Setup:
    """What variants are measured on: a model that reads ``chunk`` tokens in a step, and what its caches may take."""

    model: Model
    chunk: int = 512
    limits: TierLimits = field(default_factory=TierLimits)
    spill: Path | None = None

    def new_cache(self, variant: Variant, tokens: int) -> Cache:
        """An empty cache in the variant's codec and keeper, whose budget may be a part of ``tokens``."""
        memory = CachePlan(variant.codec, make_keeper(variant.keep, tokens), self.limits, self.chunk)
        return memory.new_cache(self.model, self.spill)


def set_up(model: Model, settings: Settings, tokens: int) -> Setup:
    """``model``, and what is free here now under ``settings``, for a text of ``tokens``."""
    memory = plan_cache(model, settings, REFERENCE, tokens)
    return Setup(model, memory.chunk, memory.limits, settings.home / "spill")


def fork_for(cache: Cache, variant: Variant, tokens: int) -> Cache:
    """A fork of what a group has read, with the keeper of ``variant``, whose question comes next."""
    fork = cache.fork()
    fork.keeper, fork.phase = make_keeper(variant.keep, tokens), "asking"
    return fork


def held_bytes(cache: Cache) -> int:
    """What the sequence holds: its sealed pages, their sketches, and the open page at full precision."""
    sealed = sum(len(cache.pool.payload(page)) for page in cache.pages)
    return sealed + cache.sketch_bytes() + cache.pool.shape.tail_bytes(cache.dtype.itemsize)
