"""TritonDecodeBatch: a decode batch that GPU kernels compute, and that a CUDA graph may capture. This module is
imported only where these kernels run.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from torch import Tensor, cat
from torch.nn.functional import pad

from localctx.kernels.triton import attention as attention_triton
from localctx.kernels.triton import rotation as rotation_triton
from localctx.kernels.triton import selection as selection_triton
from localctx.kv.backends.triton_backend import TritonBackend
from localctx.kv.batches.decode_batch import DecodeBatch
from localctx.kv.batches.graph_inputs import CapturableBatch, GraphInputs, pad_to_power_of_two
from localctx.kv.cache import Cache
from localctx.kv.dispatch import selects_pages
from localctx.kv.page_format import ORDINARY
from localctx.kv.row_parts import split_rows_evenly
from localctx.kv.selection import bias_scores
from localctx.shape import FULL, PAGE, SINK_PAGES


class TritonDecodeBatch(DecodeBatch):
    """A decode batch whose pages are in GPU memory. Its kernels read every value that differs between batches from
    ``graph_inputs``.
    """

    def __init__(self, sequences: Sequence[tuple[Cache, int]]) -> None:
        super().__init__(sequences)
        backend = self._pool.backend
        assert isinstance(backend, TritonBackend)
        self._layouts: list[attention_triton.TritonLayerLayout] = backend.layouts
        self._inputs: GraphInputs | None = None
        if self._caches[0].selects_pages():
            self._caches[0].table.touch()  # only the device knows which of them are selected

    @property
    def graph_inputs(self) -> GraphInputs:
        """The device copy of ``arrays`` that the kernels read. It is the copy of a captured CUDA graph if that was
        assigned here, otherwise a copy for this batch alone.
        """
        if self._inputs is None:
            self._inputs = GraphInputs(self.arrays, self._pool.device)
        return self._inputs

    @graph_inputs.setter
    def graph_inputs(self, inputs: GraphInputs) -> None:
        self._inputs = inputs

    def capturable(self) -> CapturableBatch | None:
        """Returns this batch if a CUDA graph can capture its work. Returns None if a page is filled in this step, or if
        attention reads CPU memory.
        """
        unique = (self._filled == PAGE - 1).any() or self._pool.has_unbiased
        return None if unique else self

    @property
    def graph_key(self) -> object:
        return self._pool.codec, len(self._caches), self._recording, tuple(self._views[0])

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """The inputs of the kernels by name. ``mass`` is an output: the attention mass that each page received. If the
        batch is one sequence that selects pages, ``sketches`` has the addresses of the sequence's sketches (keys at two
        bits), and ``numbers`` the number of its pages and the number of pages to choose.
        """
        arrays = {"mass": pad_to_power_of_two(np.zeros_like(self._mass))}
        for part in sorted({*self._pool.shape.parts}):
            arrays[f"bases {part}"] = pad_to_power_of_two(self._bases[part])
            arrays[f"kinds {part}"] = pad_to_power_of_two(self._kinds[part])
        for i, (parts, hidden) in enumerate(self._views[1]):
            bounds = attention_triton.bounds_of(parts, len(self._caches))
            arrays |= {f"parts {i}": pad_to_power_of_two(parts), f"bounds {i}": bounds, f"hidden {i}": hidden}
        return arrays | self._selection_arrays | {"open pages": self._open_pages, "filled": self._filled}

    @cached_property
    def _selection_arrays(self) -> dict[str, np.ndarray]:
        if not self._selecting:
            return {}
        cache = self._caches[0]
        assert len(self._caches) == 1, "a sequence that selects has a batch of its own"
        numbers = np.array([cache.num_pages, cache.keeper.pages_seen(cache.num_pages)])
        return {"numbers": numbers, "sketches": cache.sketches.places([*self._selecting])}

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
        inputs, i = self.graph_inputs, self._views[0][layer]
        assert window == self._pool.shape.layers[layer].window
        open_pages = attention_triton.TritonOpenPages(
            inputs["open pages"][layer], inputs["filled"], inputs[f"hidden {i}"]
        )
        queries, keys, values = (x.transpose(0, 1) for x in (q, k, v))
        pages, indices = self._pages_seen(layer, queries, scale)
        extra = self._scores_of_bias(layer, queries.float() * scale)
        out, shares = attention_triton.attend_rows(
            queries,
            keys,
            values,
            pages,
            open_pages,
            self._layouts[layer],
            scale,
            softcap=softcap,
            sinks=sinks,
            extra=None if extra is None else pad(extra, (0, PAGE * len(inputs["mass"]) - extra.shape[1])),
            rotated=self._pool.format.rotated,
            masses=self._records(layer, window),
        )
        if shares is not None:
            inputs["mass"].add_(self._by_page(shares.double().square(), indices))
        if not shared:
            self._seal(layer, k, v)
        return out.transpose(0, 1)

    def _scores_of_bias(self, layer: int, q: Tensor) -> Tensor | None:
        """Returns ``bias_scores`` of every row's scaled query q [n, Hq, D] for its pages: [Hq, pages * 64]. None if
        keys are stored with their bias.
        """
        if not self._pool.unbiased(layer):
            return None
        return cat([bias_scores(cache, layer, q[i]) for i, cache in enumerate(self._caches)], 1)

    def _pages_seen(self, layer: int, q: Tensor, scale: float) -> tuple[attention_triton.TritonPages, Tensor | None]:
        """Returns the pages that the rows q [n, Hq, D] attend to, and the indices [H, m] of the pages that the only row
        selects, padded with 0. The indices are None if rows see all pages.
        """
        inputs, i, part = self.graph_inputs, self._views[0][layer], self._pool.shape.parts[layer]
        parts, bounds = inputs[f"parts {i}"], inputs[f"bounds {i}"]
        if layer not in self._selecting:
            return attention_triton.TritonPages(parts, bounds, inputs[f"bases {part}"], inputs[f"kinds {part}"]), None
        chosen = self._chosen_pages(layer, q[0], scale)
        return attention_triton.TritonPages(parts, bounds, chosen.addresses, chosen.formats), chosen.indices

    def _chosen_pages(self, layer: int, q: Tensor, scale: float) -> selection_triton.ChosenPages:
        """Returns the pages that the only row q [Hq, D] selects, in arrays with room for all pages."""
        inputs = self.graph_inputs
        sketch = selection_triton.TritonSketch(inputs["sketches"][self._selecting[layer]], inputs["numbers"])
        grouped = (rotation_triton.rotate(q) if self._pool.format.rotated else q).unflatten(
            0, (self._layouts[layer].heads, -1)
        )
        bases, kinds = inputs[f"bases {FULL}"], inputs[f"kinds {FULL}"]
        return selection_triton.choose(grouped, scale, sketch, bases, kinds, SINK_PAGES, len(bases))

    def _by_page(self, squared: Tensor, indices: Tensor | None) -> Tensor:
        """Returns for each page the sum of ``squared`` [Hq, m], the squared attention that query heads gave to the
        pages at ``indices`` [H, m] (None: to all pages). The order of summation is always the same.
        """
        if indices is None:
            return squared.sum(0)
        by_head = squared.unflatten(0, (len(indices), -1)).sum(1)
        spread = by_head.new_zeros(len(indices), len(self.graph_inputs["mass"]))
        return spread.scatter_add_(1, indices, by_head).sum(0)

    def report_attention(self) -> None:
        if not self._recording:
            return
        self._mass = self.graph_inputs["mass"][: len(self._mass)].cpu().numpy()
        super().report_attention()

    def _split(self, part: int, seen: Sequence[tuple[int, int]]) -> np.ndarray:
        wanted = attention_triton.parts_wanted(self._layouts[0])
        return split_rows_evenly(self._starts, seen, wanted, self._kinds[part])

    @cached_property
    def _selected_parts(self) -> np.ndarray:
        """The ranges, for single kernel tasks, of the pages that the only row selects. Sink pages are always selected;
        all other pages are ORDINARY.
        """
        kinds, count = self._kinds[FULL], self._caches[0].keeper.pages_seen(len(self._kinds[FULL]))
        assert (kinds[SINK_PAGES:] == ORDINARY).all()
        wanted = attention_triton.parts_wanted(self._layouts[0])
        return split_rows_evenly(np.array([0, count]), [(0, 0)], wanted, kinds[:count])

    @cached_property
    def _selecting(self) -> dict[int, int]:
        """Maps each layer in which the only sequence selects pages to its index among these layers, empty if there are
        none. A sequence that selects has its own batch (``batch_key``).
        """
        layers = [i for i, x in enumerate(self._pool.shape.layers) if selects_pages(self._caches[0], i, x.window)]
        return {layer: number for number, layer in enumerate(layers)}

    @cached_property
    def _views(self) -> tuple[list[int], list[tuple[np.ndarray, np.ndarray]]]:
        """The index of each layer's view, and the list of views; most layers share one. A view has the ranges of pages
        that a layer attends to, and the number of hidden tokens in each open page.
        """
        which, views = list[int](), dict[bytes, tuple[int, tuple[np.ndarray, np.ndarray]]]()
        for layer, shape in enumerate(self._pool.shape.layers):
            parts = self._selected_parts if layer in self._selecting else self._parts_seen(layer, shape.window)
            view = parts, self._hidden(shape.window)
            which.append(views.setdefault(view[0].tobytes() + view[1].tobytes(), (len(views), view))[0])
        return which, [view for _, view in views.values()]
