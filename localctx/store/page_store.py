"""PageStore: the seam for places where sealed pages outlive the process, and prefix matching over any of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from localctx.kv.pages import Activation, page_names, states_key
from localctx.shape import PAGE

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
    ``states`` is the snapshot of the model's states after the last of them.
    """

    payloads: list[np.ndarray] = field(default_factory=list)
    tail: np.ndarray | None = None
    states: np.ndarray | None = None
    fault: str | None = None
    damaged: list[bytes] = field(default_factory=list)


def longest_prefix(
    pages: PageStore,
    fingerprint: bytes,
    tokens: Sequence[int],
    activation: Activation | None = None,
    *,
    with_states: bool = False,
) -> PrefixMatch:
    """Returns the longest run of stored pages that ``tokens`` begin with, all verified; names are those of
    ``page_names``. ``with_states``: the run ends with the last page that has a snapshot of states.

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
    if with_states:
        _cut_to_states(pages, match, keys)
    if len(match.payloads) * PAGE > len(tokens):
        match.tail = match.payloads.pop()
    return match


def _cut_to_states(pages: PageStore, match: PrefixMatch, keys: Sequence[PageKey]) -> None:
    """Drop the pages after the last snapshot of states, which is looked for from the end."""
    while match.payloads:
        key = states_key(keys[len(match.payloads) - 1])
        (opened,) = pages.open([key])
        if opened.payload is not None:
            match.states = opened.payload
            return
        if opened.fault:
            match.fault = match.fault or f"a kept snapshot {opened.fault}"
            match.damaged.append(key[0])
        match.payloads.pop()
