"""TritonDecodeBatch: a decode batch by a GPU's kernels, which a CUDA graph may capture. Imported where these run."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from torch import Tensor
from torch.nn.functional import pad

from localctx.kernels import attention_triton
from localctx.kv.cache import Cache
from localctx.kv.decode_batch import DecodeBatch
from localctx.kv.graph_inputs import CapturableBatch, GraphInputs, pad_to_power_of_two
from localctx.kv.row_parts import split_rows_evenly
from localctx.kv.triton_backend import TritonBackend
from localctx.shape import PAGE


class TritonDecodeBatch(DecodeBatch):
    """A batch whose pages are in a GPU's memory. Kernels read everything that differs between batches from
    ``graph_inputs``.
    """

    def __init__(self, sequences: Sequence[tuple[Cache, int]]) -> None:
        super().__init__(sequences)
        backend = self._pool.backend
        assert isinstance(backend, TritonBackend)
        self._layouts: list[attention_triton.TritonLayerLayout] = backend.layouts
        self._inputs: GraphInputs | None = None

    @property
    def graph_inputs(self) -> GraphInputs:
        """``arrays`` on the device: in the graph inputs that were set, else in new ones of this batch alone."""
        if self._inputs is None:
            self._inputs = GraphInputs(self.arrays, self._pool.device)
        return self._inputs

    @graph_inputs.setter
    def graph_inputs(self, inputs: GraphInputs) -> None:
        self._inputs = inputs

    def capturable(self) -> CapturableBatch | None:
        """See ``DecodeBatch``. None where a page is filled, or attention reads something in the processor's memory."""
        layers = range(len(self._pool.shape.layers))
        unique = (self._filled == PAGE - 1).any() or any(self._pool.unbiased(layer) for layer in layers)
        return None if unique else self

    @property
    def graph_key(self) -> object:
        """See ``CapturableBatch``."""
        return self._pool.codec, len(self._caches), self._recording, tuple(self._views[0])

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """See ``CapturableBatch``. ``mass`` is an output: what pages received."""
        arrays = {"mass": pad_to_power_of_two(np.zeros_like(self._mass))}
        for part in sorted({*self._pool.shape.parts}):
            arrays[f"bases {part}"] = pad_to_power_of_two(self._bases[part])
            arrays[f"kinds {part}"] = pad_to_power_of_two(self._kinds[part])
        for i, (parts, hidden) in enumerate(self._views[1]):
            bounds = attention_triton.bounds_of(parts, len(self._caches))
            arrays |= {f"parts {i}": pad_to_power_of_two(parts), f"bounds {i}": bounds, f"hidden {i}": hidden}
        return arrays | {"open pages": self._open_pages, "filled": self._filled}

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
        """See ``DecodeBatch``."""
        inputs, i, part = self.graph_inputs, self._views[0][layer], self._pool.shape.parts[layer]
        assert window == self._pool.shape.layers[layer].window
        pages = attention_triton.TritonPages(
            inputs[f"parts {i}"], inputs[f"bounds {i}"], inputs[f"bases {part}"], inputs[f"kinds {part}"]
        )
        open_pages = attention_triton.TritonOpenPages(
            inputs["open pages"][layer], inputs["filled"], inputs[f"hidden {i}"]
        )
        queries, keys, values = (x.transpose(0, 1) for x in (q, k, v))
        extra = self._extra_scores(layer, queries.float(), scale)
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
            inputs["mass"].add_(shares.double().square().sum(0))
        if not shared:
            self._seal(layer, k, v)
        return out.transpose(0, 1)

    def report_attention(self) -> None:
        """See ``DecodeBatch``."""
        if not self._recording:
            return
        self._mass = self.graph_inputs["mass"][: len(self._mass)].cpu().numpy()
        super().report_attention()

    def _split(self, part: int, seen: Sequence[tuple[int, int]]) -> np.ndarray:
        """See ``DecodeBatch``."""
        wanted = attention_triton.parts_wanted(self._layouts[0].heads)
        return split_rows_evenly(self._starts, seen, wanted, self._kinds[part])

    @cached_property
    def _views(self) -> tuple[list[int], list[tuple[np.ndarray, np.ndarray]]]:
        """The index of each layer's view, and the views, most of which layers share. A view is the parts of the pages
        that a layer attends to, and how many tokens of each open page are hidden.
        """
        which, views = list[int](), dict[bytes, tuple[int, tuple[np.ndarray, np.ndarray]]]()
        for layer, shape in enumerate(self._pool.shape.layers):
            view = self._parts_seen(layer, shape.window), self._hidden(shape.window)
            which.append(views.setdefault(view[0].tobytes() + view[1].tobytes(), (len(views), view))[0])
        return which, [view for _, view in views.values()]
