"""What outlives the process: documents, page names and page payloads. Knows pages, not models."""

import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec


class _NoPandas:
    """A finder to which pandas is not installed, for the thread that made it.

    sqlite_utils imports it where it is there, as it is beside gradio, for what nothing here uses: 0.2 s.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        if name == "pandas" and threading.get_ident() == self._thread:
            raise ImportError("not for sqlite_utils")
        return None


_finder = _NoPandas()
sys.meta_path.insert(0, _finder)
try:
    import sqlite_utils  # noqa: F401
finally:
    sys.meta_path.remove(_finder)
