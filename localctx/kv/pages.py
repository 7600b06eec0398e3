"""Names of pages, and reference counts of sealed pages. This module has integers and bytes only, no tensors.

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
    """Says that a LoRA adapter applies to a sequence from token ``start`` on. ``fingerprint`` identifies the
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
    """Returns the token ids in ``packed``, which ``pack_tokens`` made."""
    tokens = array("I", packed)
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens.tolist()


def next_name(parent: bytes, tokens: bytes) -> bytes:
    """Returns the name of the page with the packed ``tokens`` that follows the page named ``parent``."""
    return hashlib.sha256(parent + tokens).digest()


def page_names(
    fingerprint: bytes, tokens: Sequence[int], activation: Activation | None = None
) -> Iterator[tuple[bytes, bytes]]:
    """Yields (name, packed tokens) of every page of a sequence with these ``tokens``, in order. The last page may be an
    open one with fewer than 64 tokens. ``fingerprint`` is the fingerprint of the model and codec.

    If a LoRA adapter applies (``activation``), the pages that end before its first token have the same names as without
    the adapter. Later pages have other names.
    """
    name, first = fingerprint, activation.start // PAGE * PAGE if activation else None
    for start in range(0, len(tokens), PAGE):
        packed = pack_tokens(tokens[start : start + PAGE])
        if activation and start == first and activation.start < start + len(packed) // 4:
            name = next_name(name, activation.fingerprint + pack_tokens([activation.start]))
        name = next_name(name, packed)
        yield name, packed


def snapshot_key(page: tuple[bytes, bytes], kind: SnapshotKind) -> tuple[bytes, bytes]:
    """Returns the key under which a snapshot of this ``kind`` is stored beside ``page``. Both are (name, packed
    tokens); the tokens of a snapshot's key are empty.
    """
    return next_name(page[0], kind.encode()), b""


class PageReferences:
    """Counts the references to pages by page id. An id is never reused, so the id of a released page raises an error
    and never refers to another page.
    """

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
        """Drop one reference to ``page``. Returns True if that was the last reference, so that the page no longer
        exists.
        """
        assert page in self._refs, f"page {page} is gone"
        self._refs[page] -= 1
        if self._refs[page]:
            return False
        del self._refs[page]
        return True

    def refs(self, page: int) -> int:
        """Returns the number of references to ``page``."""
        return self._refs.get(page, 0)
