"""What a CUDA graph does, without a GPU: operations are noted with the memory they work on, and run again there.

Whatever Python decided or put into memory meanwhile stays as it was, as in a graph. Unlike in one, memory that was used
stays there, and kernels by Triton have computed once before.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from triton.runtime.interpreter import GridExecutor

WAITS = {"item", "_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "equal", "_unique2", "bincount"}
"""Operations whose result a processor must have before it goes on."""
FROM_PYTHON = {"lift_fresh", "from_file"}
TO_PYTHON = {getattr(Tensor, name) for name in ("cpu", "numpy", "tolist", "item", "__array__", "__bool__", "__index__")}


class Refuser(TorchFunctionMode):
    """Raises RuntimeError where Python looks at numbers: on a processor some of that is no operation."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in TO_PYTHON:
            raise _refused(func)
        return func(*args, **(kwargs or {}))


def _refused(what: object) -> RuntimeError:
    return RuntimeError(f"operation not permitted when stream is capturing: {what}")


class Recorder(TorchDispatchMode):
    """Notes what is done on its device while it is entered. Raises RuntimeError for what a graph cannot have."""

    def __init__(self) -> None:
        super().__init__()
        self._again = list[Callable[[], object]]()
        self._made, self._before = list[Tensor](), list[tuple[Tensor, Tensor]]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("aten::").split(".")[0]
        if name in WAITS | FROM_PYTHON or (name == "where" and len(args) == 1):
            raise _refused(func)
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
    with recorder._noting_launches(), Refuser(), recorder:
        result = work()
    recorder.undo()
    return recorder.replay, result
