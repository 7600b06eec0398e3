"""Attention dispatch: decides which path computes attention of new tokens over a cache. All other code asks this
module.

``TABLE`` is read from top to bottom. The first row whose conditions all hold applies.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import torch

from localctx.kv.cache import Cache
from localctx.kv.keepers.keeper import Observation
from localctx.kv.keepers.select import DENSE_LAYERS
from localctx.shape import PAGE, KVShape

BATCH_DTYPES = {torch.float32: 32, torch.bfloat16: 16}
"""Open-page precisions that decode batches can read, with their bits."""


class Path(Enum):
    """The ways to compute attention of one layer; the values describe them."""

    DECODE_BATCH = "a few tokens of several sequences, in one kernel call over pages, open pages and themselves"
    PREFILL_KERNEL = "a chunk, in one kernel call over sealed pages, the open page and itself"
    SELECTED_PAGES = "each token over the pages it selects; then the open page and the new tokens, by torch"
    TOKEN_KERNEL = "one token over sealed pages by a kernel; then the open page and itself, by torch"
    FETCHED_PAGES = "the same, with pages that lie elsewhere fetched to the device"
    TORCH_RUNS = "runs of pages are decoded and attended to by torch, then the open page and the new tokens"


@dataclass(frozen=True)
class AttentionCase:
    """The facts that decide how attention of one ``layer`` is computed. ``tokens`` is the number of new tokens, with
    queries of ``dtype``, over ``cache``. ``window`` is the sliding window of the layer, None if it has none. ``latent``
    is True if the cache holds latents (MLA). ``alone`` is True if the sequence must not be batched with others.
    """

    cache: Cache
    layer: int
    tokens: int
    window: int | None
    dtype: torch.dtype
    latent: bool = False
    alone: bool = True

    def may_batch(self) -> bool:
        """Returns True if this sequence may be in a decode batch with others: kernels can read its pages, and its
        keeper needs no measurement of attention.
        """
        cache = self.cache
        return (
            not self.alone
            and not self.latent
            and cache.dtype in BATCH_DTYPES
            and cache.keeper.observes(cache.phase) is None
            and cache.table.readable()
        )

    def fits_batch(self) -> bool:
        """Returns True if the new tokens can be in a decode batch. One token can. A few tokens can if they fill no page
        (so that they can be trimmed), select no pages, and are not better computed as a chunk of a prompt.
        """
        cache, backend, selects = self.cache, self.cache.pool.backend, self.cache.selects_pages()
        if self.tokens == 1:
            fits = not selects or backend.selects_in_batch(cache.num_pages, cache.pool.has_unbiased)
            return backend.max_batch_tokens > 0 and fits
        few = self.tokens <= backend.max_batch_tokens and cache.tail + self.tokens < PAGE
        return few and not selects and not self.is_part_of_prompt()

    def is_part_of_prompt(self) -> bool:
        """Returns True for several tokens of a prompt that the prefill kernel can take. This kernel reads pages once
        for all tokens, whereas a decode batch reads them for each token. Drafted tokens are not part of the prompt,
        because they must give the same results as tokens computed one by one.
        """
        if self.cache.phase == "answering" or any(layer.window for layer in self.cache.pool.shape.layers):
            return False
        return self.chunk() and self.prefill_kernel()

    def chunk(self) -> bool:
        """Returns True for several tokens for which the prefill kernel is faster than torch: in float32, or if pages
        are skipped.
        """
        return self.tokens > 1 and (self.dtype == torch.float32 or self.cache.prefill_loss > 0)

    def sees_all(self) -> bool:
        """Returns True if every token attends to all earlier tokens, without a window or selected pages."""
        return self.window is None and not self.selects()

    def selects(self) -> bool:
        """Returns True if a query attends only to the pages that it selects in this layer."""
        return selects_pages(self.cache, self.layer, self.window)

    def prefill_kernel(self) -> bool:
        """Returns True if the backend has a prefill kernel for the stored form of this layer's keys, and the keeper
        does not need the attention mass of pages.
        """
        cache = self.cache
        if cache.pool.unbiased(self.layer) and cache.pool.format.rotated:
            return False
        return cache.pool.backend.prefill_kernel and cache.keeper.observes(cache.phase) is not Observation.PAGE_MASS

    def token_kernel(self) -> bool:
        """Returns True for one token if kernels can read its pages where they are."""
        return self.tokens == 1 and self.cache.table.readable()

    def fetched_kernel(self) -> bool:
        """Returns True for one token if kernels can read its pages after they are fetched to the device."""
        return self.tokens == 1 and self.cache.table.readable_once_fetched

    def stores_keys(self) -> bool:
        """Returns True if the cache holds keys and values, not latents (MLA)."""
        return not self.latent


Case = AttentionCase
TABLE: tuple[tuple[Path, tuple[Callable[[AttentionCase], bool], ...]], ...] = (
    (Path.DECODE_BATCH, (Case.fits_batch, Case.may_batch)),
    (Path.PREFILL_KERNEL, (Case.chunk, Case.stores_keys, Case.sees_all, Case.prefill_kernel)),
    (Path.SELECTED_PAGES, (Case.selects, Case.stores_keys)),
    (Path.TOKEN_KERNEL, (Case.token_kernel, Case.stores_keys)),
    (Path.FETCHED_PAGES, (Case.fetched_kernel, Case.stores_keys)),
    (Path.TORCH_RUNS, ()),
)


def attention_path(case: AttentionCase) -> Path:
    """Returns the first path of TABLE whose conditions all hold."""
    return next(path for path, conditions in TABLE if all(holds(case) for holds in conditions))


def joins_batch(cache: Cache, tokens: int, *, latent: bool = False) -> bool:
    """Returns True if ``tokens`` new tokens of this sequence go into a decode batch. The answer is the same for every
    layer. ``latent`` is True for a model whose cache holds latents (MLA).
    """
    case = AttentionCase(cache, 0, tokens, None, cache.dtype, latent, alone=False)
    return attention_path(case) is Path.DECODE_BATCH


def batch_key(cache: Cache) -> tuple[str, int]:
    """Returns a key that is equal for sequences that may be in one decode batch: the name of their codec and a number.
    The number is 0, except for a sequence that selects pages: its number is unique, so it gets a batch of its own.
    """
    return cache.pool.codec, id(cache) if cache.selects_pages() else 0


def max_tokens_at_once(cache: Cache) -> int:
    """Returns the greatest number of tokens that one step may compute with the same results as one step for each token.
    All tokens of such a step but the first can be trimmed again without a trace, as drafting requires.
    """
    if cache.dtype != torch.float32 or cache.pool.shape.states:
        return 1  # only float32 is computed row by row; states cannot be trimmed by a token
    count = min(cache.pool.backend.max_batch_tokens, PAGE - 1 - cache.tail)
    return count if count > 1 and joins_batch(cache, count) else 1


def selects_pages(cache: Cache, layer: int, window: int | None) -> bool:
    """Returns True if a query attends only to selected pages in this layer. In the first layers, and in layers with a
    sliding ``window``, a query attends to all pages.
    """
    return window is None and layer >= DENSE_LAYERS and cache.selects_pages()


def records_attention(shape: KVShape, layer: int, window: int | None) -> bool:
    """Returns True if the attention of this layer counts in the recorded attention mass. Early layers do not count,
    because they attend a little to everything. Sliding-window layers do not count, because they attend only to nearby
    tokens.
    """
    return window is None and layer >= len(shape.layers) // 2
