"""CUDA graphs: a forward pass that repeats with new inputs is captured once, then replayed without Python."""

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

MAX_GRAPHS = 32  # one per number of sequences and per doubling of the attended pages


class GraphCache:
    """Captured CUDA graphs by the shape of a batch. ``capture`` is a function that captures work; it returns a function
    that replays the work, and the tensor that holds the result after a replay. If capturing fails, ``refused`` is the
    reason, and everything runs without graphs.

    See https://pytorch.org/blog/accelerating-pytorch-with-cuda-graphs/.
    """

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._graphs = dict[object, _CapturedGraph]()
        self.refused = ""

    def run(self, batch: CapturableBatch, more: Arrays, device: torch.device, compute: Compute) -> Tensor:
        """Returns the result of ``compute``, by replaying a captured graph if there is one for this kind of batch. The
        graph inputs are the batch's arrays and ``more``; ``compute`` and ``batch`` both get them. Anything else that
        ``compute`` depends on must be in the batch's ``graph_key``. ``compute`` launches work on ``device`` without
        waiting for it.

        The first batch with a key runs without a graph, because kernels must be compiled before a capture. Memory that
        ``compute`` reads besides the inputs must stay in place until ``forget``.
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
        self._graphs[key] = entry  # least recently used first
        if len(self._graphs) > MAX_GRAPHS:
            del self._graphs[next(iter(self._graphs))]
        return result

    def forget(self) -> None:
        """Drop all graphs. Call this when memory that the graphs read is no longer valid."""
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
            return None  # there may be more memory next time
        except RuntimeError as e:  # the work waits for the device; the capture's own error hides that cause
            self.refused = str(e.__context__ or e).splitlines()[0]
            return None


@dataclass
class _CapturedGraph:
    inputs: GraphInputs
    graph: tuple[Replay, Tensor] | None = None


class CudaCapture:
    """Captures work as CUDA graphs on ``device``, for a GraphCache. All graphs share memory for intermediate results,
    so only one may run at a time.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._alive = device, WeakSet[torch.cuda.CUDAGraph]()

    def __call__(self, work: Callable[[], Tensor]) -> tuple[Replay, Tensor]:
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        how = {"pool": self._memory, "stream": self._stream, "capture_error_mode": "thread_local"}
        with torch.cuda.stream(current), torch.cuda.graph(graph, **how):  # restores the stream if the capture fails
            result = work()
        self._alive.add(graph)
        return graph.replay, result

    @property
    def _memory(self) -> Any:
        """The memory pool of any live graph. It is freed with the last graph."""
        return next((graph.pool() for graph in self._alive), None)

    @cached_property
    def _stream(self) -> torch.cuda.Stream:
        """A stream of this device. torch's own capture stream belongs to the device of the first capture."""
        return torch.cuda.Stream(self._device)
