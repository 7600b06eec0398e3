"""Keeps a model's weights in the blocks of our CPU kernels, in a file beside the model. Making the blocks takes
seconds in each process; mapping and verifying the file takes a tenth of that, and processes share its memory.
"""

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3

from localctx.kernels.cpu.linear import Blocks
from localctx.shape import ARITHMETIC_VERSION

VERSION = f"1 {ARITHMETIC_VERSION}"
"""Of the file and of the blocks' layout. A file of another version is made again."""

_ALIGNMENT = 4096  # bytes of a memory page, at whose start every matrix begins
_LONGEST_HEADER = 1 << 20
_SPARE = 2  # the disk must have so many times the file's size free

Sources = dict[str, list[int]]
"""The size and the modification time in nanoseconds of each file that blocks are made of, by file name."""


@dataclass(frozen=True)
class BlockFile:
    """The content of a file: the matrices and the vectors (float32) by name, and the content hash of each file of the
    model that they were made of, by file name.
    """

    blocks: Mapping[str, Blocks]
    vectors: Mapping[str, np.ndarray]
    hashes: Mapping[str, str]

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays in the order of the file."""
        return {**{name: matrix.codes for name, matrix in self.blocks.items()}, **self.vectors}


def read_blocks(folder: Path, stored: str) -> BlockFile | None:
    """Returns the weights of the model in ``folder`` in the format ``stored`` (int8 or int4). Returns None if there are
    none, if the model's files have changed since, or if the file is damaged.
    """
    try:
        header, data = _opened(_path(folder, stored))
        about = header["about"]
        if about["version"] != VERSION or about["sources"] != source_files(folder):
            return None
        if header["blake3"] != _hash(about, [data]):
            return None
        return _content(about, data)
    except (OSError, ValueError, LookupError, TypeError):
        return None


def write_blocks(folder: Path, stored: str, sources: Sources, content: BlockFile) -> bool:
    """Write weights that were made of ``sources``. Returns False if the disk has no room, the folder is read-only, or
    another process is writing.
    """
    from filelock import FileLock, Timeout

    path = _path(folder, stored)
    partial = path.with_suffix(".partial")
    with suppress(OSError, Timeout), FileLock(path.with_suffix(".lock"), timeout=0):
        partial.unlink(missing_ok=True)  # of a process that was killed
        if shutil.disk_usage(folder).free < _SPARE * sum(array.nbytes for array in content.arrays.values()):
            return False
        try:
            _write(partial, _header(sources, content), content)
            partial.replace(path)
            return True
        finally:
            partial.unlink(missing_ok=True)
    return False


def source_files(folder: Path) -> Sources:
    """Returns the state of the files in ``folder`` that blocks are made of."""
    files = [folder / "config.json", *folder.glob("*.safetensors"), *folder.glob("*.blocks")]
    about = {file.name: file.stat() for file in sorted(files)}
    return {name: [state.st_size, state.st_mtime_ns] for name, state in about.items()}


def _path(folder: Path, stored: str) -> Path:
    return folder / f"blocks-{stored}.bin"


def _header(sources: Sources, content: BlockFile) -> bytes:
    """Returns the header: a line of JSON, padded to whole memory pages."""
    entries, at = {}, 0
    for name, array in content.arrays.items():
        entries[name] = [array.dtype.str, array.shape, at]
        at += _padded(array.nbytes)
    matrices = {name: [matrix.kind, matrix.inputs, matrix.outputs] for name, matrix in content.blocks.items()}
    about = {"version": VERSION, "sources": sources, "hashes": dict(content.hashes), "arrays": entries}
    about |= {"matrices": matrices}
    line = json.dumps({"blake3": _hash(about, _pieces(content)), "about": about}).encode()
    return line.ljust(_padded(len(line) + 1) - 1) + b"\n"


def _write(path: Path, header: bytes, content: BlockFile) -> None:
    with path.open("wb") as file:
        file.write(header)
        for piece in _pieces(content):
            file.write(piece)


def _pieces(content: BlockFile) -> list[Any]:
    """Returns the bytes after the header: each array, padded to whole memory pages."""
    arrays = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in content.arrays.values()]
    return [piece for some in arrays for piece in (some, bytes(-some.nbytes % _ALIGNMENT))]


def _opened(path: Path) -> tuple[dict[str, Any], np.ndarray]:
    """Returns the header, and the mapped bytes after it. Written to, the mapping changes only this process's memory."""
    with path.open("rb") as file:
        header, start = json.loads(file.readline(_LONGEST_HEADER)), file.tell()
    return header, np.memmap(path, np.uint8, "c", start)


def _content(about: Mapping[str, Any], data: np.ndarray) -> BlockFile:
    arrays = {name: _array(data, *entry) for name, entry in about["arrays"].items()}
    matrices = {name: Blocks(kind, arrays.pop(name), *sizes) for name, (kind, *sizes) in about["matrices"].items()}
    return BlockFile(matrices, arrays, about["hashes"])


def _array(data: np.ndarray, dtype: str, shape: list[int], at: int) -> np.ndarray:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.asarray(data[at : at + size]).view(dtype).reshape(shape)


def _hash(about: Mapping[str, Any], pieces: list[Any]) -> str:
    hasher = blake3(json.dumps(about).encode(), max_threads=blake3.AUTO)
    for piece in pieces:
        hasher.update(memoryview(piece))
    return hasher.hexdigest()


def _padded(size: int) -> int:
    return size + -size % _ALIGNMENT
