"""Attention dispatch: which path computes attention of new tokens over a cache. Everything else asks here.

``TABLE`` is read from top to bottom: the first row whose conditions all hold applies.
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
"""Precisions of open pages that decode batches read, and their bits."""


class Path(Enum):
    """The ways to compute attention of one layer."""

    DECODE_BATCH = "a few tokens of several sequences, in one kernel call over pages, open pages and themselves"
    PREFILL_KERNEL = "a chunk, in one kernel call over sealed pages, the open page and itself"
    SELECTED_PAGES = "each token over the pages it selects; then the open page and the new tokens, by torch"
    TOKEN_KERNEL = "one token over sealed pages by a kernel; then the open page and itself, by torch"
    FETCHED_PAGES = "the same, with pages that lie elsewhere fetched to the device"
    TORCH_RUNS = "runs of pages are decoded and attended to by torch, then the open page and the new tokens"


@dataclass(frozen=True)
class AttentionCase:
    """The case that decides the path: ``tokens`` new tokens of a model's ``layer`` whose queries are of ``dtype``, over
    ``cache``. ``window`` is the layer's; ``latent``: keys and values are expanded from latents (MLA); ``alone``: not
    together with other sequences.
    """

    cache: Cache
    layer: int
    tokens: int
    window: int | None
    dtype: torch.dtype
    latent: bool = False
    alone: bool = True

    def may_batch(self) -> bool:
        """True if sequences may attend together: pages are read in place, and no keeper observes this one."""
        cache = self.cache
        return (
            not self.alone
            and not self.latent
            and cache.dtype in BATCH_DTYPES
            and cache.keeper.observes(cache.phase) is None
            and cache.table.readable()
        )

    def fits_batch(self) -> bool:
        """True for one token, or a few that fill no page (so that they can be trimmed) and select no pages."""
        cache, backend, selects = self.cache, self.cache.pool.backend, self.cache.selects_pages()
        if self.tokens == 1:
            fits = not selects or backend.selects_in_batch(cache.num_pages, cache.pool.has_unbiased)
            return backend.max_batch_tokens > 0 and fits
        return self.tokens <= backend.max_batch_tokens and cache.tail + self.tokens < PAGE and not selects

    def chunk(self) -> bool:
        """True for several tokens in float32; in bf16 torch is faster, where no pages are skipped."""
        return self.tokens > 1 and (self.dtype == torch.float32 or self.cache.prefill_loss > 0)

    def sees_all(self) -> bool:
        """True if every token attends to everything before it."""
        return self.window is None and not self.selects()

    def selects(self) -> bool:
        """True if a query attends only to the pages that it selects in this layer."""
        return selects_pages(self.cache, self.layer, self.window)

    def prefill_kernel(self) -> bool:
        """True if the backend has a prefill kernel for such keys, and the keeper needs no attention mass by page."""
        cache = self.cache
        observes_page_mass = cache.keeper.observes(cache.phase) is Observation.PAGE_MASS
        return cache.pool.backend.prefill_kernel and not cache.pool.unbiased(self.layer) and not observes_page_mass

    def token_kernel(self) -> bool:
        """True for one token whose pages kernels all read in place."""
        return self.tokens == 1 and self.cache.table.readable()

    def fetched_kernel(self) -> bool:
        """True for one token whose pages kernels read once they are fetched."""
        return self.tokens == 1 and self.cache.table.readable_once_fetched

    def stores_keys(self) -> bool:
        """True if the cache holds keys and values themselves, not latents that they are expanded from."""
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
    """The first path of TABLE whose conditions all hold."""
    return next(path for path, conditions in TABLE if all(holds(case) for holds in conditions))


def joins_batch(cache: Cache, tokens: int, *, latent: bool = False) -> bool:
    """True if ``tokens`` new tokens of this sequence join a decode batch; the answer is the same in every layer."""
    case = AttentionCase(cache, 0, tokens, None, cache.dtype, latent, alone=False)
    return attention_path(case) is Path.DECODE_BATCH


def batch_key(cache: Cache) -> tuple[str, int]:
    """Returns the key that sequences of a decode batch share: their codec. One that selects pages has its own key."""
    return cache.pool.codec, id(cache) if cache.selects_pages() else 0


def max_tokens_at_once(cache: Cache) -> int:
    """Returns how many tokens may be computed in one step with the same results as one by one, so that all but the
    first can be trimmed (``Cache.trim``) as if they had never been computed.
    """
    if cache.dtype != torch.float32 or cache.pool.shape.states:
        return 1  # only float32 is computed row by row; states cannot be trimmed by a token
    count = min(cache.pool.backend.max_batch_tokens, PAGE - 1 - cache.tail)
    return count if count > 1 and joins_batch(cache, count) else 1


def selects_pages(cache: Cache, layer: int, window: int | None) -> bool:
    """True if a query sees only the pages that it selects in this layer: the first layers and sliding ones see all."""
    return window is None and layer >= DENSE_LAYERS and cache.selects_pages()


def records_attention(shape: KVShape, layer: int, window: int | None) -> bool:
    """True if recorded attention mass is taken from this layer: early layers attend a little to everything, sliding
    ones only to what is near.
    """
    return window is None and layer >= len(shape.layers) // 2
