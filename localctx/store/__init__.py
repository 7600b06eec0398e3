"""The persistent store of documents and KV pages. It stores pages as bytes, and does not depend on models."""

import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec


class _NoPandas:
    """An import finder that hides pandas from the thread that created it.

    sqlite_utils imports pandas if it is installed, as it is with gradio. The import takes 0.2 s and nothing uses it.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        if name == "pandas" and threading.get_ident() == self._thread:
            raise ImportError("hidden from sqlite_utils")
        return None


_finder = _NoPandas()
sys.meta_path.insert(0, _finder)
try:
    import sqlite_utils  # noqa: F401
finally:
    sys.meta_path.remove(_finder)
