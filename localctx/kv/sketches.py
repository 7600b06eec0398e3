"""KeySketches: the keys of a sequence's sealed pages at two bits, by which a query selects pages."""

import numpy as np

from localctx.kernels.decode_layers_cpu import arguments_of
from localctx.kernels.sketch import Sketch, make_sketch
from localctx.kv.backend import PageAddresses
from localctx.kv.block_table import RUN, BlockTable


class KeySketches:
    """A sketch for each layer, made when it is first needed and extended as pages are sealed. Sketches stay on the
    device wherever the pages are.
    """

    def __init__(self, table: BlockTable) -> None:
        self._table = table
        self._by_layer: dict[int, Sketch] = {}
        self._arguments: tuple[int, np.ndarray] | None = None  # with the number of pages

    @property
    def nbytes(self) -> int:
        """Bytes of the sketches made so far, on the device."""
        return sum(sketch.nbytes for sketch in self._by_layer.values())

    def of_layer(self, layer: int) -> Sketch:
        """The sketch of a layer's pages; there must be some."""
        known = self._by_layer.get(layer)
        for start, stop in self._table.runs(layer, known.codes.shape[1] if known else 0, RUN):
            more = self._make(layer, start, stop)
            known = known.with_more(more) if known else more
        assert known, "there are no pages"
        self._by_layer[layer] = known
        return known

    def arguments(self, layers: range) -> np.ndarray:
        """The ``arguments_of`` the sketches of ``layers``: [layers, 13] int64. Every call asks for the same layers."""
        pages = len(self._table)
        if not self._arguments or self._arguments[0] != pages:
            sketches = [tuple(part.numpy() for part in self.of_layer(layer)) for layer in layers]
            self._arguments = pages, arguments_of(sketches)
        return self._arguments[1]

    def clear(self) -> None:
        """Forget all sketches: pages before the last have changed."""
        self._by_layer.clear()
        self._arguments = None

    def fork(self, table: BlockTable) -> "KeySketches":
        """The same sketches for a fork of the table."""
        twin = KeySketches(table)
        twin._by_layer = dict(self._by_layer)
        return twin

    def _make(self, layer: int, start: int, stop: int) -> Sketch:
        table, pool = self._table, self._table.pool
        if not pool.in_place and table.readable(slice(start, stop)):
            bases, kinds = table.for_kernels(layer)
            if made := pool.backend.make_sketch(layer, PageAddresses(bases[start:stop], kinds[start:stop])):
                return made
        codec = pool.codec_of(layer, int(table.kinds(pool.shape.parts[layer])[start]))
        return make_sketch(codec.stored_keys(table.records(layer, start, stop)))
