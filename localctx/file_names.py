"""Converts file names to text that can be printed or stored, and back.

A name may contain bytes that are not UTF-8. Python represents them as lone surrogates, which cannot be encoded.
"""

import os
import re
from pathlib import Path

_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile(r"\\x([89a-f][0-9a-f])")


def shown_name(name: str | Path) -> str:
    """Returns a name, or other command line text, with a replacement character for each byte that is not UTF-8."""
    return _SURROGATE.sub("\ufffd", os.fspath(name))


def stored_path(path: str | Path) -> str:
    r"""Returns a path as text that can be stored and printed: bytes that are not UTF-8 are written as ``\xff``."""
    return _SURROGATE.sub(lambda found: _escaped(ord(found[0])), os.fspath(path))


def real_path(stored: str) -> Path:
    """Returns the path of the file for ``stored``, a result of ``stored_path``."""
    if os.path.lexists(stored):
        return Path(stored)
    return Path(_ESCAPED.sub(lambda found: chr(0xDC00 + int(found[1], 16)), stored))


def _escaped(surrogate: int) -> str:
    """Returns ``\\xff`` for a byte that Python represents as this surrogate, or a replacement character for other
    surrogates.
    """
    return f"\\x{surrogate - 0xDC00:02x}" if 0xDC80 <= surrogate <= 0xDCFF else "\ufffd"
