"""Makes Triton's interpreter quicker, for kernels that call many functions."""

from functools import cache
from typing import Any

from triton.runtime import interpreter
from triton.runtime.interpreter import GridExecutor, InterpretedFunction


@cache
def patch_once_per_launch() -> None:
    """Patch Triton's language once per launch in each module. Triton patches it again whenever a kernel calls a
    function, which takes a quarter of the time.
    """
    launch, patched = GridExecutor.__call__, set[int]()

    def launch_anew(grid: GridExecutor, *args: Any, **kwargs: Any) -> None:
        patched.clear()  # a launch ends with Triton's language as it was
        launch(grid, *args, **kwargs)

    def call(function: InterpretedFunction, *args: Any, **kwargs: Any) -> Any:
        module = id(function.fn.__globals__)
        if module not in patched:
            interpreter._patch_lang(function.fn)
            patched.add(module)
        return function.rewrite()(*args, **kwargs)

    GridExecutor.__call__, InterpretedFunction.__call__ = launch_anew, call
