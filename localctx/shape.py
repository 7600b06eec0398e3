"""KVShape: what a model's cache looks like, layer by layer, and what a token of it costs. Integers only.

A *record* is one sealed page (64 tokens) of one layer; a *slot* is one page of all layers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

PAGE = 64  # tokens in a page: the group over which keys share a scale (KIVI) and the lanes of the CPU kernel
LAYOUT_VERSION = 1  # part of every fingerprint; raise it when the bytes of a record change their meaning
ALIGN = 64  # bytes; a record starts on a cache line
SLOT_ALIGN = 4096  # bytes; a slot starts on a disk block and a memory page


@dataclass(frozen=True)
class Format:
    """How a codec stores numbers: bits per element of K and of V, and whether they carry a scale and a zero."""

    name: str
    k_bits: int
    v_bits: int
    scaled: bool
    version: int = 1


FORMATS: Mapping[str, Format] = MappingProxyType(
    {f.name: f for f in (Format("f32", 32, 32, False), Format("bf16", 16, 16, False), Format("int8", 8, 8, True))}
)


@dataclass(frozen=True)
class LayerShape:
    """One layer's cache: ``kv_heads`` keys of ``k_dim`` and values of ``v_dim`` elements per token.

    ``window`` is the number of last tokens a sliding layer sees; None for a layer that sees all.
    """

    kv_heads: int
    k_dim: int
    v_dim: int
    kind: Literal["full", "sliding", "latent"] = "full"
    window: int | None = None


@dataclass(frozen=True)
class RecordLayout:
    """Byte offsets inside one record. K is [kv_heads, k_dim, 64], V is [kv_heads, 64, v_dim].

    With a scaled format each K channel and each V token has a float16 scale and zero: K's are [kv_heads, k_dim],
    V's are [kv_heads, 64]. ``total`` is the record's size in bytes.
    """

    k_codes: int
    k_scale: int
    k_zero: int
    v_codes: int
    v_scale: int
    v_zero: int
    total: int


def record_layout(layer: LayerShape, codec: str) -> RecordLayout:
    """Where the parts of a record of ``layer`` in ``codec`` begin."""
    f = FORMATS[codec]
    k_meta = 2 * layer.kv_heads * layer.k_dim if f.scaled else 0
    v_meta = 2 * layer.kv_heads * PAGE if f.scaled else 0
    sizes = (
        layer.kv_heads * layer.k_dim * PAGE * f.k_bits // 8,
        k_meta,
        k_meta,
        layer.kv_heads * layer.v_dim * PAGE * f.v_bits // 8,
        v_meta,
        v_meta,
    )
    starts = [0]
    for size in sizes:
        starts.append(_round_up(starts[-1] + size, ALIGN))
    return RecordLayout(*starts)


@dataclass(frozen=True)
class KVShape:
    """A model's cache geometry."""

    layers: tuple[LayerShape, ...]

    def record_bytes(self, layer: int, codec: str) -> int:
        """Bytes of one sealed page of one layer."""
        return record_layout(self.layers[layer], codec).total

    def slot_bytes(self, codec: str) -> int:
        """Bytes of one sealed page of all layers as it lies in a file."""
        return _round_up(self.page_bytes(codec), SLOT_ALIGN)

    def page_bytes(self, codec: str) -> int:
        """Bytes of one sealed page of all layers as it lies in memory."""
        return sum(record_layout(layer, codec).total for layer in self.layers)

    def bytes_per_token(self, codec: str) -> int:
        """Bytes one token costs in sealed pages: 2 x layers x kv_heads x head_dim x bytes, plus scales."""
        return -(-self.page_bytes(codec) // PAGE)

    def cache_bytes(self, codec: str, tokens: int) -> int:
        """Bytes of a whole cache of ``tokens`` tokens: its pages, and the open one at full precision."""
        return -(-tokens // PAGE) * self.page_bytes(codec) + self.page_bytes("f32")

    def to_json(self) -> list[list[object]]:
        """The shape as plain lists, one a layer: what the fingerprint and the store hold."""
        return [[s.kind, s.kv_heads, s.k_dim, s.v_dim, s.window] for s in self.layers]


def _round_up(n: int, unit: int) -> int:
    return -(-n // unit) * unit
