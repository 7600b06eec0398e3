"""Tables: what a step of the model is told, as named arrays in one tensor on the device, written by one copy."""

from collections.abc import Mapping
from itertools import accumulate
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

Arrays = Mapping[str, np.ndarray]

_ALIGNED = 16  # bytes: kernels read whole words from where an array begins
_LEAST = 4


def pad_to_power_of_two(x: np.ndarray) -> np.ndarray:
    """``x`` with zeros behind it, to a power of two along its first axis: arrays that grow seldom change their size."""
    room = max(_LEAST, 1 << (len(x) - 1).bit_length()) - len(x) if len(x) else _LEAST
    return np.concatenate((x, np.zeros((room, *x.shape[1:]), x.dtype)))


class GraphInputs:
    """Of ``arrays``, views of one tensor by name. Others of the same types and shapes can be written in their place,
    which does not change: a captured graph reads what is there when it runs.
    """

    def __init__(self, arrays: Arrays, device: torch.device) -> None:
        sizes = [-(-x.nbytes // _ALIGNED) * _ALIGNED for x in arrays.values()]
        starts = dict(zip(arrays, accumulate(sizes, initial=0), strict=False))
        self._host = torch.zeros(sum(sizes), dtype=torch.uint8)
        self._there = torch.empty_like(self._host, device=device)
        self._views = {name: _view(self._host, starts[name], x).numpy() for name, x in arrays.items()}
        self._tensors = {name: _view(self._there, starts[name], x) for name, x in arrays.items()}
        self.write(arrays)

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def write(self, arrays: Arrays) -> None:
        """Put ``arrays`` in the places of those of before."""
        for name, view in self._views.items():
            assert view.shape == arrays[name].shape, f"{name} has another size now"
            view[...] = arrays[name]
        self._there.copy_(self._host)


def _view(flat: Tensor, start: int, like: np.ndarray) -> Tensor:
    return flat[start : start + like.nbytes].view(torch.from_numpy(like).dtype).view(like.shape)


class CapturableBatch(Protocol):
    """A step that looks at nothing but the ``arrays`` that are in its ``tables``, and never waits for the device.

    Another of the same ``likeness`` does the same with its own.
    """

    tables: GraphInputs

    @property
    def likeness(self) -> object: ...

    @property
    def arrays(self) -> Arrays: ...
