"""The header of a GGUF file, walked inside the file's own bounds before any library sees the file.

The file is hostile until then: a 49-byte one can keep a reader busy for ever, and a config with a billion layers is
four bytes long. Whatever ``read_header`` lets through is no larger, in counts and in sizes, than the file it is in.
"""

import mmap
import struct
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from localctx.errors import ModelError

REMEDY = "fetch the file again, or give a folder with config.json and *.safetensors"

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MOST_ENTRIES = 1 << 16  # metadata keys, or tensors
_MOST_ITEMS = 1 << 22  # array items in a whole header; a vocabulary of 2**18 with scores, types and merges has 2**20


@dataclass(frozen=True)
class GgufTensor:
    """Where a tensor lies: its dimensions, its ggml type, the place of its first byte in the file."""

    dims: tuple[int, ...]
    kind: int
    start: int


@dataclass(frozen=True)
class Header:
    """What a GGUF says of itself: its metadata (of an array, only the length) and where its tensors lie."""

    meta: dict[str, Any]
    tensors: dict[str, GgufTensor]

    def get(self, name: str, default: Any = None) -> Any:
        """The metadata ``name`` of this file's architecture."""
        return self.meta.get(f"{self.meta['general.architecture']}.{name}", default)

    @property
    def weights(self) -> int:
        """How many numbers the tensors hold; tables of RoPE factors are not weights."""
        return sum(prod(tensor.dims) for name, tensor in self.tensors.items() if not name.startswith("rope_"))


def read_header(path: Path) -> Header:
    """The header of the GGUF at ``path``, every length in it checked against the file's size.

    Takes milliseconds, at worst a second or two, whatever the file holds. Raises ModelError naming the file and what
    is wrong with it, OSError if it cannot be read.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read(data)
    except KeyError as error:
        raise ModelError(f"{path} is not a whole GGUF file (no meaning for, or no {error})", REMEDY) from error
    except (ValueError, struct.error) as error:
        raise ModelError(f"{path} is not a whole GGUF file ({error})", REMEDY) from error


def _read(data: mmap.mmap) -> Header:
    if data[:4] != b"GGUF":
        raise ValueError("it does not begin with GGUF")
    walk = _Walk(data, 4)
    if (version := walk.take("I")) not in (2, 3):
        raise ValueError(f"its version is {version}, not 2 or 3")
    tensors, entries = walk.count(_MOST_ENTRIES), walk.count(_MOST_ENTRIES)
    meta = {walk.string(): walk.value(walk.take("I")) for _ in range(entries)}
    found = dict(walk.tensor() for _ in range(tensors))
    if len(meta) < entries or len(found) < tensors or not tensors:
        raise ValueError("it names something twice, or holds no tensors")
    header = Header(meta, _placed(found, walk.at, meta.get("general.alignment", 32), len(data)))
    _check_sizes(header)
    return header


class _Walk:
    """A cursor over a mapped file: it cannot leave the file, and it cannot be kept busy for long."""

    def __init__(self, data: mmap.mmap, at: int) -> None:
        self.data, self.at, self.items = data, at, _MOST_ITEMS

    def take(self, form: str) -> Any:
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def skip(self, size: int) -> None:
        if size > len(self.data) - self.at:
            raise ValueError("it ends too early")
        self.at += size

    def count(self, limit: int) -> int:
        if (count := self.take("Q")) > limit:
            raise ValueError(f"it claims {count:,} entries")
        return int(count)

    def string(self) -> str:
        start = self.at + 8
        self.skip(self.take("Q"))
        return self.data[start : self.at].decode()

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        return self.array(self.take("I")) if kind == _ARRAY else self.take(_SCALARS[kind])

    def array(self, kind: int) -> int:
        count = self.count(self.items)
        self.items -= count
        if kind == _STRING:
            for _ in range(count):
                self.skip(self.take("Q"))
        else:
            self.skip(count * struct.calcsize("<" + _SCALARS[kind]))
        return count

    def tensor(self) -> tuple[str, GgufTensor]:
        name, rank = self.string(), self.take("I")
        if rank > 4:
            raise ValueError(f"{name} claims {rank:,} dimensions")
        dims = tuple(self.take("Q") for _ in range(rank))
        return name, GgufTensor(dims, self.take("I"), self.take("Q"))


def _placed(tensors: dict[str, GgufTensor], end: int, alignment: int, size: int) -> dict[str, GgufTensor]:
    """The tensors with their place in the file, not in its data section, which follows the header's ``end``."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"its alignment is {alignment}")
    base = -(-end // alignment) * alignment
    for name, tensor in tensors.items():
        block, width = GGML_QUANT_SIZES[GGMLQuantizationType(tensor.kind)]
        if base + tensor.start + prod(tensor.dims) // block * width > size:
            raise ValueError(f"{name} lies beyond its end")
    return {name: replace(tensor, start=base + tensor.start) for name, tensor in tensors.items()}


def _check_sizes(header: Header) -> None:
    """A model no larger than its file: building it from its config must not be a way to fill the memory."""
    if header.meta.get("split.count", 1) > 1:
        raise ValueError("it is one part of several: join them with llama-gguf-split --merge")
    limits = {"block_count": len(header.tensors), "embedding_length": header.weights, "vocab_size": header.weights}
    for name, limit in limits.items():
        if (said := header.get(name)) is not None and not (isinstance(said, int) and 0 < said <= limit):
            raise ValueError(f"its {name} is {said}")
