"""GgufFile: a GGUF on disk, in one file or several parts, checked before any library opens it."""

import re
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path

from localctx.errors import ModelError
from localctx.models.files.gguf_header import REMEDY, GgufHeader, check_sizes, read_header
from localctx.models.fingerprint import hash_file

_SPLIT = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
GGUF_ON_HUB = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*):(?P<pattern>[\w.*?\[\]-]+)")
"""A hub repository and a name pattern for GGUF files in it: ``owner/name:*Q4_K_M*``."""

EXACT_TYPES = {0, 1, 30}  # ggml's f32, f16 and bf16


@dataclass(frozen=True)
class GgufFile:
    """A GGUF on disk. ``parts`` are its files in order; there is only one if it is not split. ``header`` has the
    metadata of the first file and the tensors of all files.
    """

    parts: tuple[Path, ...]
    header: GgufHeader

    @property
    def path(self) -> Path:
        """The path of the first part, from which llama.cpp finds the other parts."""
        return self.parts[0]

    @property
    def family(self) -> str:
        """The name of the architecture, such as ``llama``."""
        return str(self.header.meta.get("general.architecture", ""))

    @property
    def nbytes(self) -> int:
        """The size of all tensors in bytes, as quantized."""
        return sum(self.tensor_bytes.values())

    @cached_property
    def tensor_bytes(self) -> dict[str, int]:
        """The size of each tensor in bytes, as quantized, by name."""
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        sizes = {name: GGML_QUANT_SIZES[GGMLQuantizationType(t.kind)] for name, t in self.header.tensors.items()}
        return {name: prod(self.header.tensors[name].dims) // block * width for name, (block, width) in sizes.items()}

    @property
    def quantized(self) -> bool:
        """True if some tensors are quantized, so that torch would have to dequantize them."""
        return any(tensor.kind not in EXACT_TYPES for tensor in self.header.tensors.values())

    @cached_property
    def hashes(self) -> dict[str, str]:
        """The content hash of each part, by its number."""
        return {str(i): hash_file(part) for i, part in enumerate(self.parts)}


def find_gguf(name: str) -> Path | None:
    """Returns the GGUF that ``name`` is the path of: a file, or a folder with only one GGUF (perhaps split). Returns
    None if there is none.
    """
    path = Path(name).expanduser()
    try:
        if path.suffix == ".gguf" and path.is_file():
            return path
        if path.is_dir() and not (path / "config.json").is_file():
            firsts = sorted(f for f in path.glob("*.gguf") if _number(f) in (None, 1))
            return firsts[0] if len(firsts) == 1 else None
    except OSError:  # a name too long for a path
        pass
    return None


def open_gguf(path: Path) -> GgufFile:
    """Read and check the headers of the GGUF whose first part is ``path``. Raises ModelError, OSError."""
    match = _SPLIT.fullmatch(path.name)
    count = int(match["count"]) if match else 1
    if not match or count == 1:
        return GgufFile((path,), read_header(path))
    parts = tuple(path.with_name(f"{match['stem']}-{i:05}-of-{count:05}.gguf") for i in range(1, count + 1))
    if missing := [part.name for part in parts if not part.is_file()]:
        raise ModelError(f"{path.parent} lacks {missing[0]}, one of {count} parts", "put all parts into one folder")
    headers = [read_header(part, part=True) for part in parts]
    merged = GgufHeader(headers[0].meta, {name: t for header in headers for name, t in header.tensors.items()})
    try:
        if [(h.meta["split.no"], h.meta["split.count"]) for h in headers] != [(i, count) for i in range(count)]:
            raise ValueError("its parts are not those that their names say")
        check_sizes(merged)
    except (KeyError, ValueError) as error:
        raise ModelError(f"{path} is not a complete GGUF ({error})", REMEDY) from error
    return GgufFile(parts, merged)


def _number(file: Path) -> int | None:
    match = _SPLIT.fullmatch(file.name)
    return int(match["number"]) if match else None


def per_layer(header: GgufHeader, name: str, layers: int, default: int = 0) -> tuple[int, ...]:
    """Returns the value of the metadata ``name`` for each layer. A GGUF stores either one value for all layers or an
    array. ``default`` stands for a missing value. Raises ModelError.
    """
    value = header.get(name, default)
    values = value if isinstance(value, tuple) else (value,) * layers
    if len(values) < layers or not all(isinstance(v, int) and 0 <= v <= header.weights for v in values[:layers]):
        raise ModelError(f"the file's {name} cannot be {str(value)[:60]}", REMEDY)
    return tuple(values[:layers])
