"""Checks the pages of an exported document: computes random pages again from the pages before them, and compares.

Checksums find damage, but whoever alters a page can update its checksum. Keys and values cannot be chosen freely,
because they follow from the text. Processors differ in the last digits, so the comparison is not bit for bit.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from localctx.engine.coroutine import compute_alone
from localctx.engine.planning.cache_plan import plan_cache
from localctx.engine.runtime import Runtime
from localctx.errors import DocumentError
from localctx.kv.cache import Cache
from localctx.kv.pages import unpack_tokens
from localctx.models.base import ForwardRequest
from localctx.shape import PAGE
from localctx.store.bundle import Bundle, BundleCache, bundle_payloads

CHECKED_PAGES = 20  # if a tenth of the pages is forged, these find it with a probability of 88 %
MAX_DIFFERENCE = 0.3
"""The largest allowed distance of a token's keys or values from the recomputed ones, relative to their length."""


@dataclass(frozen=True)
class CheckedPages:
    """The result of checking pages of an exported document: the number of pages that were ``checked`` and found equal,
    and the ``total`` number of pages.
    """

    checked: int
    total: int

    def __str__(self) -> str:
        return f"{self.checked:,} of {self.total:,} pages computed again: equal"


def check_pages(
    runtime: Runtime,
    bundle: Bundle,
    caches: Sequence[BundleCache],
    count: int | None = CHECKED_PAGES,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> CheckedPages:
    """Compute ``count`` random pages of these caches of an exported document again (None: all pages), each from the
    pages before it, and compare them.

    Calls ``progress(pages computed, pages to compute)``. Raises DocumentError if a page differs, and Cancelled. Also
    raises DocumentError for sparse prefill: there the pages that a token skips depend on its neighbours, so an
    unaltered page can differ.
    """
    if caches and runtime.paged_model.prefill_loss:
        raise DocumentError(
            "pages that were read sparsely cannot be checked",
            "import the text alone with --text-only, and the model reads it again",
        )
    every = [(i, page) for i, cache in enumerate(caches) for page in range(len(cache.pages))]
    chosen = every if count is None else random.SystemRandom().sample(every, min(count, len(every)))
    done = 0
    for i, cache in enumerate(caches):
        for page in _compute_each(runtime, bundle, cache, {page for of, page in chosen if of == i}):
            done += 1
            progress(done, len(chosen))
            if page is not None:
                raise DocumentError(
                    f"{bundle.path} was altered: page {page + 1} is not what {cache.model} computes from the text",
                    "import its text alone with --text-only, and the model reads it again",
                )
    return CheckedPages(len(chosen), len(every))


def _compute_each(runtime: Runtime, bundle: Bundle, stored: BundleCache, chosen: set[int]) -> Iterator[int | None]:
    """Yields for each of the ``chosen`` pages of a cache None if it is as computed, else its number."""
    model = runtime.paged_model
    plan = plan_cache(model, replace(runtime.settings, keep="full"), stored.codec, stored.tokens)
    cache = plan.new_cache(model, runtime.settings.home / "spill")
    try:
        compute = compute_alone(model, runtime.cancelled)
        for number, payload in enumerate(bundle_payloads(bundle, stored)):
            if number > max(chosen, default=-1):
                return
            runtime.check_cancelled()
            tokens, computed = unpack_tokens(stored.pages[number].tokens), list[tuple[Tensor, Tensor]]()
            if number in chosen:
                compute(ForwardRequest(tokens, cache))
                computed = _layers(cache, number)
                cache.trim(number * PAGE)
            with torch.inference_mode():
                cache.adopt([payload]) if len(tokens) == PAGE else cache.adopt_tail(payload)
            if number in chosen:
                yield None if _are_equal(computed, _layers(cache, number)) else number
    finally:
        cache.drop()


def _layers(cache: Cache, page: int) -> list[tuple[Tensor, Tensor]]:
    """Returns the keys and values of a cache's last page, layer by layer: [kv_heads, tokens, dim]."""
    found = list[tuple[Tensor, Tensor]]()
    for layer in range(len(cache.pool.shape.layers)):
        k, v = cache.open_tail(layer) if cache.tail else cache.read(layer, page, page + 1, torch.float32)
        found.append((k.float().clone(), v.float().clone()))
    return found


def _are_equal(computed: Sequence[tuple[Tensor, Tensor]], stored: Sequence[tuple[Tensor, Tensor]]) -> bool:
    return all(
        _difference(mine, theirs) <= MAX_DIFFERENCE
        for layer in zip(computed, stored, strict=True)
        for mine, theirs in zip(*layer, strict=True)
    )


def _difference(mine: Tensor, theirs: Tensor) -> float:
    """Returns the largest distance between two vectors of a token, relative to the vector's length.

    For a short vector, as that of the first token is, it is relative to half the median length.
    """
    lengths = mine.norm(dim=-1)
    usual = lengths.median(dim=-1, keepdim=True).values
    difference = (mine - theirs).norm(dim=-1) / lengths.maximum(usual / 2).clamp_min(1e-9)
    return float(difference.max()) if bool(difference.isfinite().all()) else float("inf")
