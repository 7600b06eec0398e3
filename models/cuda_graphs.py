"""Steps that do the same again with other numbers: captured once as a CUDA graph, then replayed, without any Python."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from localctx.kv.graph_inputs import Arrays, CapturableBatch, GraphInputs

Compute = Callable[[GraphInputs], Tensor]
Replay = Callable[[], None]
Capture = Callable[[Callable[[], Tensor]], tuple[Replay, Tensor]]

MOST = 32  # kinds of step that are known: one for each number of sequences, and for each doubling of what they look at


class GraphCache:
    """Captures with ``capture``, which returns what replays the work, and where its result then is. Where that cannot
    be done, ``refused`` says why, and every step is computed as ever.

    See https://pytorch.org/blog/accelerating-pytorch-with-cuda-graphs/.
    """

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._known = dict[object, _CapturedGraph]()
        self.refused = ""

    def run(self, step: CapturableBatch, more: Arrays, device: torch.device, compute: Compute) -> Tensor:
        """What ``compute`` makes of ``step``'s arrays and ``more``, in tables that the step has then. Of what else
        it looks at, all that matters is in the step's likeness; it launches work on ``device`` and never waits for it.

        What comes the first time is computed, which compiles what has to be; nothing may be, during a capture. Memory
        that ``compute`` looks at beside the tables stays where it is until ``forget``.
        """
        arrays = {**more, **step.arrays}
        key = step.likeness, tuple((name, x.dtype, x.shape) for name, x in arrays.items())
        known = self._known.pop(key, None)
        if known:
            known.tables.write(arrays)
        now = known or _CapturedGraph(GraphInputs(arrays, device))
        step.tables = now.tables
        work = partial(compute, now.tables)
        result = self._again(known, work) if known else work()
        self._known[key] = now  # what was used last is last
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]
        return result

    def forget(self) -> None:
        """What was captured computes with what is there no more."""
        self._known.clear()

    def _again(self, known: "_CapturedGraph", work: Callable[[], Tensor]) -> Tensor:
        if not known.graph and not self.refused:
            known.graph = self._captured(work)
        if not known.graph:
            return work()
        replay, result = known.graph
        replay()
        return result.clone()

    def _captured(self, work: Callable[[], Tensor]) -> tuple[Replay, Tensor] | None:
        try:
            return self._capture(work)
        except torch.OutOfMemoryError:
            return None  # there may be more the next time
        except RuntimeError as e:  # it waits for the device somewhere; what ends the capture then hides why
            self.refused = str(e.__context__ or e).splitlines()[0]
            return None


@dataclass
class _CapturedGraph:
    tables: GraphInputs
    graph: tuple[Replay, Tensor] | None = None


class CudaCapture:
    """``Capture`` on a CUDA ``device``. All graphs share memory for what lies between: no two run at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._there = device, WeakSet[torch.cuda.CUDAGraph]()

    def __call__(self, work: Callable[[], Tensor]) -> tuple[Replay, Tensor]:
        graph, here = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        how = {"pool": self._memory, "stream": self._stream, "capture_error_mode": "thread_local"}
        with torch.cuda.stream(here), torch.cuda.graph(graph, **how):  # who fails within stays on its stream
            result = work()
        self._there.add(graph)
        return graph.replay, result

    @property
    def _memory(self) -> Any:
        """That of a graph that is still there: with the last of them it is gone."""
        return next((graph.pool() for graph in self._there), None)

    @cached_property
    def _stream(self) -> torch.cuda.Stream:
        """Its own: torch's for captures is of the device that was the first."""
        return torch.cuda.Stream(self._device)
