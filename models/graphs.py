"""Steps that do the same again with other numbers: captured once as a CUDA graph, then replayed, without any Python."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from localctx.kv.tables import Arrays, Tables

Compute = Callable[[Tables], Tensor]
Replay = Callable[[], None]
Capture = Callable[[Callable[[], Tensor]], tuple[Replay, Tensor]]

MOST = 32  # kinds of step that are known: one for each number of sequences, and for each doubling of what they look at


class Graphs:
    """Captures with ``capture``, which returns what replays the work, and where its result then is. Where that cannot
    be done, ``refused`` says why, and every step is computed as ever.
    """

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._known = dict[object, _Known]()
        self.refused = ""

    def run(self, likeness: object, arrays: Arrays, device: torch.device, compute: Compute) -> tuple[Tensor, Tables]:
        """What ``compute`` makes of ``arrays`` in tables, and these. Of what else it looks at, all that matters is in
        ``likeness``; it launches work on the device and never waits for it.

        What comes the first time is computed, which compiles what has to be; nothing may be, during a capture. Memory
        that ``compute`` looks at beside the tables stays where it is until ``forget``.
        """
        key = likeness, tuple((name, x.dtype, x.shape) for name, x in arrays.items())
        step = self._known.pop(key, None)
        if step is None:
            step = _Known(Tables(arrays, device))
            result = compute(step.tables)
        else:
            step.tables.write(arrays)
            result = self._again(step, partial(compute, step.tables))
        self._known[key] = step  # what was used last is last
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]
        return result, step.tables

    def forget(self) -> None:
        """What was captured computes with what is there no more."""
        self._known.clear()

    def _again(self, step: "_Known", work: Callable[[], Tensor]) -> Tensor:
        if not step.graph and not self.refused:
            step.graph = self._captured(work)
        if not step.graph:
            return work()
        replay, result = step.graph
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
class _Known:
    tables: Tables
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
