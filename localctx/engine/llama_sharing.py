"""In-memory prefix cache for llama.cpp: the last prompt stays in its memory."""

from collections.abc import Sequence

from localctx.engine.persistence.prompt_sharing import Sharing
from localctx.kv.pages import page_names
from localctx.models.llama_cpp.cache import LlamaCache
from localctx.shape import PAGE


class LlamaSharing(Sharing[LlamaCache]):
    """Starts a prompt of ``tokens`` from the whole pages it shares with the last prompt, or from all of it if the
    memory cannot be cut. Names begin with ``root``.
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
