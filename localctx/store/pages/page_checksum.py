"""The checksum of a page's bytes, wherever they are kept: in a page file, an exported document, a remote store."""

from xxhash import xxh3_128_digest


def page_checksum(payload: memoryview) -> bytes:
    """The checksum (XXH3, 16 bytes) of a page. It finds damage; it does not protect against deliberate changes."""
    return xxh3_128_digest(payload)
