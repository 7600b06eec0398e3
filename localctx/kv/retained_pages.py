"""RetainedPages: sealed pages that outlive their sequences, so that a later prompt with the same prefix reuses them.

As in vLLM's automatic prefix caching, full pages are found by the hash chain of their tokens, shared by reference, and
the least recently used page is released first.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from localctx.kv.block_table import PageParts
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.kv.sequence_states import States
from localctx.shape import PAGE, KVShape

SharedKey = tuple[bytes, bytes]
"""The name of a page and its packed tokens."""


@dataclass(frozen=True)
class RetainedPage:
    """A sealed page that is kept for later prompts: its ``parts`` in ``pool`` and its packed ``tokens``. ``states`` are
    the recurrent states after the page, if the model has states and a sequence can continue there.
    """

    pool: Pool
    parts: PageParts
    tokens: bytes
    states: States | None = None

    @cached_property
    def nbytes(self) -> int:
        """The size in bytes of the page's parts, and of the recurrent states after the page."""
        states = sum(state.nbytes for state in (self.states or {}).values())
        return self.pool.bytes_of(np.array(self.parts.ids)) + states

    @property
    def is_unused(self) -> bool:
        """True if no sequence uses the page now."""
        return self.pool.references.refs(self.parts.full) == 1


class RetainedPages:
    """Sealed pages that stay in memory after their sequence has ended, so that a later prompt with the same prefix can
    reuse them. They are found by page name, and the least recently used is released first. A page has one or two parts
    (FULL and SLIDING); this object holds a reference to each.

    Pages that are also in the store are not retained, because prompts find them there.
    """

    def __init__(self) -> None:
        self._pages = OrderedDict[bytes, RetainedPage]()
        self.nbytes = 0  # of all pages

    def __len__(self) -> int:
        return len(self._pages)

    def unused_bytes(self, pool: Pool | None = None) -> int:
        """Returns the size in bytes, on the device, of the retained pages of ``pool`` that no sequence uses (None: of
        all pools). Releasing them would free this memory.
        """
        pages = [page for page in self._pages.values() if page.is_unused and pool in (None, page.pool)]
        return sum(page.pool.nbytes(page.parts.ids)["device"] for page in pages)

    def find(self, pool: Pool, keys: Sequence[SharedKey], ends: Sequence[int]) -> list[RetainedPage]:
        """Find the longest prefix of a prompt among the retained pages of ``pool``. ``keys`` are the names and packed
        tokens of the prompt's pages. Returns the retained pages of the prefix, in order. The prefix ends where a
        sequence can continue: after one of ``ends``, which are numbers of tokens.
        """
        found = list[RetainedPage]()
        for name, tokens in keys:
            page = self._pages.get(name)
            if page is None or page.pool is not pool or page.tokens != tokens:
                break
            found.append(page)
        for end in sorted(ends, reverse=True):
            if end <= len(found) * PAGE and _can_go_on(pool.shape, found[: end // PAGE]):
                self._touch(keys[: end // PAGE])
                return found[: end // PAGE]
        return []

    def add(self, cache: Cache, keys: Sequence[SharedKey]) -> None:
        """Retain the first pages of ``cache`` under ``keys``, their names and packed tokens, with the recurrent states
        after the last of these pages. The SLIDING part of a page is retained only if sliding-window layers still see
        the page from the end of these pages.
        """
        seen, pool, count = cache.pool.shape.pages_seen(len(keys) * PAGE), cache.pool, len(keys)
        states = cache.states.ends.get(count * PAGE)
        for i, (name, tokens) in enumerate(keys):
            parts = cache.placed_pages[i].parts
            parts = parts if i in seen else PageParts(parts.full)
            self._add(name, RetainedPage(pool, parts, tokens, states if i == count - 1 else None))
        self._touch(keys)

    def give_up(self, pool: Pool) -> bool:
        """Release the least recently used retained page of ``pool`` that no sequence uses. Returns False if there is
        none.
        """
        found = (name for name, page in self._pages.items() if page.pool is pool and page.is_unused)
        return self._release(next(found, None))

    def shrink_to(self, nbytes: int) -> None:
        """Release pages, least recently used first, until all retained pages take at most ``nbytes``."""
        while self.nbytes > nbytes:
            self._release(next(iter(self._pages)))

    def _add(self, name: bytes, page: RetainedPage) -> None:
        """Add a page. If a page with this ``name`` is retained already, it gets the states and the sliding part that it
        lacks.
        """
        old = self._pages.get(name)
        if old and (old.pool is not page.pool or old.tokens != page.tokens):
            return
        references = page.pool.references
        if old is None:
            for part in page.parts.ids:
                references.share(part)
            self._set(name, page)
            return
        sliding = old.parts.sliding
        if sliding is None and page.parts.sliding is not None:
            sliding = references.share(page.parts.sliding)
        self._set(name, replace(old, parts=PageParts(old.parts.full, sliding), states=old.states or page.states))

    def _set(self, name: bytes, page: RetainedPage) -> None:
        old = self._pages.get(name)
        self.nbytes += page.nbytes - (old.nbytes if old else 0)
        self._pages[name] = page

    def _release(self, name: bytes | None) -> bool:
        if name is None:
            return False
        page = self._pages.pop(name)
        self.nbytes -= page.nbytes
        page.pool.release(page.parts.ids)
        return True

    def _touch(self, keys: Sequence[SharedKey]) -> None:
        """Mark these pages as used now. The first page is marked last, because without it the
        others cannot be found.
        """
        for name, _ in reversed(keys):
            if name in self._pages:
                self._pages.move_to_end(name)


def _can_go_on(shape: KVShape, pages: Sequence[RetainedPage]) -> bool:
    """Returns True if a sequence can continue after ``pages``: the recurrent states and the pages that sliding layers
    see are present.
    """
    seen = shape.pages_seen(len(pages) * PAGE)
    windows = all(pages[i].parts.sliding is not None for i in seen)
    return windows and (not shape.states or pages[-1].states is not None)
