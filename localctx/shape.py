"""KVShape: the geometry of a model's KV cache, layer by layer, and its size in bytes, computed with integers only.

A *record* is one sealed page (64 tokens) of one layer. A *slot* is one page of all layers. If some layers use a sliding
window and others attend to everything, a page has two *parts*. The part of the sliding layers is dropped once it lies
outside their window.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Literal

PAGE = 64  # tokens in a page: keys share a scale over them (KIVI), and CPU kernels use them as vector lanes
SINK_PAGES = 1  # first pages of a sequence, which hold the attention sinks: they stay bf16 (KVQuant)
LAYOUT_VERSION = 2  # part of every fingerprint; raise it when the meaning of a record's bytes changes
ARITHMETIC_VERSION = 3  # also; raise it when the native decoder's results change in their last digits
ALIGN = 64  # bytes; a record starts at a cache line
FLOAT8 = 256  # flag in the kernels' number formats: the 8 bits are a float (e4m3)
SLOT_ALIGN = 4096  # bytes; a slot starts at a disk block and a memory page
MIN_SNAPSHOT_STEP, MAX_SNAPSHOT_STEP = 4096, 16384  # tokens between snapshots of recurrent states and of windows
SLACK_PAGES = 4  # pages kept before a sliding layer's window, so that a few tokens can be trimmed
FULL, SLIDING = 0, 1  # parts of a page: records of full-attention layers, and of sliding-window layers

LayerKind = Literal["full", "sliding", "latent"]
StateKind = Literal["convolution", "recurrent"]
SnapshotKind = Literal["states", "sliding"]
"""Snapshots stored beside some pages, so that a sequence can resume there: states, or a page's sliding part."""


@dataclass(frozen=True)
class Format:
    """The number format of a codec: the bits per element of K (``k_bits``) and of V (``v_bits``). Formats below 16 bits
    also store scales and zero points.

    ``hadamard``: K and V are first multiplied by a Hadamard matrix, which spreads outlier channels. ``edges``: that
    many first layers and last layers are stored as int8 instead. ``float8``: the 8 bits are a float (e4m3), not an
    integer.
    """

    name: str
    k_bits: int
    v_bits: int
    hadamard: bool = False
    edges: int = 0
    version: int = 1
    float8: bool = False

    @property
    def scaled(self) -> bool:
        """True if the format is quantized. Sink pages then stay bf16."""
        return self.k_bits < 16

    @property
    def k_kind(self) -> int:
        """The number format of the keys (K) as the kernels encode it: the bits, plus FLOAT8 if
        they are 8-bit floats.
        """
        return self.k_bits + FLOAT8 * self.float8

    @property
    def v_kind(self) -> int:
        """The number format of the values (V), encoded like ``k_kind``."""
        return self.v_bits + FLOAT8 * self.float8

    @property
    def on_triton(self) -> bool:
        """True if the Triton kernels support this format."""
        return self.k_bits <= 16 and not self.float8


_PLAIN = (Format("f32", 32, 32), Format("bf16", 16, 16))
_QUANTIZED = (
    Format("int8", 8, 8),
    Format("k8v4", 8, 4),
    Format("int4", 4, 4, edges=2),
    Format("int2", 2, 2, edges=2),
)
_FLOAT8 = (Format("fp8", 8, 8, float8=True),)
_ROTATED = (replace(f, name=f"{f.name}+hadamard", hadamard=True) for f in _QUANTIZED)
FORMATS: Mapping[str, Format] = MappingProxyType({f.name: f for f in (*_PLAIN, *_QUANTIZED, *_ROTATED, *_FLOAT8)})


@dataclass(frozen=True)
class LayerShape:
    """The shape of one layer's KV cache: for each token and each of ``kv_heads`` heads, a key of ``k_dim`` and a value
    of ``v_dim`` elements.

    ``window`` is the number of last tokens that a sliding layer attends to, or None for a layer that attends to all
    tokens.
    """

    kv_heads: int
    k_dim: int
    v_dim: int
    kind: LayerKind = "full"
    window: int | None = None


@dataclass(frozen=True)
class StateShape:
    """The shape ``size`` of a tensor that the model's layer ``layer`` keeps as its fixed-size state.

    ``kind`` is ``convolution`` (the last inputs of a convolution) or ``recurrent`` (the state of a recurrence, as in
    Mamba or the delta rule). If a layer has several states of a kind, ``index`` numbers them. ``bits`` is the size of
    an element, or None if states have the model's precision.
    """

    layer: int
    kind: StateKind
    index: int
    size: tuple[int, ...]
    bits: int | None = None

    def nbytes(self, itemsize: int) -> int:
        """Returns the bytes of the tensor. ``itemsize`` is the size in bytes of an element in the model's precision."""
        return prod(self.size) * (self.bits // 8 if self.bits else itemsize)


@dataclass(frozen=True)
class RecordLayout:
    """The byte offsets of the parts inside a record. K is [kv_heads, k_dim, 64], V is [kv_heads, 64, v_dim].

    A quantized format has a float16 scale and zero point for each channel of K, [kv_heads, k_dim], and for each token
    of V, [kv_heads, 64]. ``total`` is the size of the record in bytes.
    """

    k_codes: int
    k_scale: int
    k_zero: int
    v_codes: int
    v_scale: int
    v_zero: int
    total: int


def record_layout(layer: LayerShape, codec: str) -> RecordLayout:
    """Returns the byte offsets of the parts inside a record of ``layer`` in the format ``codec``."""
    f = FORMATS[codec]
    k_meta = 2 * layer.kv_heads * layer.k_dim if f.k_bits < 16 else 0
    v_meta = 2 * layer.kv_heads * PAGE if f.v_bits < 16 else 0
    k_codes, v_codes = (
        layer.kv_heads * n * PAGE * b // 8 for n, b in ((layer.k_dim, f.k_bits), (layer.v_dim, f.v_bits))
    )
    sizes = (k_codes, k_meta, k_meta, v_codes, v_meta, v_meta)
    starts = [0]
    for size in sizes:
        starts.append(_round_up(starts[-1] + size, ALIGN))
    return RecordLayout(*starts)


@dataclass(frozen=True)
class KVShape:
    """The geometry of a model's cache: one LayerShape for each layer with pages, and the fixed-size ``states`` of other
    layers.
    """

    layers: tuple[LayerShape, ...]
    states: tuple[StateShape, ...] = ()

    @cached_property
    def window(self) -> int | None:
        """The largest window of the sliding layers, if pages have two parts. None if no layer
        slides, or all layers do.
        """
        windows = [layer.window for layer in self.layers]
        return max(filter(None, windows)) if any(windows) and not all(windows) else None

    @property
    def snapshots(self) -> tuple[SnapshotKind, ...]:
        """The kinds of snapshots that are stored beside some pages. Empty if a sequence can resume after any page
        without one.
        """
        kinds: dict[SnapshotKind, bool] = {"states": bool(self.states), "sliding": self.window is not None}
        return tuple(kind for kind, needed in kinds.items() if needed)

    @cached_property
    def parts(self) -> tuple[int, ...]:
        """For each layer, the part of a page that has the layer's record: FULL or SLIDING."""
        return tuple(SLIDING if self.window and layer.window else FULL for layer in self.layers)

    def pages_seen(self, length: int) -> range:
        """Returns the indices of the whole pages that sliding layers can still see after ``length`` tokens. Empty if
        pages have only one part.
        """
        return range(max(0, length + 1 - self.window) // PAGE, length // PAGE) if self.window else range(0)

    def formats(self, codec: str, sinks: bool = False) -> list[str]:
        """Returns the format of each layer's record in a page: int8 in the edge layers of the codec, else the codec's
        own format. A sink page (``sinks``) of a quantized codec is bf16 in all layers.
        """
        f, n = FORMATS[codec], len(self.layers)
        plain, wide = ("+hadamard" if f.hadamard else ""), f.edges if 2 * f.edges < n else 0
        if sinks and f.scaled:
            return ["bf16"] * n
        return [codec if wide <= i < n - wide else "int8" + plain for i in range(n)]

    def record_bytes(self, codec: str, sinks: bool = False) -> list[int]:
        """Returns the bytes of each layer's record in one page."""
        pairs = zip(self.layers, self.formats(codec, sinks), strict=True)
        return [record_layout(layer, form).total for layer, form in pairs]

    def page_bytes(self, codec: str, sinks: bool = False) -> int:
        """Returns the bytes of one sealed page in all layers."""
        return sum(self.record_bytes(codec, sinks))

    def part_bytes(self, codec: str, part: int, sinks: bool = False) -> int:
        """Returns the bytes of one ``part`` of a sealed page, FULL or SLIDING."""
        records = zip(self.record_bytes(codec, sinks), self.parts, strict=True)
        return sum(nbytes for nbytes, of in records if of == part)

    def slot_bytes(self, codec: str) -> int:
        """Returns the bytes of one slot of a page file. A sink page may take several slots."""
        return _round_up(self.part_bytes(codec, FULL), SLOT_ALIGN)

    def bytes_per_token(self, codec: str) -> int:
        """Returns the bytes that one more token takes: 2 x layers x kv_heads x head_dim x bytes per element, plus
        scales.
        """
        return -(-self.page_bytes(codec) // PAGE)

    def tail_bytes(self, itemsize: int = 4) -> int:
        """Returns the bytes of a sequence's open page, which is not quantized and has
        ``itemsize`` bytes per element.
        """
        return sum(s.kv_heads * (s.k_dim + s.v_dim) for s in self.layers) * PAGE * itemsize

    def state_bytes(self, itemsize: int = 4) -> int:
        """Returns the bytes of one snapshot of all states. ``itemsize`` is the size in bytes of an element in the
        model's precision.
        """
        return sum(state.nbytes(itemsize) for state in self.states)

    @property
    def recurrent(self) -> bool:
        """True if a layer has a recurrent state. That state is known only at the end of a pass, unlike convolution
        inputs.
        """
        return any(state.kind == "recurrent" for state in self.states)

    def snapshot_step(self, codec: str, itemsize: int = 4) -> int:
        """Returns the number of tokens between two snapshots, a multiple of 64. It is 64 if there are only convolution
        inputs, which are small. Otherwise it is 4,096 to 16,384, so that snapshots take at most half as many bytes as
        the pages, if possible.
        """
        if not self.recurrent:
            return PAGE
        return _snapshot_step(self.state_bytes(itemsize), self.part_bytes(codec, FULL))

    def window_step(self, codec: str) -> int:
        """Returns the number of tokens between two snapshots of the pages in the sliding layers' windows. See
        ``snapshot_step``.
        """
        assert self.window
        pages = -(-(self.window - 1) // PAGE)
        return _snapshot_step(pages * self.part_bytes(codec, SLIDING), self.part_bytes(codec, FULL))

    def sealed_bytes(self, codec: str, tokens: int, chunk: int = 0) -> int:
        """Returns the bytes of the sealed pages of a sequence of ``tokens``, the last ``chunk`` of which were computed
        in one step. Pages that sliding layers no longer see have only their full part.
        """
        pages, seen = tokens // PAGE, max(0, self.pages_seen(max(0, tokens - chunk)).start - SLACK_PAGES)
        return self._bytes_of_pages(codec, FULL, 0, pages) + self._bytes_of_pages(codec, SLIDING, seen, pages)

    def _bytes_of_pages(self, codec: str, part: int, first: int, stop: int) -> int:
        """Returns the bytes of one ``part`` of the pages ``first`` to ``stop`` (not included)."""
        sinks = max(0, min(stop, SINK_PAGES) - first)
        return sinks * self.part_bytes(codec, part, True) + (stop - first - sinks) * self.part_bytes(codec, part)

    def cache_bytes(self, codec: str, tokens: int, itemsize: int = 4, chunk: int = 0) -> int:
        """Returns the bytes of the cache of a sequence of ``tokens``, the last ``chunk`` of which were computed in one
        step. The cache has sealed pages, the open page, and three copies of the states: after the last page, before a
        pass and after it.
        """
        return self.sealed_bytes(codec, tokens, chunk) + self.tail_bytes(itemsize) + 3 * self.state_bytes(itemsize)

    def to_json(self) -> list[list[object]]:
        """Returns the shape as plain lists, for fingerprints and the store: one list for each layer and each state."""
        layers: list[list[object]] = [[s.kind, s.kv_heads, s.k_dim, s.v_dim, s.window] for s in self.layers]
        states: list[list[object]] = [[s.kind, s.layer, s.index, [*s.size], s.bits] for s in self.states]
        parts: list[list[object]] = [["parts", *self.parts]] if self.window else []
        return layers + states + parts


def _snapshot_step(snapshot: int, page: int) -> int:
    """Returns the number of tokens between snapshots of ``snapshot`` bytes, if the full part of a page has ``page``
    bytes.
    """
    return _round_up(min(max(2 * snapshot * PAGE // page, MIN_SNAPSHOT_STEP), MAX_SNAPSHOT_STEP), PAGE)


def _round_up(n: int, unit: int) -> int:
    return -(-n // unit) * unit
