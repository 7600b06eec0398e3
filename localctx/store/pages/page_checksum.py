"""Computes and checks the checksum of a page's bytes, for page files, exported documents and remote stores."""

import numpy as np
from xxhash import xxh3_128_digest


def page_checksum(payload: memoryview) -> bytes:
    """Returns the XXH3 checksum (16 bytes) of a page. It detects damage, not deliberate changes."""
    return xxh3_128_digest(payload)


def verified(payload: np.ndarray, checksum: bytes) -> np.ndarray | None:
    """Returns ``payload`` if it has this ``checksum``, else None."""
    return payload if page_checksum(payload.data) == checksum else None
