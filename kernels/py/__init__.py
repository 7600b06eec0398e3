"""Tensors in, tensors out: a torch reference beside every fast path. No state, no files but compiled
kernels, imports nothing of ours.
"""

import os
from hashlib import sha256
from pathlib import Path

from numba import config

_SOURCES = Path(__file__).parent


def compiled_in(sources: Path, cache: Path) -> Path:
    """The folder where numba caches what it compiled from exactly these ``sources``. Numba checks whether the file of a
    function has changed, but not the files of the functions that it calls: it would reuse outdated code.
    """
    digest = sha256(b"\0".join(path.read_bytes() for path in sorted(sources.rglob("*.py"))))
    return cache / f"localctx-{digest.hexdigest()[:16]}"


def _cache() -> Path:
    """The user's choice; or beside the sources; or in the user's cache folder, where that is read-only."""
    if given := getattr(config, "CACHE_DIR", ""):
        return Path(given)
    beside = _SOURCES / "__pycache__"
    if os.access(beside if beside.exists() else _SOURCES, os.W_OK):
        return beside
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "numba"


CACHE = compiled_in(_SOURCES, _cache())
"""The folder of what is compiled from these sources."""
setattr(config, "CACHE_DIR", str(CACHE))  # noqa: B010, so that types agree
