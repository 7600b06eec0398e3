"""Kernels: functions that take and return tensors. Every fast kernel has a torch reference.

They have no state, write no files except compiled kernels, and import nothing else of localctx.
"""

import os
from hashlib import sha256
from pathlib import Path

from numba import config

_SOURCES = Path(__file__).parent


def compiled_in(sources: Path, cache: Path) -> Path:
    """Returns the folder inside ``cache`` where numba stores the code compiled from the files in ``sources``. The name
    of the folder is a digest of these files, so a change in any of them makes numba compile again.

    Numba itself only checks the file of the function that it loads, not the files of the functions that it calls.
    """
    digest = sha256(b"\0".join(path.read_bytes() for path in sorted(sources.rglob("*.py"))))
    return cache / f"localctx-{digest.hexdigest()[:16]}"


def _cache() -> Path:
    """Returns the cache folder of compiled kernels: the user's choice, else a folder beside the sources, or one in the
    user's cache folder if the sources are read-only.
    """
    if given := getattr(config, "CACHE_DIR", ""):
        return Path(given)
    beside = _SOURCES / "__pycache__"
    if os.access(beside if beside.exists() else _SOURCES, os.W_OK):
        return beside
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "numba"


CACHE = compiled_in(_SOURCES, _cache())
"""The folder of the kernels compiled from these sources."""
setattr(config, "CACHE_DIR", str(CACHE))  # noqa: B010, so that types agree
