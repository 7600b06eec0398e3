"""PageStore: the interface of persistent stores of sealed pages. ``longest_prefix`` finds the stored prefix of a prompt
in any such store.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from localctx.kv.pages import Activation, page_names, snapshot_key
from localctx.shape import PAGE, KVShape, SnapshotKind

PageKey = tuple[bytes, bytes]
"""A page's name and its packed tokens: enough to find a page and to verify its identity."""


class OpenedPage(NamedTuple):
    """The result of opening a stored page. ``payload`` has its verified bytes (uint8). If the page is damaged,
    ``fault`` says what is wrong. If no page of that name is stored, ``payload`` is None and ``fault`` is empty.
    """

    payload: np.ndarray | None = None
    fault: str = ""


class PageStore(Protocol):
    """A store of sealed pages by name, in the local folder or on another machine. The name of a page is a hash of its
    tokens and of all tokens before it.

    Pages are immutable: two pages of one name have the same bytes. Methods raise OSError, or an error that
    ``store_errors`` handles, if the store cannot be reached.
    """

    def append(self, pages: Sequence[tuple[PageKey, np.ndarray]]) -> None:
        """Store these pages, except pages whose names are stored already. Returns once the pages are durable."""

    def open(self, keys: Sequence[PageKey]) -> Iterator[OpenedPage]:
        """Yields the pages of ``keys``, in order, after verifying the tokens and checksum of each."""

    def unlink(self, names: Iterable[bytes]) -> None:
        """Remove the pages of these names. Processes that have mapped a removed page can still read it."""

    def verify(self, on_progress: Callable[[int, int], None]) -> list[bytes]:
        """Read and check every page. Returns the names of the damaged pages. If the name of a damaged page cannot be
        read, the id of the stored object is returned instead.

        Calls ``on_progress`` with the number of bytes read and the total number of bytes.
        """


class RemotePageStore(PageStore, Protocol):
    """A PageStore on another machine. The other machine must not learn the content of pages.

    Methods also raise OSError if the other machine does not answer in time.
    """

    def has(self, name: bytes) -> bool:
        """Returns True if a page is stored under ``name``; it may be damaged."""

    def has_our_key(self, write: bool) -> bool:
        """Returns True if all stored pages were encrypted with our key. If ``write``, an empty store is marked with our
        key.
        """


@dataclass
class PrefixMatch:
    """The longest stored prefix of a prompt. ``payloads`` are the mapped bytes of its pages. ``fault`` says what was
    wrong with the first damaged page, if any.

    ``tail`` is the open page at the end of the prompt, if stored. ``damaged`` are the names of damaged pages.
    ``states`` is the snapshot of the model's recurrent states after the last page. For sliding-window layers,
    ``windows`` maps the index of a page to the bytes of its SLIDING part, for the pages that these layers still see.
    """

    payloads: list[np.ndarray] = field(default_factory=list)
    tail: np.ndarray | None = None
    states: np.ndarray | None = None
    windows: dict[int, np.ndarray] = field(default_factory=dict)
    fault: str | None = None
    damaged: list[bytes] = field(default_factory=list)


def longest_prefix(
    pages: PageStore,
    fingerprint: bytes,
    tokens: Sequence[int],
    activation: Activation | None = None,
    shape: KVShape | None = None,
) -> PrefixMatch:
    """Find the longest prefix of ``tokens`` whose pages are stored, and verify these pages. ``page_names`` computes the
    names of the pages from ``fingerprint``, ``tokens`` and ``activation``.

    With ``shape``, the prefix ends after the last page from which a model of this shape can continue, because the
    snapshots that the model needs are stored (None: after any page). Pages after a damaged page are verified too, so
    that one prefill repairs all damage.
    """
    match, keys = PrefixMatch(), list(page_names(fingerprint, tokens, activation))
    for (name, _), page in zip(keys, pages.open(keys), strict=True):
        if page.fault:
            match.fault = match.fault or f"kept page {len(match.payloads) + 1} {page.fault}"
            match.damaged.append(name)
        elif page.payload is None and not match.damaged:
            break
        elif page.payload is not None and not match.damaged:
            match.payloads.append(page.payload)
    if shape and shape.snapshots:
        search = _SnapshotSearch(pages, shape, keys, len(tokens), match)
        if match.damaged:
            search.verify()
        search.cut()
    if len(match.payloads) * PAGE > len(tokens):
        match.tail = match.payloads.pop()
    return match


class _SnapshotSearch:
    """Shortens a PrefixMatch to the last page whose stored snapshots let the sequence continue there. ``keys`` are the
    keys of the sequence's pages, and ``tokens`` is the number of its tokens.
    """

    def __init__(
        self, pages: PageStore, shape: KVShape, keys: Sequence[PageKey], tokens: int, match: PrefixMatch
    ) -> None:
        self._pages, self._shape, self._keys, self._tokens, self._match = pages, shape, keys, tokens, match

    def verify(self) -> None:
        """Read the snapshots after the prefix, to find damaged snapshots."""
        for position in range(len(self._match.payloads), len(self._keys)):
            for kind in self._shape.snapshots:
                self._open(kind, position)

    def cut(self) -> None:
        """Drop the pages after the last one where the sequence can continue."""
        match = self._match
        while match.payloads:
            stop = self._end_of_windows()
            if stop == len(match.payloads) and self._take_states():
                break
            del match.payloads[min(stop, len(match.payloads) - 1) :]
        seen = self._seen()
        match.windows = {i: x for i, x in match.windows.items() if i in seen}

    def _seen(self) -> range:
        """Returns the indices of the pages that the sliding-window layers still see at the end of the prefix."""
        return self._shape.pages_seen(min(len(self._match.payloads) * PAGE, self._tokens))

    def _end_of_windows(self) -> int:
        """Load the snapshots that the sliding-window layers need at the end of the prefix. Returns the number of pages
        in the prefix if all are stored, else the last index without a snapshot.
        """
        for i in reversed(self._seen()):
            if i not in self._match.windows:
                payload = self._open("sliding", i)
                if payload is None:
                    return i
                self._match.windows[i] = payload
        return len(self._match.payloads)

    def _take_states(self) -> bool:
        """Load the recurrent states at the end of the prefix. Returns False if the model has such states, but no
        snapshot of them is stored there.
        """
        if self._shape.states:
            self._match.states = self._open("states", len(self._match.payloads) - 1)
        return not self._shape.states or self._match.states is not None

    def _open(self, kind: SnapshotKind, position: int) -> np.ndarray | None:
        key = snapshot_key(self._keys[position], kind)
        (opened,) = self._pages.open([key])
        if opened.fault:
            self._match.fault = self._match.fault or f"a kept snapshot {opened.fault}"
            self._match.damaged.append(key[0])
        return opened.payload
