"""PageFormat: how the pages of one model in one codec lie in memory. A page is every layer's record, in order."""

import numpy as np

from localctx.kernels import decode_cpu
from localctx.kv.codecs import Codec, make_codec
from localctx.shape import FORMATS, SINK_PAGES, KVShape

ORDINARY, SINK = 0, 1  # the kinds of page: in the codec's format, or full precision at the beginning of a sequence


class PageFormat:
    """The records of both kinds of page. ``codecs`` [kinds][layers] encode and decode them, ``offsets``
    [kinds, layers + 1] int64 are where they begin in a page, in bytes, ``layouts`` describe them to the CPU kernels.
    """

    def __init__(self, shape: KVShape, codec: str) -> None:
        self.shape, self.codec, self.rotated = shape, codec, FORMATS[codec].hadamard
        self.codecs = [_codecs(shape, codec, self.rotated, sinks) for sinks in (False, True)]
        sizes = [[c.layout.total for c in codecs] for codecs in self.codecs]
        self.offsets = np.array([np.cumsum([0, *s]) for s in sizes], np.int64)
        self.layouts = [layout_of(*pair) for pair in zip(*self.codecs, strict=True)]

    def kind_at(self, index: int) -> int:
        """The kind of the ``index``-th page of a sequence: SINK at the beginning, where the codec quantizes."""
        return SINK if index < SINK_PAGES and FORMATS[self.codec].scaled else ORDINARY

    def page_bytes(self, kind: int) -> int:
        """Bytes of a page of this kind."""
        return int(self.offsets[kind, -1])


def _codecs(shape: KVShape, codec: str, rotated: bool, sinks: bool) -> list[Codec]:
    return [make_codec(f, s, rotated) for f, s in zip(shape.formats(codec, sinks), shape.layers, strict=True)]


def layout_of(ordinary: Codec, sink: Codec) -> decode_cpu.LayerLayout:
    """The records of both kinds of one layer, as the CPU kernels want them described."""
    rows = []
    for c in (ordinary, sink):
        y = c.layout
        offsets = (y.k_codes, y.k_scale, y.k_zero, y.v_codes, y.v_scale, y.v_zero)
        rows.append([c.format.k_kind, c.format.v_kind, *offsets])
    s = ordinary.shape
    return decode_cpu.LayerLayout(s.kv_heads, s.k_dim, s.v_dim, np.array(rows, np.int64))
