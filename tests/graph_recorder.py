"""What a CUDA graph does, without a GPU: operations are noted with the memory they work on, and run again there.

Whatever Python decided or put into memory meanwhile stays as it was, as in a graph.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from triton.runtime.interpreter import GridExecutor

WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "is_pinned", "equal.default")
"""Operations whose result a processor must have before it goes on."""
FROM_PYTHON = ("lift_fresh", "from_file")


class Recorder(TorchDispatchMode):
    """Notes what is done on its device while it is entered. Raises RuntimeError for what a graph cannot have."""

    def __init__(self) -> None:
        super().__init__()
        self._again = list[Callable[[], object]]()
        self._made, self._before = list[Tensor](), list[tuple[Tensor, Tensor]]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name()
        if any(word in name for word in WAITS + FROM_PYTHON):
            raise RuntimeError(f"operation not permitted when stream is capturing: {name}")
        for said, x in zip(func._schema.arguments, args, strict=False):
            if said.alias_info and said.alias_info.is_write:
                self._before.append((x, x.clone()))
        made = func(*args, **(kwargs or {}))
        of = {_place(x) for x in tree_leaves((args, kwargs or {})) if isinstance(x, Tensor)}
        fresh = [x for x in tree_leaves(made) if isinstance(x, Tensor) and _place(x) not in of]
        if "empty" in name or not (fresh or func._schema.is_mutable):
            return made  # nothing yet, or a view of what is there
        self._made += fresh
        self._again.append(lambda: _redo(func, args, kwargs or {}, fresh))
        return made

    @contextmanager
    def _noting_launches(self) -> Iterator[None]:
        launch = GridExecutor.__call__

        def noted(grid: Any, *args: Any, **kwargs: Any) -> None:
            with torch.utils._python_dispatch._disable_current_modes():
                launch(grid, *args, **kwargs)
            self._again.append(lambda: launch(grid, *args, **kwargs))

        GridExecutor.__call__ = noted
        try:
            yield
        finally:
            GridExecutor.__call__ = launch

    def undo(self) -> None:
        """A graph computes nothing while it is captured."""
        for x, before in reversed(self._before):
            x.copy_(before)
        for x in self._made:
            if x.is_floating_point():
                x.fill_(torch.nan)

    def replay(self) -> None:
        """All of it again, in order."""
        for redo in self._again:
            redo()


def _place(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _redo(func: Any, args: Any, kwargs: Any, fresh: list[Tensor]) -> None:
    made = tree_leaves(func(*args, **kwargs))
    if fresh:
        assert len(made) == len(fresh)
    for place, x in zip(fresh, made, strict=False):
        place.copy_(x)


def record(work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
    """A ``Capture``."""
    recorder = Recorder()
    with recorder._noting_launches(), recorder:
        result = work()
    recorder.undo()
    return recorder.replay, result
