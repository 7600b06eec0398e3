"""Variants: the combinations of codec and keeper to measure, and how to make their caches."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import groupby
from pathlib import Path

from localctx.budget import TierLimits
from localctx.engine.planning.cache_plan import CachePlan, plan_cache
from localctx.kv.cache import Cache
from localctx.kv.keepers import make_keeper
from localctx.models.base import PagedModel
from localctx.settings import Settings, prefill_loss
from localctx.shape import FORMATS

REFERENCE = "f32"  # every variant is compared with this lossless codec


@dataclass(frozen=True)
class Variant:
    """A combination to measure: a codec of ``localctx.shape.FORMATS``, a keeper with its budget (``full``,
    ``select:1/4``), and a reading mode (``full``, ``sparse``), as in the settings.
    """

    codec: str
    keep: str = "full"
    reading: str = "full"

    @property
    def name(self) -> str:
        """The variant's name, such as ``int8`` or ``int8 select:1/4 sparse``."""
        return " ".join([self.codec, *(word for word in (self.keep, self.reading) if word != "full")])

    def key(self, fingerprint: bytes) -> bytes:
        """Returns the key of this variant's result in the store. ``fingerprint`` is the fingerprint of pages that were
        computed in the variant's codec with the reading mode ``full``.
        """
        loss = prefill_loss(self.reading)
        ways = [f"keep {self.keep}"] * (self.keep != "full") + [f"prefill loss {loss}"] * (loss > 0)
        return sha256(fingerprint + " ".join(ways).encode()).digest() if ways else fingerprint

    @property
    def shares_prefill(self) -> bool:
        """True if prefill keeps every page. Such variants with the same codec and reading mode can share a prefill."""
        return make_keeper(self.keep, 0).pages_may_persist


def make_variants(codecs: Iterable[str], keeps: Iterable[str], reading: str = "full") -> list[Variant]:
    """Returns the reference, each codec with the full keeper, and each keeper with each codec (default int8).

    Without codecs and keepers, returns every codec. If ``reading`` skips pages, each codec (default int8) is also
    measured with that reading mode.
    """
    codecs, keeps = list(codecs), [k for k in keeps if k != "full"]
    sparse = [Variant(c, "full", reading) for c in codecs or ["int8"]] if reading != "full" else []
    plain = codecs or ([] if keeps or sparse else list(FORMATS))
    variants = [Variant(REFERENCE), *map(Variant, plain), *sparse]
    variants += [Variant(c, k) for c in codecs or ["int8"] for k in keeps]
    return list(dict.fromkeys(variants))


def group_by_prefill(variants: Sequence[Variant]) -> list[list[Variant]]:
    """Group variants that can share one prefill of a document, in the order of each group's first variant."""
    order = {(v.codec, v.reading): i for i, v in reversed([*enumerate(variants)])}
    shares_prefill = sorted((v for v in variants if v.shares_prefill), key=lambda v: order[v.codec, v.reading])
    return [list(g) for _, g in groupby(shares_prefill, lambda v: (v.codec, v.reading))] + [
        [v] for v in variants if not v.shares_prefill
    ]


@dataclass(frozen=True)
class Setup:
    """The model and the memory of a measurement: the prefill chunk in tokens, the limits of caches, and the folder for
    spilled pages.
    """

    model: PagedModel
    chunk: int = 512
    limits: TierLimits = field(default_factory=TierLimits)
    spill: Path | None = None

    def new_cache(self, variant: Variant, tokens: int) -> Cache:
        """Returns an empty cache with the variant's codec and keeper. The keeper's budget may be a share of
        ``tokens``.
        """
        memory = CachePlan(variant.codec, make_keeper(variant.keep, tokens), self.limits, self.chunk)
        return memory.new_cache(self.model.with_prefill_loss(prefill_loss(variant.reading)), self.spill)


def make_setup(model: PagedModel, settings: Settings, tokens: int) -> Setup:
    """Returns a setup for ``model`` and a text of ``tokens``, with the memory that is free now under ``settings``."""
    memory = plan_cache(model, settings, REFERENCE, tokens)
    return Setup(model, memory.chunk, memory.limits, settings.home / "spill")


def fork_for(cache: Cache, variant: Variant, tokens: int) -> Cache:
    """Fork the cache that a group of variants prefilled, for ``variant``. The next tokens that the fork reads are the
    question.
    """
    fork = cache.fork(make_keeper(variant.keep, tokens))
    fork.enter_phase("asking")
    return fork


def cache_nbytes(cache: Cache) -> int:
    """Returns the bytes of a sequence's sealed pages, their sketches, its open page and its states."""
    sealed = sum(len(cache.pool.payload(page)) for page in cache.table.ids)
    opened = cache.pool.shape.tail_bytes(cache.dtype.itemsize)
    return sealed + cache.sketch_bytes() + opened + cache.states.nbytes
