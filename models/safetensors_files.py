"""Weights of a model folder, read from its safetensors files."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

PLAIN = {"F32", "BF16", "F16"}
"""What numbers that mean themselves are stored as; others (quantized ones) mean more."""


class StoredTensor(Mapping[str, Tensor]):
    """The tensors of safetensors files by name, as they are stored. Each lies in its mapped file: copy what is kept."""

    def __init__(self, files: list[Path]) -> None:
        self._files: dict[str, Any] = {}
        with ExitStack() as whole:
            for path in files:
                file = whole.enter_context(safe_open(path, "pt"))
                self._files |= dict.fromkeys(file.keys(), file)
            whole.pop_all()  # they are closed with the last tensor

    def __getitem__(self, name: str) -> Tensor:
        return self._files[name].get_tensor(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    @property
    def plain(self) -> bool:
        """Whether all of them are numbers that mean themselves."""
        return {file.get_slice(name).get_dtype() for name, file in self._files.items()} <= PLAIN


def open_weights(folder: Path) -> StoredTensor | None:
    """The weights in ``folder``, in one file or several; None where they do not lie as transformers would find them."""
    try:
        if (folder / "model.safetensors").is_file():
            return StoredTensor([folder / "model.safetensors"])
        index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
        return StoredTensor([folder / name for name in sorted({*index["weight_map"].values()})])
    except (OSError, ValueError, KeyError, AttributeError, TypeError, SafetensorError):
        return None


def take(weights: Mapping[str, Tensor], name: str, *shape: int) -> Tensor:
    """The tensor of that name. Raises ValueError where it is absent or of another shape."""
    found = weights.get(name)
    if found is None or found.shape != shape:
        raise ValueError(f"it lacks {name}")
    return found
