"""Reads the weights of a model folder from its safetensors files."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from localctx.errors import ModelError

MAX_HEADER = 100 << 20  # bytes; the library has the same limit
REMEDY = "fetch the file again: localctx models pull NAME"
UNQUANTIZED = {"F32", "BF16", "F16"}
"""The dtypes of unquantized tensors, as named by safetensors."""


class SafetensorsWeights(Mapping[str, Tensor]):
    """The tensors of safetensors files by name. A tensor is a view of a mapped file; copy it if it must outlive this
    object.
    """

    def __init__(self, files: list[Path]) -> None:
        self._files: dict[str, Any] = {}
        with ExitStack() as stack:
            for path in files:
                file = stack.enter_context(safe_open(path, "pt"))
                self._files |= dict.fromkeys(file.keys(), file)
            stack.pop_all()  # the files stay open until their last tensor is freed

    def __getitem__(self, name: str) -> Tensor:
        return self._files[name].get_tensor(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    @property
    def unquantized(self) -> bool:
        """True if no tensor is quantized."""
        return {file.get_slice(name).get_dtype() for name, file in self._files.items()} <= UNQUANTIZED


def check_headers(folder: Path) -> None:
    """Raise ModelError for a file in ``folder`` whose header is longer than the file or than MAX_HEADER."""
    for file in folder.glob("*.safetensors"):
        with suppress(OSError), file.open("rb") as f:
            claimed, size = int.from_bytes(f.read(8), "little"), file.stat().st_size
            if claimed > min(MAX_HEADER, max(0, size - 8)):
                raise ModelError(
                    f"{file} is not a complete safetensors file (its header claims {claimed:,} bytes)", REMEDY
                )


def open_weights(folder: Path) -> SafetensorsWeights | None:
    """Open the weights in ``folder``, in one file or several. Returns None if transformers would not find them."""
    try:
        if (folder / "model.safetensors").is_file():
            return SafetensorsWeights([folder / "model.safetensors"])
        index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
        return SafetensorsWeights([folder / name for name in sorted({*index["weight_map"].values()})])
    except (OSError, ValueError, KeyError, AttributeError, TypeError, SafetensorError):
        return None


def get_tensor(weights: Mapping[str, Tensor], name: str, *shape: int) -> Tensor:
    """Returns the tensor ``name``. Raises ValueError if it is missing or has another shape."""
    found = weights.get(name)
    if found is None or found.shape != shape:
        raise ValueError(f"it lacks {name}")
    return found
