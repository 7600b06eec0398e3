"""DecodeBatch: computes the attention of a few new tokens of one or several sequences, in one call for each layer."""

from collections.abc import Sequence
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from localctx.kernels.cpu.decode import SPLIT
from localctx.kernels.cpu.decode_batch import BatchOpenPages, BatchPages, attend_rows
from localctx.kernels.cpu.decode_layers import NEVER, NO_SELECTION, LayerPages, PageSelection, no_bias
from localctx.kernels.cpu.key_bias import bias_scores, bias_scores_at
from localctx.kv.batches.graph_inputs import CapturableBatch
from localctx.kv.cache import Cache
from localctx.kv.dispatch import BATCH_DTYPES, records_attention, selects_pages
from localctx.kv.keepers.select import DENSE_LAYERS
from localctx.kv.row_parts import split_rows
from localctx.kv.selection import choose_pages, layer_biases, page_bias
from localctx.shape import FULL, PAGE, SINK_PAGES, SLIDING


class DecodeBatch:
    """A batch of a few new tokens, of one or several sequences that share a model and codec. Each new token is one row.

    ``sequences`` are pairs of a cache and the number of its new tokens. Each cache has begun a step (``Cache.begin``).
    """

    def __init__(self, sequences: Sequence[tuple[Cache, int]]) -> None:
        rows = [(cache, i) for cache, tokens in sequences for i in range(tokens)]
        self._caches, self._pool = [cache for cache, _ in rows], rows[0][0].pool
        self._later = [i for _, i in rows]  # by row: number of new tokens before it in its sequence
        self._starts = np.cumsum(
            [0, *(cache.num_pages for cache in self._caches)]
        )  # [rows + 1], offsets into the pages of all rows
        tables = [cache.table for cache in self._caches]
        self._bases = np.stack([np.concatenate([t.bases(part) for t in tables]) for part in (FULL, SLIDING)])
        self._kinds = np.stack([np.concatenate([t.kinds(part) for t in tables]) for part in (FULL, SLIDING)])
        open_pages = {id(cache): cache.open_page.addresses for cache, _ in sequences}
        self._open_pages = np.stack([open_pages[id(cache)] for cache in self._caches], 1)  # [layers, rows, 2]
        self._filled = np.array([cache.tail + i for cache, i in rows], np.int64)
        self._filling = np.flatnonzero(self._filled == PAGE - 1).tolist()  # rows that fill their sequence's open page
        self._bits = BATCH_DTYPES[self._caches[0].dtype]
        self._none_hidden = np.zeros(len(rows), np.int64)
        self._recording = any(cache.attention_mass is not None for cache in self._caches)
        self._mass = np.zeros(self._starts[-1])

    def attend(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        scale: float,
        *,
        window: int | None = None,
        softcap: float = 0,
        sinks: Tensor | None = None,
        shared: bool = False,
    ) -> Tensor:
        """Attend with each of the n rows, as ``attend_cache`` does, and append the new k, v [H, n, D] to the caches.
        The queries are q [Hq, n, D]. The options are those of ``attend_cache``. If ``shared``, an earlier layer of the
        model has already appended k and v in this step. Returns [Hq, n, Dv].
        """
        rows = [x.transpose(0, 1).float().contiguous().numpy() for x in (q, k, v)]
        out = self._attend(layer, rows[0], rows[1], rows[2], scale, window, softcap, sinks)
        if not shared:
            self._seal(layer, k, v)
        return torch.from_numpy(out).to(q.dtype).transpose(0, 1)

    def attend_arrays(
        self, layer: int, q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, window: int | None
    ) -> np.ndarray:
        """Compute ``attend`` without its options on float32 arrays whose first axis is the row: q [n, Hq, D], k and v
        [n, H, D]. Returns [n, Hq, Dv]. This method avoids the overhead of tensors, which takes longer than the
        arithmetic if the context is short.
        """
        out = self._attend(layer, q, k, v, scale, window)
        if self._filling:
            self._seal(layer, *(torch.from_numpy(x).transpose(0, 1) for x in (k, v)))
        return out

    @cached_property
    def layer_pages(self) -> LayerPages | None:
        """The pages that all rows attend to, in all layers, for the kernel ``decode_layers``, which computes all layers
        in one call. None if that kernel cannot compute these layers: for example, if layers differ in shape or have a
        sliding window.
        """
        form, first = self._pool.format, self._pool.shape.layers[0]
        shapes, layers = set(self._pool.shape.layers), range(len(form.layouts))
        unlike = len(shapes) > 1 or first.kind != "full" or first.window is not None
        if unlike or form.rotated:
            return None
        return LayerPages(
            BatchPages(self._parts, self._addresses, self._kinds[form.parts]),
            BatchOpenPages(self._open_pages, self._bits, self._filled, self._none_hidden),
            form.layouts[0]._replace(table=np.stack([layout.table for layout in form.layouts])),
            layer_biases(self._caches, layers) if self._pool.has_unbiased else no_bias(len(layers)),
            self._selection(range(DENSE_LAYERS, len(layers))),
            next(filter(partial(self._records, window=None), layers), NEVER),
        )

    def _selection(self, layers: range) -> PageSelection:
        """Returns the arguments by which ``decode_layers`` selects pages for the only row, in ``layers``."""
        cache = self._caches[0]
        if not cache.selects_pages() or not layers:
            return NO_SELECTION
        assert len(self._caches) == 1, "a sequence that selects has a batch of its own"
        count = cache.keeper.pages_seen(cache.num_pages)
        sketches = cache.sketches.arguments(layers)
        return PageSelection(layers.start, count, SINK_PAGES, self._selected_parts, sketches)

    def finish_layers(self, keys: np.ndarray, values: np.ndarray, chosen: np.ndarray, shares: np.ndarray) -> None:
        """Finish the step after ``decode_layers`` has computed all layers. The arguments are its results: ``keys``
        [layers, n, H, D] and ``values`` [layers, n, H, Dv], which are in the open pages already, the ``chosen`` pages
        and the ``shares`` of attention. Mark the chosen pages as recently used, record the attention, and seal the open
        pages that are full now.
        """
        if chosen.size:
            self._caches[0].table.touch(chosen)
        for layer, own in enumerate(shares, len(keys) - len(shares)):
            at = layer - (len(keys) - len(chosen))  # layers that select come last
            self._add_shares(own, chosen[at] if at >= 0 else None)
        if self._filling:
            for layer, new in enumerate(zip(keys, values, strict=True)):
                self._seal(layer, *(torch.from_numpy(x).transpose(0, 1) for x in new))

    def _attend(
        self,
        layer: int,
        q: np.ndarray,
        k: np.ndarray,
        v: np.ndarray,
        scale: float,
        window: int | None,
        softcap: float = 0,
        sinks: Tensor | None = None,
    ) -> np.ndarray:
        chosen = self._choose(layer, q, scale, window)
        pages = self._pages(layer, window) if chosen is None else self._pages_at(layer, chosen)
        open_pages = BatchOpenPages(self._open_pages[layer], self._bits, self._filled, self._hidden(window))
        records = self._records(layer, window)
        out, shares = attend_rows(
            q,
            k,
            v,
            pages,
            open_pages,
            self._pool.format.layouts[layer],
            scale,
            softcap=softcap,
            sinks=None if sinks is None else sinks.float().numpy(),
            extra=self._extra_scores(layer, q * np.float32(scale), chosen),
            rotated=self._pool.format.rotated,
            masses=records,
        )
        if records:
            self._add_shares(shares, chosen)
        return out

    def report_attention(self) -> None:
        """Add the attention that pages received in this step to the recorded attention of their caches."""
        for cache, start, stop in zip(self._caches, self._starts, self._starts[1:], strict=False):
            if cache.attention_mass is not None:
                cache.add_attention(np.arange(stop - start), self._mass[start:stop])

    def capturable(self) -> CapturableBatch | None:
        """Returns this batch if a CUDA graph can capture its work, otherwise None."""
        return None

    def _seal(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Seal the pages that are full now. A row that fills a page is its sequence's only row."""
        for i in self._filling:
            self._caches[i].extend(layer, k[:, i : i + 1], v[:, i : i + 1])

    def _records(self, layer: int, window: int | None) -> bool:
        return self._recording and records_attention(self._pool.shape, layer, window)

    @cached_property
    def _addresses(self) -> np.ndarray:
        """The address of each layer's record of each page, [layers, pages]."""
        offsets, parts = self._pool.format.offsets, self._pool.format.parts
        return self._bases[parts] + offsets[self._kinds[parts], np.arange(len(parts))[:, None]]

    def _pages(self, layer: int, window: int | None) -> BatchPages:
        kinds = self._kinds[None, self._pool.shape.parts[layer]]
        return BatchPages(self._parts_seen(layer, window), self._addresses[layer : layer + 1], kinds)

    def _parts_seen(self, layer: int, window: int | None) -> np.ndarray:
        """Returns the ranges of pages for single kernel tasks (``split_rows``), as far back as the ``window`` of the
        layer reaches.
        """
        if window is None:
            return self._parts
        rows = zip(self._caches, self._later, strict=True)
        seen = [cache.table.first_seen(layer, window, cache.position + later) for cache, later in rows]
        return self._split(self._pool.shape.parts[layer], seen)

    @cached_property
    def _parts(self) -> np.ndarray:
        """The ranges of pages for single kernel tasks (``split_rows``), if the rows see all pages."""
        return self._split(FULL, [(0, 0)] * len(self._caches))

    def _split(self, part: int, seen: Sequence[tuple[int, int]]) -> np.ndarray:
        """Split the pages that rows see into ranges for single kernel tasks, as ``split_rows`` returns them. ``part``
        is FULL or SLIDING; ``seen`` is an argument of ``split_rows``.
        """
        return split_rows(self._starts, seen, SPLIT)

    def _choose(self, layer: int, q: np.ndarray, scale: float, window: int | None) -> np.ndarray | None:
        """Returns the indices of the pages that the only row's query selects, [H, m], or None if the query sees all
        pages.
        """
        cache = self._caches[0]
        if not selects_pages(cache, layer, window):
            return None
        assert len(self._caches) == 1, "a sequence that selects has a batch of its own"
        chosen = choose_pages(cache, layer, torch.from_numpy(q[0] * np.float32(scale))).numpy()
        cache.table.touch(chosen)
        return chosen

    def _pages_at(self, layer: int, chosen: np.ndarray) -> BatchPages:
        return BatchPages(self._selected_parts, self._addresses[layer][chosen], self._kinds[FULL][chosen])

    @cached_property
    def _selected_parts(self) -> np.ndarray:
        """The ranges, for single kernel tasks (``split_rows``), of the pages that the only row selects. Every layer
        selects the same number of pages.
        """
        cache = self._caches[0]
        return split_rows(np.array([0, cache.keeper.pages_seen(cache.num_pages)]), [(0, 0)], SPLIT)

    def _add_shares(self, shares: np.ndarray, chosen: np.ndarray | None) -> None:
        """Add a layer's ``shares`` of attention to the attention mass of the pages. They are squared, as in
        ``attend_cache``. ``shares`` are [Hq, pages] or, if pages were ``chosen``, [Hq, as many or more].
        """
        if chosen is None:
            self._mass += np.square(shares, dtype=np.float64).sum(0)
            return
        squared = np.square(shares[:, : chosen.shape[1]], dtype=np.float64)
        np.add.at(self._mass, chosen, squared.reshape(len(chosen), -1, squared.shape[1]).sum(1))

    def _hidden(self, window: int | None) -> np.ndarray:
        """Returns the number of tokens of each open page that are before the window."""
        return self._none_hidden if window is None else np.maximum(0, self._filled + 1 - window)

    def _extra_scores(self, layer: int, q: np.ndarray, chosen: np.ndarray | None) -> np.ndarray | None:
        """Returns how much the bias of k_proj, which stored keys lack, adds to the scores of every row's scaled query q
        [n, Hq, D] for its pages or, if pages were ``chosen``, for those: [Hq, pages * 64] float32. None if keys are
        stored with the bias.
        """
        if not self._pool.unbiased(layer):
            return None
        bias = page_bias(self._caches, layer)
        return bias_scores(q, self._parts, bias) if chosen is None else bias_scores_at(q[0], chosen, bias)
