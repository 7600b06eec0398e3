"""PageFormat: the memory layout of one model's pages in one codec. A page has a record for each layer.

If some layers attend to everything and others to a sliding window, a page has two parts. FULL has the records of layers
that attend to everything, and SLIDING has the records of sliding-window layers. Otherwise all records are in FULL.
"""

import numpy as np

from localctx.kernels.cpu.decode import LayerLayout
from localctx.kv.codecs import Codec, make_codec
from localctx.shape import FORMATS, FULL, SINK_PAGES, SLIDING, KVShape

ORDINARY, SINK = 0, 1  # kinds of page: in the codec's format, or in full precision at the start of a sequence


class PageFormat:
    """Describes the memory layout of the two kinds of pages: ORDINARY pages in the codec's format, and SINK pages in
    full precision.

    ``codecs`` [kinds][layers] encode and decode records. ``parts`` [layers] says which part of a page (FULL or SLIDING)
    has the record of each layer. ``offsets`` and ``ends`` [kinds, layers] int64 are where a record begins and ends, in
    bytes from the start of its part. ``layouts`` [layers] describe the records to the CPU kernels.
    """

    def __init__(self, shape: KVShape, codec: str) -> None:
        self.shape, self.codec, self.rotated = shape, codec, FORMATS[codec].hadamard
        self.codecs = [_codecs(shape, codec, self.rotated, sinks) for sinks in (False, True)]
        sizes = np.array([[c.layout.total for c in codecs] for codecs in self.codecs], np.int64)
        self.parts = np.array(shape.parts, np.int64)
        own = [np.where(self.parts == part, sizes, 0) for part in (FULL, SLIDING)]
        self.ends = np.where(self.parts == FULL, *(np.cumsum(x, 1) for x in own))
        self.offsets = self.ends - sizes
        self._part_bytes = np.stack([x.sum(1) for x in own], 1)
        self.layouts = [layout_of(*pair) for pair in zip(*self.codecs, strict=True)]

    def layers_of(self, part: int) -> list[int]:
        """Returns the layers whose records are in one ``part`` (FULL or SLIDING) of a page."""
        return np.flatnonzero(self.parts == part).tolist()

    def kind_at(self, index: int) -> int:
        """Returns the kind of the ``index``-th page of a sequence. It is SINK (full precision) for the first pages if
        the codec quantizes, else ORDINARY.
        """
        return SINK if index < SINK_PAGES and FORMATS[self.codec].scaled else ORDINARY

    def page_bytes(self, kind: int, part: int = FULL) -> int:
        """Returns the size in bytes of one ``part`` (FULL or SLIDING) of a page of this ``kind`` (ORDINARY or SINK)."""
        return int(self._part_bytes[kind, part])

    def record_span(self, kind: int, layer: int) -> slice:
        """Returns where the record of ``layer`` begins and ends in a page of this ``kind`` (ORDINARY or SINK), in bytes
        from the start of the part that has it.
        """
        return slice(int(self.offsets[kind, layer]), int(self.ends[kind, layer]))


def _codecs(shape: KVShape, codec: str, rotated: bool, sinks: bool) -> list[Codec]:
    return [make_codec(f, s, rotated) for f, s in zip(shape.formats(codec, sinks), shape.layers, strict=True)]


def layout_of(ordinary: Codec, sink: Codec) -> LayerLayout:
    """Returns the layout of one layer's records for the CPU kernels. ``ordinary`` and ``sink`` are the codecs of the
    two kinds of pages.
    """
    rows = []
    for c in (ordinary, sink):
        y = c.layout
        offsets = (y.k_codes, y.k_scale, y.k_zero, y.v_codes, y.v_scale, y.v_zero)
        rows.append([c.format.k_kind, c.format.v_kind, *offsets])
    s = ordinary.shape
    return LayerLayout(s.kv_heads, s.k_dim, s.v_dim, np.array(rows, np.int64))
