"""In-memory prefix cache: a raw prompt reuses pages of earlier prompts with the same first tokens.

A page also depends on the tokens that shared its forward pass, and on their number. So forward passes end at tokens
that the prompt alone determines, and the names of pages include where they end. Shared pages then equal, bit for bit,
the pages that would be computed again.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import Generic

from localctx.kv.cache import Cache
from localctx.kv.pages import next_name, pack_tokens, page_names
from localctx.kv.retained_pages import RetainedPages, SharedKey
from localctx.models.base import AnyCache
from localctx.models.llama_cpp.cache import LlamaCache
from localctx.shape import PAGE


class Sharing(ABC, Generic[AnyCache]):
    """Shares the prefix of a raw prompt with other prompts in memory. ``ends`` are the token counts at which prefill
    chunks must end.
    """

    ends: Sequence[int]

    @abstractmethod
    def begin(self, cache: AnyCache) -> None:
        """Load the longest prefix of the prompt that is in memory into ``cache``, unless a longer prefix was restored
        from the store.
        """

    @abstractmethod
    def after_chunk(self, cache: AnyCache, chunk_is_planned: bool) -> None:
        """Keep the prefix that was prefilled so far in memory, if other prompts may share it. Call this after each
        chunk. ``chunk_is_planned`` is False once chunks were made smaller because memory ran out.
        """


class PromptSharing(Sharing[Cache]):
    """Reuses pages of earlier prompts for the prompt ``tokens``, and retains this prompt's pages for later prompts.
    ``root`` is the first element of the chain of hashes that are the page names. All retained pages together take at
    most ``budget()`` bytes.
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
        self._shared: int | None = None  # cached tokens whose pages match their names; None if pages do not

    def begin(self, cache: Cache) -> None:
        found = self._retained.find(cache.pool, self._keys, self.ends)
        if found and len(found) * PAGE >= cache.length:
            cache.trim(0)
            cache.share_pages([page.parts for page in found], found[-1].states)
        elif cache.length:
            return
        self._shared = cache.length

    def after_chunk(self, cache: Cache, chunk_is_planned: bool) -> None:
        """Retain the pages prefilled so far for later prompts, if they end where a forward pass must end. Retain no
        more pages once ``chunk_is_planned`` is False, because a chunk was then smaller than planned.
        """
        if not chunk_is_planned or not cache.exact:
            self._shared = None
        if self._shared is not None and cache.length in self.ends:
            self._retained.add(cache, self._keys[: cache.length // PAGE])
            self._retained.shrink_to(self._budget())


def pass_ends(tokens: Sequence[int], stop_ids: Collection[int], chunk: int) -> list[int]:
    """Returns the token counts at which forward passes over ``tokens`` must end: the last page boundary of each turn
    (which ends with a token of ``stop_ids``), and from there every ``chunk`` tokens. All are page boundaries. None is
    at the end of ``tokens``, because the last token must be computed for its logits.
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
    """Returns the first element of the chain of hashes that name shared pages. It depends on the ``fingerprint`` of
    pages, and on ``chunk``, the maximum number of tokens of a pass.
    """
    return hashlib.sha256(fingerprint + b"passes" + pack_tokens([chunk])).digest()


def sharing_keys(root: bytes, tokens: Sequence[int], ends: Sequence[int]) -> Iterator[SharedKey]:
    """Yields the name and packed tokens of each page of ``tokens`` up to the last of ``ends``. Each name is a hash of
    the previous name (``root`` for the first page), the tokens, and where the forward pass begins and ends.
    """
    name = root
    for start, end in pairwise((0, *ends)):
        for at in range(start, end, PAGE):
            packed = pack_tokens(tokens[at : at + PAGE])
            name = next_name(name, packed + pack_tokens((start, end)))
            yield name, packed


class LlamaSharing(Sharing[LlamaCache]):
    """Shares prompts for llama.cpp, which keeps only the last prompt in memory. The prompt ``tokens`` reuses the whole
    pages that it shares with the last prompt. If sequences cannot be trimmed to any length, it reuses the last prompt
    only as a whole. ``root`` is the first element of the chain of hashes that are the page names.
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
