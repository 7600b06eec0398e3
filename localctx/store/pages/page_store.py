"""PageStore: the seam for places where sealed pages outlive the process, and prefix matching over any of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from localctx.kv.pages import Activation, page_names, snapshot_key
from localctx.shape import PAGE, KVShape, SnapshotKind

PageKey = tuple[bytes, bytes]
"""A page's name and its packed tokens: enough to find a page and to verify that it is the right one."""


class OpenedPage(NamedTuple):
    """A page's verified bytes (uint8), or why they cannot be trusted. Neither: there is no page of that name."""

    payload: np.ndarray | None = None
    fault: str = ""


class PageStore(Protocol):
    """A place where sealed pages live under their names: the local folder, or a remote one.

    A page is immutable: two pages of one name have the same bytes. Raises OSError, or what ``store_errors`` knows, if
    the place cannot be reached.
    """

    def append(self, pages: Sequence[tuple[PageKey, np.ndarray]]) -> None:
        """Store these pages, except those whose names are there; return once they are durable."""

    def open(self, keys: Sequence[PageKey]) -> Iterator[OpenedPage]:
        """Yield each of these pages, in order, after comparing its tokens and its checksum."""

    def unlink(self, names: Iterable[bytes]) -> None:
        """Remove the pages of these names. Processes that have one mapped can go on reading it."""

    def verify(self, on_progress: Callable[[int, int], None]) -> list[bytes]:
        """Read every page; returns the names of those whose bytes are not what was written.

        ``on_progress`` gets the bytes that were read and those there are.
        """


class RemotePageStore(PageStore, Protocol):
    """A PageStore on another machine, as ``RemoteSync`` needs it. It must not learn what it stores.

    Raises OSError as well if the place does not answer in time.
    """

    def has(self, name: bytes) -> bool:
        """Returns True if something is stored under ``name``, which may still be damaged."""

    def has_our_key(self, write: bool) -> bool:
        """Returns True if the pages were encrypted with our key. An empty place is marked with it, if ``write``."""


@dataclass
class PrefixMatch:
    """The stored pages that a prompt begins with, as mapped bytes, and why they end early if a page was damaged.

    ``tail`` is the open page at the prompt's end, if it was stored too; ``damaged`` are the names of damaged pages.
    ``states`` is the snapshot of the model's states after the last of them, ``windows`` are the parts of sliding layers
    of those that these layers see, by the index of the page.
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
    """Returns the longest run of stored pages that ``tokens`` begin with, all verified; names are those of
    ``page_names``. The run ends where a sequence of this ``shape`` can go on (None: after every page).

    Pages behind a damaged one are verified too, so that one reading repairs all of them.
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
    """The search for the last snapshot beside the pages ``keys`` of a sequence of ``tokens`` tokens."""

    def __init__(
        self, pages: PageStore, shape: KVShape, keys: Sequence[PageKey], tokens: int, match: PrefixMatch
    ) -> None:
        self._pages, self._shape, self._keys, self._tokens, self._match = pages, shape, keys, tokens, match

    def verify(self) -> None:
        """Read the snapshots behind the run, where a page was damaged, to find those that are."""
        for position in range(len(self._match.payloads), len(self._keys)):
            for kind in self._shape.snapshots:
                self._open(kind, position)

    def cut(self) -> None:
        """Drop the pages after the last one where the sequence can go on."""
        match = self._match
        while match.payloads:
            stop = self._end_of_windows()
            if stop == len(match.payloads) and self._take_states():
                break
            del match.payloads[min(stop, len(match.payloads) - 1) :]
        seen = self._seen()
        match.windows = {i: x for i, x in match.windows.items() if i in seen}

    def _seen(self) -> range:
        """The whole pages of the run that sliding layers see after it."""
        return self._shape.pages_seen(min(len(self._match.payloads) * PAGE, self._tokens))

    def _end_of_windows(self) -> int:
        """Returns how many pages the run has if sliding layers have what they see, else the last that they lack."""
        for i in reversed(self._seen()):
            if i not in self._match.windows:
                payload = self._open("sliding", i)
                if payload is None:
                    return i
                self._match.windows[i] = payload
        return len(self._match.payloads)

    def _take_states(self) -> bool:
        """Take the states after the run; False if there are none, though the shape has states."""
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
