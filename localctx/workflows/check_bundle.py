"""Checks the pages of an exported document: computes random pages again from the pages before them, and compares both.

Checksums find damage, but not forgery: whoever alters a page can update its checksum. Keys and values can be checked,
because they follow from the text. Processors differ in the last digits, so the comparison allows small differences.
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

CHECKED_PAGES = 20  # if a tenth of the pages is forged, this many pages reveal it with a probability of 88 %
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

    Calls ``progress(pages computed, pages to compute)``. Raises Cancelled, and DocumentError if a page differs. Also
    raises DocumentError under sparse prefill: the pages that a token then skips depend on the neighbouring tokens, so
    even unaltered pages can differ.
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
    """Compute each of the ``chosen`` pages of a cache. Yields None for each page that is equal to the stored one, and
    the page's number for each that differs.
    """
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
    """Returns the keys and values of ``page``, the last page of the cache, for each layer: [kv_heads, tokens, dim]."""
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
    """Returns the largest distance between a token's vector in ``mine`` and in ``theirs``, relative to the length of
    the vector in ``mine``.

    If a vector is very short, such as the first token's vector, the distance is relative to half the median length.
    """
    lengths = mine.norm(dim=-1)
    usual = lengths.median(dim=-1, keepdim=True).values
    difference = (mine - theirs).norm(dim=-1) / lengths.maximum(usual / 2).clamp_min(1e-9)
    return float(difference.max()) if bool(difference.isfinite().all()) else float("inf")
