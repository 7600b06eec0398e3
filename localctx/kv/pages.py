"""Page names, and reference counts of sealed pages. Integers and bytes, no tensors.

The name of a page covers everything that its bytes depend on: ``h0 = fingerprint``, ``h_i = sha256(h_{i-1} ||
tokens)``. Names are chained as in vLLM's prefix caching. If an adapter computes the last tokens of a sequence, the
names of pages with such tokens include the adapter.
"""

import hashlib
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from localctx.shape import PAGE, SnapshotKind


class Activation(NamedTuple):
    """Says that an adapter computes the tokens of a sequence from token ``start`` on. ``fingerprint`` is that of the
    adapter.
    """

    fingerprint: bytes
    start: int


def pack_tokens(tokens: Iterable[int]) -> bytes:
    """Returns token ids as little-endian uint32."""
    packed = array("I", tokens)
    assert packed.itemsize == 4
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_tokens(packed: bytes) -> list[int]:
    """Returns the token ids of ``pack_tokens`` output."""
    tokens = array("I", packed)
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens.tolist()


def next_name(parent: bytes, tokens: bytes) -> bytes:
    """Returns the name of the page that follows ``parent`` and holds ``tokens`` (packed)."""
    return hashlib.sha256(parent + tokens).digest()


def page_names(
    fingerprint: bytes, tokens: Sequence[int], activation: Activation | None = None
) -> Iterator[tuple[bytes, bytes]]:
    """Yields (name, packed tokens) of every page of ``tokens``, in order. The last page may be an open one with fewer
    than 64 tokens.

    Pages that end before an ``activation`` have the same names as without it. Later pages have other names.
    """
    name, first = fingerprint, activation.start // PAGE * PAGE if activation else None
    for start in range(0, len(tokens), PAGE):
        packed = pack_tokens(tokens[start : start + PAGE])
        if activation and start == first and activation.start < start + len(packed) // 4:
            name = next_name(name, activation.fingerprint + pack_tokens([activation.start]))
        name = next_name(name, packed)
        yield name, packed


def snapshot_key(page: tuple[bytes, bytes], kind: SnapshotKind) -> tuple[bytes, bytes]:
    """Returns the name of the snapshot of this ``kind`` stored beside ``page``: (name, packed tokens). The result is a
    (name, packed tokens) too, without tokens.
    """
    return next_name(page[0], kind.encode()), b""


class PageReferences:
    """Reference counts of page ids. An id is never reused, so a stale id raises and never names another page."""

    def __init__(self) -> None:
        self._refs: dict[int, int] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._refs)

    def new(self) -> int:
        """Returns a new page id with one reference."""
        page, self._next = self._next, self._next + 1
        self._refs[page] = 1
        return page

    def share(self, page: int) -> int:
        """Add a reference to ``page`` and return ``page``."""
        assert page in self._refs, f"page {page} is gone"
        self._refs[page] += 1
        return page

    def release(self, page: int) -> bool:
        """Drop a reference. Returns True if it was the last one and the page is gone."""
        assert page in self._refs, f"page {page} is gone"
        self._refs[page] -= 1
        if self._refs[page]:
            return False
        del self._refs[page]
        return True

    def refs(self, page: int) -> int:
        """Returns the number of references to ``page``."""
        return self._refs.get(page, 0)
