"""Gives kernels the language Gluon: Triton with layouts, which say which thread holds which elements of a tensor.

Triton's interpreter cannot run Gluon. In the interpreter, ``gl`` is Triton's own language, and layouts are ignored. So
the interpreter checks the numbers, and the compiler checks the layouts (``assert_trivial``: no data moves between
threads).
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import triton
import triton.language as tl

INTERPRETED = bool(triton.knobs.runtime.interpret)
HAS_GLUON = INTERPRETED


class _SharedMemory:
    """Stands in for a program's shared memory in the interpreter: one tensor, or several by index."""

    def __init__(self) -> None:
        self._parts: dict[int, _SharedMemory] = {}
        self.value: Any = None

    def index(self, i: Any) -> "_SharedMemory":
        return self._parts.setdefault(int(i), _SharedMemory())

    def load(self, layout: object) -> Any:
        return self.value


class _Copies:
    """Stands in for asynchronous copies to shared memory in the interpreter. A copy is done by ``wait_group``, and not
    earlier.
    """

    def __init__(self) -> None:
        self._groups: list[list[tuple[_SharedMemory, Any]]] = [[]]

    def async_copy_global_to_shared(self, room: _SharedMemory, place: Any) -> None:
        self._groups[-1].append((room, place))

    def commit_group(self) -> None:
        self._groups.append([])

    def wait_group(self, most: int) -> None:
        while len(self._groups) > most + 1:
            for room, place in self._groups.pop(0):
                room.value = tl.load(place)


class _Language:
    """Triton's language with the function signatures of Gluon, for the interpreter. Layouts are ignored."""

    def __getattr__(self, name: str) -> Any:
        return (lambda *_, **__: None) if name.endswith("Layout") else getattr(tl, name)

    def arange(self, start: int, stop: int, layout: object = None) -> Any:
        return tl.arange(start, stop)

    def full(self, shape: tuple[int, ...], value: float, dtype: Any, layout: object = None) -> Any:
        return tl.full(shape, value, dtype)

    def convert_layout(self, x: Any, layout: object, assert_trivial: bool = False) -> Any:
        return x

    def allocate_shared_memory(self, dtype: object, shape: object, layout: object) -> _SharedMemory:
        return _SharedMemory()


def _dot(a: Any, b: Any, acc: Any) -> Any:
    return tl.dot(a, b, acc)


gl: Any = _Language()
async_copy: Any = _Copies()
mma_v2: Any = _dot
jit: Callable[..., Any] = triton.jit
if not INTERPRETED:
    try:
        _gluon = import_module("triton.experimental.gluon")
        _ampere = import_module("triton.experimental.gluon.language.nvidia.ampere")
        jit, gl, async_copy, mma_v2 = _gluon.jit, _gluon.language, _ampere.async_copy, _ampere.mma_v2
        HAS_GLUON = True
    except (ImportError, AttributeError):  # before Triton 3.5
        pass
