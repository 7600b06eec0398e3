"""Calls a function where the stack of Python's frames has room, so that deep calls in it are quick.

CPython keeps frames in chunks of 16 KB. A loop whose calls cross the end of a chunk maps and unmaps memory at each
turn: a third of the time of tests that call a million small functions. A frame that is larger than a chunk gets one of
its own, of the next power of two, and the frames above it use the rest.
"""

from collections.abc import Callable

_VARIABLES = (1 << 16) + 1  # of 8 bytes: the chunk is of 1 MB, and half of it stays free
_LARGE_FRAME = f"""
def call_with_room(function):
    return function()
    {" = ".join(f"v{n}" for n in range(_VARIABLES))} = None
"""

_made: dict[str, Callable[[Callable[[], object]], object]] = {}
exec(_LARGE_FRAME, _made)

call_with_room = _made["call_with_room"]
"""Returns what a function without arguments returns."""
