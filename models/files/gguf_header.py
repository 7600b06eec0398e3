"""Reads and validates the header of a GGUF file before any library opens it.

The file may be malicious: 49 bytes can keep a parser busy forever, and a billion layers take four bytes. In a header
from ``read_header``, no count and no size exceeds the size of the file.
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
_MAX_ENTRIES = 1 << 16  # metadata keys, or tensors
_MAX_LAYERS = 1 << 10  # longest array that is read: one number per layer or RoPE section
_MAX_ITEMS = 1 << 22  # array items in a header; a vocabulary of 2**18 with scores, types and merges has 2**20


@dataclass(frozen=True)
class GgufTensor:
    """The entry of a tensor in a GGUF header: its dimensions, its ggml type (``kind``), and its offset in the file
    (``start``).
    """

    dims: tuple[int, ...]
    kind: int
    start: int


@dataclass(frozen=True)
class GgufHeader:
    """The metadata (``meta``) and the tensor entries of a GGUF file. For a long array or an array of strings, ``meta``
    has only the length.
    """

    meta: dict[str, Any]
    tensors: dict[str, GgufTensor]

    def get(self, name: str, default: Any = None) -> Any:
        """Returns the metadata ``name``, or ``default`` if it is missing. ``name`` is without the prefix of the
        architecture: ``context_length`` stands for ``llama.context_length``.
        """
        return self.meta.get(f"{self.meta['general.architecture']}.{name}", default)

    @property
    def weights(self) -> int:
        """The number of parameters in all tensors, without RoPE factor tables."""
        return sum(prod(tensor.dims) for name, tensor in self.tensors.items() if not name.startswith("rope_"))


def read_header(path: Path, part: bool = False) -> GgufHeader:
    """Read the header of the GGUF file ``path``, and check every length in it against the file's size.

    If ``part`` is True, the file may be one part of a split GGUF, whose sizes can only be checked together: the caller
    runs ``check_sizes`` after reading all parts. Takes milliseconds, at worst two seconds for any file. Raises
    ModelError for an invalid file, OSError if it cannot be read.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            header = _read(data, part)
            if not part:
                _refuse_parts(header)
                check_sizes(header)
            return header
    except KeyError as error:
        raise ModelError(
            f"{path} is not a complete GGUF file (its header lacks {error}, or has it wrong)", REMEDY
        ) from error
    except (ValueError, struct.error) as error:
        raise ModelError(f"{path} is not a complete GGUF file ({error})", REMEDY) from error


def _read(data: mmap.mmap, part: bool) -> GgufHeader:
    if data[:4] != b"GGUF":
        raise ValueError("it does not begin with GGUF")
    reader = _HeaderReader(data, 4)
    if (version := reader.unpack("I")) not in (2, 3):
        raise ValueError(f"its version is {version}, not 2 or 3")
    tensors, entries = reader.count(_MAX_ENTRIES), reader.count(_MAX_ENTRIES)
    meta = {reader.string(): reader.value(reader.unpack("I")) for _ in range(entries)}
    found = dict(reader.tensor() for _ in range(tensors))
    if len(meta) < entries or len(found) < tensors or not (tensors or part):
        raise ValueError("it names something twice, or holds no tensors")
    return GgufHeader(meta, _placed(found, reader.at, meta.get("general.alignment", 32), len(data)))


class _HeaderReader:
    """A cursor over a mapped file. Raises ValueError or struct.error at the file's end, and ValueError after _MAX_ITEMS
    array items.
    """

    def __init__(self, data: mmap.mmap, at: int) -> None:
        self.data, self.at, self.items = data, at, _MAX_ITEMS

    def unpack(self, form: str) -> Any:
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def skip(self, size: int) -> None:
        if size > len(self.data) - self.at:
            raise ValueError("it ends too early")
        self.at += size

    def count(self, limit: int) -> int:
        if (count := self.unpack("Q")) > limit:
            raise ValueError(f"it claims {count:,} entries")
        return int(count)

    def string(self) -> str:
        start = self.at + 8
        self.skip(self.unpack("Q"))
        return self.data[start : self.at].decode()

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        return self.array(self.unpack("I")) if kind == _ARRAY else self.unpack(_SCALARS[kind])

    def array(self, kind: int) -> int | tuple[Any, ...]:
        """Returns the items of an array with at most _MAX_LAYERS numbers, and only the length of other arrays."""
        count = self.count(self.items)
        self.items -= count
        if kind == _STRING:
            for _ in range(count):
                self.skip(self.unpack("Q"))
        elif 0 < count <= _MAX_LAYERS:
            return tuple(self.unpack(_SCALARS[kind]) for _ in range(count))
        else:
            self.skip(count * struct.calcsize("<" + _SCALARS[kind]))
        return count

    def tensor(self) -> tuple[str, GgufTensor]:
        name, rank = self.string(), self.unpack("I")
        if rank > 4:
            raise ValueError(f"{name} claims {rank:,} dimensions")
        dims = tuple(self.unpack("Q") for _ in range(rank))
        return name, GgufTensor(dims, self.unpack("I"), self.unpack("Q"))


def _placed(tensors: dict[str, GgufTensor], end: int, alignment: int, size: int) -> dict[str, GgufTensor]:
    """Convert the offsets of ``tensors`` to offsets in the file. Given offsets count from the data section, which
    follows the header's ``end``.
    """
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"its alignment is {alignment}")
    base = -(-end // alignment) * alignment
    for name, tensor in tensors.items():
        block, width = GGML_QUANT_SIZES[GGMLQuantizationType(tensor.kind)]
        if base + tensor.start + prod(tensor.dims) // block * width > size:
            raise ValueError(f"{name} lies beyond its end")
    return {name: replace(tensor, start=base + tensor.start) for name, tensor in tensors.items()}


def _refuse_parts(header: GgufHeader) -> None:
    if header.meta.get("split.count", 1) > 1:
        raise ValueError("it is one part of several: join them with llama-gguf-split --merge")


def check_sizes(header: GgufHeader) -> None:
    """Raise ValueError if the model sizes in the header exceed the contents of the file. Building such a model would
    fill the memory.
    """
    limits = {"block_count": len(header.tensors), "embedding_length": header.weights, "vocab_size": header.weights}
    for name, limit in limits.items():
        if (value := header.get(name)) is not None and not (isinstance(value, int) and 0 < value <= limit):
            raise ValueError(f"its {name} is {value}")
