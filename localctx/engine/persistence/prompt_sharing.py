"""Sharing what prompts begin with, in memory: a prompt word for word goes on from the pages of earlier ones.

A page depends on the pass that it was computed in, too: with which tokens, and how many. So every prompt is read in
passes that end at the same places, which its tokens alone decide, and the names of pages say these places as well. What
is shared is then to the bit what reading it again would compute.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import Generic, TypeVar

from localctx.kv.cache import Cache
from localctx.kv.pages import next_name, pack_tokens
from localctx.kv.retained_pages import RetainedPages, SharedKey
from localctx.kv.sequence_cache import SequenceCache
from localctx.shape import PAGE

AnyCache = TypeVar("AnyCache", bound=SequenceCache)


class Sharing(ABC, Generic[AnyCache]):
    """What a prompt shares with others in memory. Its prefill stops at ``ends``."""

    ends: Sequence[int]

    @abstractmethod
    def begin(self, cache: AnyCache) -> None:
        """Put what is there of the prompt's beginning into ``cache``, in place of what it was restored, if that is not
        more.
        """

    @abstractmethod
    def after_chunk(self, cache: AnyCache, chunk_is_planned: bool) -> None:
        """Retain what was prefilled up to here, if others may begin with it. To be called after each chunk, and whether
        chunks still are as planned, and not smaller for want of memory.
        """


class PromptSharing(Sharing[Cache]):
    """Begins the cache of a prompt of ``tokens`` with pages of earlier prompts, and retains its own pages while it is
    prefilled in passes that end at ``ends``. Pages are named under ``root``, and take at most ``budget()`` bytes.
    """

    def __init__(
        self,
        retained: RetainedPages,
        root: bytes,
        tokens: Sequence[int],
        ends: Sequence[int],
        budget: Callable[[], int],
    ) -> None:
        self.ends, self._retained, self._budget = ends, retained, budget
        self._keys = list(sharing_keys(root, tokens, ends))
        self._shared: int | None = None  # tokens in the cache that are what their names say; None: the cache's are not

    def begin(self, cache: Cache) -> None:
        found = self._retained.find(cache.pool, self._keys, self.ends)
        if found and len(found) * PAGE >= cache.length:
            cache.trim(0)
            cache.share_pages([page.parts for page in found], found[-1].states)
        elif cache.length:
            return
        self._shared = cache.length

    def after_chunk(self, cache: Cache, chunk_is_planned: bool) -> None:
        """See ``Sharing``: nothing more is retained once a chunk was smaller than planned."""
        if not chunk_is_planned or not cache.exact:
            self._shared = None
        if self._shared is not None and cache.length in self.ends:
            self._retained.add(cache, self._keys[: cache.length // PAGE])
            self._retained.shrink_to(self._budget())


def pass_ends(tokens: Sequence[int], stop_ids: Collection[int], chunk: int) -> list[int]:
    """Returns the whole pages, in tokens, after which passes over ``tokens`` end: in which a turn ends (a token of
    ``stop_ids``), and every ``chunk`` from there. The last token is not in them: its logits are wanted.
    """
    ends, last = list[int](), 0
    turns = [(i + 1) // PAGE * PAGE for i, token in enumerate(tokens) if token in stop_ids]
    for end in (*turns, len(tokens)):
        if last < end < len(tokens):
            ends += [*range(last + chunk, end, chunk), end]
            last = end
    ends += range(last + chunk, len(tokens), chunk)
    return [end for end in ends if end % PAGE == 0]


def sharing_root(fingerprint: bytes, chunk: int) -> bytes:
    """Returns the name before the first page where passes have at most ``chunk`` tokens."""
    return hashlib.sha256(fingerprint + b"passes" + pack_tokens([chunk])).digest()


def sharing_keys(root: bytes, tokens: Sequence[int], ends: Sequence[int]) -> Iterator[SharedKey]:
    """Yield the name and packed tokens of every page up to the last of ``ends``. Names are chained as stored ones are,
    with the passes in them.
    """
    name = root
    for start, end in pairwise((0, *ends)):
        for at in range(start, end, PAGE):
            packed = pack_tokens(tokens[at : at + PAGE])
            name = next_name(name, packed + pack_tokens((start, end)))
            yield name, packed
