"""CUDA graphs: a forward pass that repeats with other inputs is captured once, then replayed without any Python."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from localctx.kv.batches.graph_inputs import Arrays, CapturableBatch, GraphInputs

Compute = Callable[[GraphInputs], Tensor]
Replay = Callable[[], None]
Capture = Callable[[Callable[[], Tensor]], tuple[Replay, Tensor]]

MAX_GRAPHS = 32  # one for each number of sequences, and for each doubling of the pages they attend to


class GraphCache:
    """Graphs captured with ``capture``, which returns what replays the work, and the tensor its result is then in.
    Where capturing fails, ``refused`` says why, and everything is computed without graphs.

    See https://pytorch.org/blog/accelerating-pytorch-with-cuda-graphs/.
    """

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._graphs = dict[object, _CapturedGraph]()
        self.refused = ""

    def run(self, batch: CapturableBatch, more: Arrays, device: torch.device, compute: Compute) -> Tensor:
        """The result of ``compute`` over the batch's arrays and ``more``, as graph inputs which ``batch`` then has too.
        Whatever else ``compute`` depends on must be in the batch's ``graph_key``. It launches work on ``device``, and
        never waits for it.

        The first batch of a key is computed without a graph, which compiles its kernels: nothing may be compiled during
        a capture. Memory that ``compute`` reads beside the inputs must stay in place until ``forget``.
        """
        arrays = {**more, **batch.arrays}
        key = batch.graph_key, tuple((name, x.dtype, x.shape) for name, x in arrays.items())
        known = self._graphs.pop(key, None)
        if known:
            known.inputs.write(arrays)
        entry = known or _CapturedGraph(GraphInputs(arrays, device))
        batch.graph_inputs = entry.inputs
        work = partial(compute, entry.inputs)
        result = self._replay(known, work) if known else work()
        self._graphs[key] = entry  # in the order of use
        if len(self._graphs) > MAX_GRAPHS:
            del self._graphs[next(iter(self._graphs))]
        return result

    def forget(self) -> None:
        """Drop all graphs: what they read is no longer there."""
        self._graphs.clear()

    def _replay(self, entry: "_CapturedGraph", work: Callable[[], Tensor]) -> Tensor:
        if not entry.graph and not self.refused:
            entry.graph = self._try_capture(work)
        if not entry.graph:
            return work()
        replay, result = entry.graph
        replay()
        return result.clone()

    def _try_capture(self, work: Callable[[], Tensor]) -> tuple[Replay, Tensor] | None:
        try:
            return self._capture(work)
        except torch.OutOfMemoryError:
            return None  # there may be more memory the next time
        except RuntimeError as e:  # it waits for the device somewhere; the error that ends the capture hides the cause
            self.refused = str(e.__context__ or e).splitlines()[0]
            return None


@dataclass
class _CapturedGraph:
    inputs: GraphInputs
    graph: tuple[Replay, Tensor] | None = None


class CudaCapture:
    """``Capture`` on a CUDA ``device``. All graphs share memory for intermediate results: no two run at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._alive = device, WeakSet[torch.cuda.CUDAGraph]()

    def __call__(self, work: Callable[[], Tensor]) -> tuple[Replay, Tensor]:
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        how = {"pool": self._memory, "stream": self._stream, "capture_error_mode": "thread_local"}
        with torch.cuda.stream(current), torch.cuda.graph(graph, **how):  # a failed capture would leave its stream set
            result = work()
        self._alive.add(graph)
        return graph.replay, result

    @property
    def _memory(self) -> Any:
        """The memory pool of any graph that is alive; the last graph takes it along."""
        return next((graph.pool() for graph in self._alive), None)

    @cached_property
    def _stream(self) -> torch.cuda.Stream:
        """A stream of this device: torch's own for captures belongs to the device of the first capture."""
        return torch.cuda.Stream(self._device)
