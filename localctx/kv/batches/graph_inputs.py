"""GraphInputs: holds the inputs of a forward pass as named arrays in one device tensor, which one copy fills."""

from collections.abc import Mapping
from itertools import accumulate
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

Arrays = Mapping[str, np.ndarray]

_ALIGNED = 16  # bytes: kernels read whole words from the start of an array
_MIN_LENGTH = 4


def pad_to_power_of_two(x: np.ndarray) -> np.ndarray:
    """Pad ``x`` with zeros so that the length of its first axis is a power of two. An array that grows then rarely
    changes its size.
    """
    room = max(_MIN_LENGTH, 1 << (len(x) - 1).bit_length()) - len(x) if len(x) else _MIN_LENGTH
    return np.concatenate((x, np.zeros((room, *x.shape[1:]), x.dtype)))


class GraphInputs:
    """The input tensors of a captured CUDA graph, by name. They are device copies of ``arrays`` at fixed addresses.
    Each replay of the graph reads the values that the last ``write`` put there.
    """

    def __init__(self, arrays: Arrays, device: torch.device) -> None:
        sizes = [-(-x.nbytes // _ALIGNED) * _ALIGNED for x in arrays.values()]
        starts = dict(zip(arrays, accumulate(sizes, initial=0), strict=False))
        self._host_bytes = torch.zeros(sum(sizes), dtype=torch.uint8)
        self._device_bytes = torch.empty_like(self._host_bytes, device=device)
        self._views = {name: _view(self._host_bytes, starts[name], x).numpy() for name, x in arrays.items()}
        self._tensors = {name: _view(self._device_bytes, starts[name], x) for name, x in arrays.items()}
        self.write(arrays)

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def write(self, arrays: Arrays) -> None:
        """Copy ``arrays``, with the same names, types and shapes, to the addresses that the graph reads."""
        for name, view in self._views.items():
            assert view.shape == arrays[name].shape, f"{name} has another size now"
            view[...] = arrays[name]
        self._device_bytes.copy_(self._host_bytes)


def _view(flat: Tensor, start: int, like: np.ndarray) -> Tensor:
    return flat[start : start + like.nbytes].view(torch.from_numpy(like).dtype).view(like.shape)


class CapturableBatch(Protocol):
    """A batch whose kernels a CUDA graph may capture. They read only ``arrays``, which ``graph_inputs`` hold on the
    device, and never wait for the device. A batch with an equal ``graph_key`` launches the same kernels, so it may
    replay the graph with its own arrays.
    """

    graph_inputs: GraphInputs

    @property
    def graph_key(self) -> object: ...

    @property
    def arrays(self) -> Arrays: ...
