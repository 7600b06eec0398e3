"""Tensors in, tensors out: a torch reference beside every fast path. No state, no files, imports nothing of ours."""

import os
from hashlib import sha256
from pathlib import Path

from numba import config

_HERE = Path(__file__).parent


def compiled_in(sources: Path, cache: Path) -> Path:
    """Where numba keeps what it compiled of just these ``sources``. By itself it looks whether the file of a function
    has changed, and not those of the functions that it calls: it would go on with the old ones.
    """
    whole = sha256(b"\0".join(path.read_bytes() for path in sorted(sources.glob("*.py"))))
    return cache / f"localctx-{whole.hexdigest()[:16]}"


_given = getattr(config, "CACHE_DIR", "")
if _given or os.access(_HERE, os.W_OK):
    setattr(config, "CACHE_DIR", str(compiled_in(_HERE, Path(_given or _HERE / "__pycache__"))))  # noqa: B010, as typed
