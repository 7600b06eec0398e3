"""Steps that do the same again with other numbers: captured once as a CUDA graph, then replayed, without any Python."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from localctx.kv.tables import Arrays, Tables

Compute = Callable[[Tables], Tensor]
Replay = Callable[[], None]
Capture = Callable[[Callable[[], Tensor]], tuple[Replay, Tensor]]

MOST = 32  # graphs that are kept: one for each number of sequences, and for each doubling of the pages they have


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

        What comes the first time is computed, which compiles what has to be; nothing may be, during a capture.
        """
        key = likeness, tuple((name, x.dtype, x.shape) for name, x in arrays.items())
        known = self._known.pop(key, None)
        step = known or _Known(Tables(arrays, device))
        self._known[key] = step  # what was used last is last
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]
        step.tables.write(arrays)
        work = partial(compute, step.tables)
        if known and not step.graph and not self.refused:
            step.graph = self._captured(work)
        if not step.graph:
            return work(), step.tables
        replay, result = step.graph
        replay()
        return result.clone(), step.tables

    def forget(self) -> None:
        """What was captured computes with what is there no more."""
        self._known.clear()

    def _captured(self, work: Callable[[], Tensor]) -> tuple[Replay, Tensor] | None:
        try:
            return self._capture(work)
        except RuntimeError as e:  # it waits for the device somewhere
            self.refused = str(e).splitlines()[0]
            return None


@dataclass
class _Known:
    tables: Tables
    graph: tuple[Replay, Tensor] | None = None


class CudaCapture:
    """``Capture`` on a CUDA ``device``. All graphs share memory for what lies between: no two run at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def __call__(self, work: Callable[[], Tensor]) -> tuple[Replay, Tensor]:
        graph = torch.cuda.CUDAGraph()
        how = {"pool": self._memory, "capture_error_mode": "thread_local"}
        with torch.cuda.device(self._device), torch.cuda.graph(graph, **how):
            result = work()
        return graph.replay, result

    @cached_property
    def _memory(self) -> Any:
        return torch.cuda.graph_pool_handle()
