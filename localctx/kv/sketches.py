"""KeySketches: two-bit copies of the keys of a sequence's sealed pages, with which a query selects pages."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from localctx.kernels.cpu.decode_layers import arguments_of
from localctx.kernels.cpu.key_bias import NO_BIAS, KeyBias
from localctx.kernels.cpu.sketch import sketch_pages
from localctx.kernels.sketch import KeyRanges, Sketch, make_sketch
from localctx.kv.backends.backend import PageAddresses
from localctx.kv.block_table import ALL, RUN, BlockTable
from localctx.kv.page_format import ORDINARY


class _SketchRoom:
    """Preallocated memory for the sketches of ``pages`` pages, with the shape of the sketch ``like``. Written sketches
    never change, so forks of a sequence share the memory. Only the fork that is first to seal the next page continues
    to write here.
    """

    def __init__(self, like: Sketch, pages: int) -> None:
        self._whole = Sketch(*(part.new_empty(len(part), pages, *part.shape[2:]) for part in like))
        self._written = 0

    @property
    def nbytes(self) -> int:
        return self._whole.nbytes

    @property
    def place(self) -> list[int]:
        """The addresses of the codes, scales and zeros for kernels, and the number of pages that the memory holds."""
        return [*(part.data_ptr() for part in self._whole), self._whole.codes.shape[1]]

    def takes(self, first: int, stop: int) -> bool:
        """Returns True if the pages ``first..stop`` can be written."""
        return first == self._written and stop <= self._whole.codes.shape[1]

    @torch.inference_mode()  # tensors made in inference mode may only be written in it
    def write(self, more: Sketch) -> Sketch:
        """Append ``more`` and return everything written."""
        first, self._written = self._written, self._written + more.codes.shape[1]
        for room, part in zip(self._whole, more, strict=True):
            room[:, first : self._written] = part
        return Sketch(*(room[:, : self._written] for room in self._whole))


class KeySketches:
    """The sketches of one sequence: copies of its sealed keys at two bits, one sketch for each layer. A sketch is made
    when first needed, and extended as pages are sealed. Sketches stay on the device even if the pages leave it. On a
    GPU, memory for more pages is reserved, so that a sketch is not copied for every new page.
    """

    def __init__(self, table: BlockTable) -> None:
        self._table = table
        self._by_layer: dict[int, Sketch] = {}
        self._ranges: dict[int, KeyRanges] = {}
        self._rooms: dict[int, _SketchRoom] = {}  # by layer, for kernels of a GPU
        self._arguments: tuple[int, np.ndarray] | None = None  # with the number of pages

    @property
    def nbytes(self) -> int:
        """The size in bytes of the sketches and ranges made so far, on the device."""
        made = *(self._rooms or self._by_layer).values(), *self._ranges.values()
        return sum(part.nbytes for part in made)

    def of_layer(self, layer: int) -> Sketch:
        """Returns the sketch of all sealed pages in one layer. There must be at least one page."""
        known, table = self._by_layer.get(layer), self._table
        first, most = known.codes.shape[1] if known else 0, len(table) if table.pool.in_place else RUN
        for start, stop in table.runs(layer, first, most, mixed=table.pool.in_place):
            more, ranges = self._make(layer, start, stop)
            known = self._by_layer[layer] = self._joined(layer, known, more, stop)
            if ranges:
                before = self._ranges.get(layer)
                self._ranges[layer] = before.with_more(ranges) if before else ranges
        assert known, "there are no pages"
        return known

    def ranges(self, layer: int) -> KeyRanges:
        """Returns the ranges of all sealed keys in one layer, by which ``choose`` bounds scores on a CPU. They include
        the bias of k_proj that stored keys lack. There must be at least one page.
        """
        sketch = self.of_layer(layer)
        return self._ranges[layer] if self._table.pool.unbiased(layer) else KeyRanges(*sketch[1:])

    def arguments(self, layers: range) -> np.ndarray:
        """Returns ``arguments_of`` (numbers and addresses for compiled code) for the sketches and ranges of ``layers``:
        [layers, 21] int64. Every call must ask for the same layers.
        """

        def arrays(layer: int) -> tuple[np.ndarray, ...]:
            return tuple(part.numpy() for part in (*self.of_layer(layer), *self.ranges(layer)))

        return self._once(lambda: arguments_of([arrays(layer) for layer in layers]))

    def places(self, layers: Sequence[int]) -> np.ndarray:
        """Returns where the sketches of ``layers`` are, for GPU kernels: [layers, 4] int64, with the addresses of
        codes, scales and zeros, and the number of pages for which memory is reserved. Every call must ask for the same
        layers.
        """

        def place(layer: int) -> list[int]:
            self.of_layer(layer)
            return self._rooms[layer].place

        return self._once(lambda: np.array([place(layer) for layer in layers], np.int64))

    def clear(self) -> None:
        """Drop all sketches. Call this after sealed pages have changed."""
        self._by_layer.clear()
        self._ranges.clear()
        self._rooms.clear()
        self._arguments = None

    def fork(self, table: BlockTable) -> "KeySketches":
        """Returns the same sketches for a forked sequence with the block table ``table``."""
        twin = KeySketches(table)
        twin._by_layer, twin._ranges, twin._rooms = dict(self._by_layer), dict(self._ranges), dict(self._rooms)
        return twin

    def _once(self, make: Callable[[], np.ndarray]) -> np.ndarray:
        """Returns the result of ``make``, which is called again only after the number of pages has changed."""
        pages = len(self._table)
        if not self._arguments or self._arguments[0] != pages:
            self._arguments = pages, make()
        return self._arguments[1]

    def _joined(self, layer: int, known: Sketch | None, more: Sketch, pages: int) -> Sketch:
        """Returns the sketch of a layer's first ``pages`` pages: ``known`` followed by ``more``."""
        if not self._table.pool.backend.best_scores:
            return known.with_more(more) if known else more
        room = self._rooms.get(layer)
        if not room or not room.takes(pages - more.codes.shape[1], pages):
            room = self._rooms[layer] = _SketchRoom(more, 1 << (len(self._table) - 1).bit_length())
            if known:
                room.write(known)
        return room.write(more)

    def _make(self, layer: int, start: int, stop: int) -> tuple[Sketch, KeyRanges | None]:
        """Returns the sketch of the pages ``start..stop``. On a CPU also returns the ranges of keys that are stored
        without the bias of k_proj.
        """
        table, pool = self._table, self._table.pool
        if pool.device.type == "cpu" and not pool.backend.best_scores:
            return self._make_on_cpu(layer, start, stop)
        if not pool.in_place and table.readable(slice(start, stop)):
            bases, kinds, _ = table.for_kernels(layer)
            if made := pool.backend.make_sketch(layer, PageAddresses(bases[start:stop], kinds[start:stop])):
                return made, None
        codec = pool.codec_of(layer, int(table.kinds(pool.shape.parts[layer])[start]))
        return make_sketch(codec.stored_keys(table.records(layer, start, stop))), None

    def _make_on_cpu(self, layer: int, start: int, stop: int) -> tuple[Sketch, KeyRanges | None]:
        """Compute ``_make`` with a kernel."""
        table, pool, bias = self._table, self._table.pool, NO_BIAS
        addresses, kinds, _held = self._records(layer, start, stop)
        if pool.unbiased(layer):
            bias = missing_bias(table, [layer], slice(start, stop))
            bias = bias._replace(starts=bias.starts[0])
        return sketch_pages(addresses, kinds, pool.format.layouts[layer], bias, pool.format.rotated)

    def _records(self, layer: int, start: int, stop: int) -> tuple[np.ndarray, np.ndarray, Tensor | None]:
        """Returns the addresses and kinds of one layer's records of the pages ``start..stop``, where they are. If the
        pool does not read in place, also fetches them, and returns the tensor that holds them.
        """
        table, pool = self._table, self._table.pool
        part = pool.shape.parts[layer]
        bases, kinds = table.bases(part)[start:stop], table.kinds(part)[start:stop]
        assert bases.all(), "no layer sees these pages any longer"
        if pool.in_place:
            return bases + pool.format.offsets[kinds, layer], kinds, None
        fetched = table.records(layer, start, stop)
        return fetched.data_ptr() + np.arange(stop - start) * fetched.shape[1], kinds, fetched


def missing_bias(table: BlockTable, layers: Sequence[int], indices: slice = ALL) -> KeyBias:
    """Returns the bias of k_proj that the stored keys of the pages at ``indices`` lack in ``layers``, with
    ``KeyBias.starts`` [layers, H, pages, D]. It is 0 for sink pages, whose keys include the bias.
    """
    pool = table.pool
    assert pool.rope
    starts = np.stack([table.positions(layer)[indices] for layer in layers])
    bias = pool.rope.key_bias(layers, torch.from_numpy(starts))
    for own, layer in zip(bias.starts, layers, strict=True):
        own[:, table.kinds(pool.shape.parts[layer])[indices] != ORDINARY] = 0
    return bias
