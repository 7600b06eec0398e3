"""In-memory prefix cache: a raw prompt reuses pages of earlier prompts with the same first tokens.

A page also depends on the tokens that shared its forward pass, and on their number. So the ends of passes depend on the
prompt's tokens alone, and page names include them. Shared pages then equal recomputed ones bit for bit.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import Generic, TypeVar

from localctx.kv.cache import Cache
from localctx.kv.pages import next_name, pack_tokens, page_names
from localctx.kv.retained_pages import RetainedPages, SharedKey
from localctx.kv.sequence_cache import SequenceCache
from localctx.models.llama_cpp.cache import LlamaCache
from localctx.shape import PAGE

AnyCache = TypeVar("AnyCache", bound=SequenceCache)


class Sharing(ABC, Generic[AnyCache]):
    """Shares the prefix of a prompt with other prompts in memory. Prefill chunks end at ``ends``."""

    ends: Sequence[int]

    @abstractmethod
    def begin(self, cache: AnyCache) -> None:
        """Load the longest cached prefix, unless the restored one is longer."""

    @abstractmethod
    def after_chunk(self, cache: AnyCache, chunk_is_planned: bool) -> None:
        """Retain the prefix prefilled so far, if others may share it. Call after each chunk. ``chunk_is_planned`` is
        False once chunks shrank because memory ran out.
        """


class PromptSharing(Sharing[Cache]):
    """Loads pages of earlier prompts for a prompt of ``tokens``, and retains its own pages while chunks end at
    ``ends``. Pages are named under ``root`` and take at most ``budget()`` bytes.
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
        self._shared: int | None = None  # tokens that match their page names; None: the cache's pages do not

    def begin(self, cache: Cache) -> None:
        found = self._retained.find(cache.pool, self._keys, self.ends)
        if found and len(found) * PAGE >= cache.length:
            cache.trim(0)
            cache.share_pages([page.parts for page in found], found[-1].states)
        elif cache.length:
            return
        self._shared = cache.length

    def after_chunk(self, cache: Cache, chunk_is_planned: bool) -> None:
        """See ``Sharing``: retains nothing more once a chunk was smaller than planned."""
        if not chunk_is_planned or not cache.exact:
            self._shared = None
        if self._shared is not None and cache.length in self.ends:
            self._retained.add(cache, self._keys[: cache.length // PAGE])
            self._retained.shrink_to(self._budget())


def pass_ends(tokens: Sequence[int], stop_ids: Collection[int], chunk: int) -> list[int]:
    """Returns the page boundaries, in tokens, where forward passes over ``tokens`` end: at the last whole page of each
    turn (ended by a token of ``stop_ids``), and every ``chunk`` tokens after. The last token is excluded, because its
    logits are needed.
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
    """Returns the name before the first page, for passes of at most ``chunk`` tokens."""
    return hashlib.sha256(fingerprint + b"passes" + pack_tokens([chunk])).digest()


def sharing_keys(root: bytes, tokens: Sequence[int], ends: Sequence[int]) -> Iterator[SharedKey]:
    """Yield the name and packed tokens of each page up to the last of ``ends``. Names are chained like stored ones, and
    include the forward passes.
    """
    name = root
    for start, end in pairwise((0, *ends)):
        for at in range(start, end, PAGE):
            packed = pack_tokens(tokens[at : at + PAGE])
            name = next_name(name, packed + pack_tokens((start, end)))
            yield name, packed


class LlamaSharing(Sharing[LlamaCache]):
    """For llama.cpp, whose memory keeps the last prompt: a prompt of ``tokens`` starts from the whole pages it shares
    with that one, or from all of it if the memory cannot be cut. Names begin with ``root``.
    """

    def __init__(self, root: bytes, tokens: Sequence[int]) -> None:
        end = len(tokens) - 1
        self.ends = (end,)
        names = [name for name, _ in page_names(root, tokens[:end])]
        self._ends = {name: min((i + 1) * PAGE, end) for i, name in enumerate(names)}

    def begin(self, cache: LlamaCache) -> None:
        if not cache.length:
            any(cache.begin_with(name) for name in reversed(self._ends))

    def after_chunk(self, cache: LlamaCache, chunk_is_planned: bool) -> None:
        if cache.exact and cache.length in self.ends:
            cache.retain(self._ends)
