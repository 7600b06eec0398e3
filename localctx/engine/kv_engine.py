"""KVEngine: the interface of an engine for the request builder. An engine plans and opens caches, persists them, and
reports on them.

``Model.forward_each`` maps tokens to logits; forking and trimming are methods of the cache.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from localctx.engine.events import Planned
from localctx.engine.persistence.memory_prefixes import Sharing
from localctx.engine.persistence.persister import CacheIdentity, Persister
from localctx.engine.planning.cache_plan import OomRecovery
from localctx.engine.prompt import Prompt
from localctx.engine.request_report import KVReport
from localctx.engine.runtime import Runtime
from localctx.kv.keepers.keeper import Keeper
from localctx.kv.sequence_cache import SequenceCache
from localctx.settings import Settings
from localctx.store.documents import StoredDocument


class PlannedCache(Protocol):
    """The plan for one cache: its ``codec``, its ``keeper`` (eviction policy), and ``chunk``, the maximum number of
    tokens prefilled in one step.
    """

    @property
    def codec(self) -> str: ...

    @property
    def keeper(self) -> Keeper: ...

    @property
    def chunk(self) -> int: ...


class KVEngine(ABC):
    """An engine: it plans, opens and persists the caches of the model of ``runtime``, under the settings of
    ``runtime``. ``rope`` is the current RoPE scaling of the model.

    If ``always_cuts``, chunks end where the documents end even if nothing is persisted. The answer then equals, bit for
    bit, the answer of a run that persists its pages.
    """

    always_cuts = True

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.rope = runtime.settings.rope
        self._fingerprints = dict[tuple[str, str], bytes]()  # by codec and RoPE scaling

    def scale_rope(self, rope: str) -> None:
        """Apply the RoPE scaling ``rope`` to the model, unless the model has this scaling already. Raises UsageError,
        ModelError.
        """
        if rope != self.rope:
            self.runtime.model.scale_rope(rope)
            self.rope = rope

    def fingerprint(self, codec: str) -> bytes:
        """Returns the fingerprint of pages in ``codec``: a hash of everything on which the content of a page depends
        besides its tokens. The fingerprint is cached, because computing it takes as long as encoding 100 tokens.
        """
        key = codec, self.rope
        if key not in self._fingerprints:
            self._fingerprints[key] = self.runtime.model.fingerprint(codec)
        return self._fingerprints[key]

    def cuts(self, prompt: Prompt) -> Sequence[int]:
        """Returns the token counts at which a chunk must end while ``prompt`` is prefilled. The first is where the
        documents and the history of a chat end. The prompt is persisted up to the last one.
        """
        return (prompt.shared,)

    @property
    @abstractmethod
    def codec(self) -> str:
        """The name of the codec for keys and values in new caches."""

    @abstractmethod
    def plan_cache(self, settings: Settings, tokens: int) -> PlannedCache:
        """Plan the cache of a prompt of ``tokens`` tokens for the memory that is free now. Raises UsageError for
        unsupported settings.
        """

    @abstractmethod
    def open_cache(self, planned: Any) -> SequenceCache:
        """Returns a new, empty cache for ``planned``, a result of ``plan_cache``."""

    @abstractmethod
    def plan(self, planned: Any, *, tokens: int, reused: int, answer: int, per_second: float | None) -> Planned:
        """Estimate the cost of a prompt of ``tokens`` tokens and an answer of at most ``answer`` tokens. The first
        ``reused`` tokens of the prompt come from the store. ``planned`` is a result of ``plan_cache``.

        ``per_second`` is the measured prefill rate in tokens per second, None if unknown. Raises TooLong if memory has
        no room for the cache.
        """

    @abstractmethod
    def oom_recovery(self, planned: Any) -> OomRecovery:
        """Returns the steps to try when memory runs out for the cache ``planned``, a result of ``plan_cache``."""

    @abstractmethod
    def persister(
        self,
        documents: Sequence[StoredDocument],
        tokens: Sequence[int],
        identity: CacheIdentity,
        end: int,
        remote: bool,
    ) -> Persister:
        """Returns the persister for the sequence ``tokens`` about ``documents``, in which the documents end at token
        ``end``. ``identity`` is the identity under which its pages are stored. If ``remote``, the remote store is used
        too, if there is one.
        """

    def sharing(self, planned: Any, tokens: Sequence[int]) -> Sharing | None:
        """Returns the in-memory prefix cache for a raw prompt of ``tokens``, or None if this prompt cannot share pages
        with others. ``planned``, a result of ``plan_cache``, is the plan of the prompt's own KV cache.
        """
        return None

    @abstractmethod
    def report(self, cache: Any, *, window: int, chunk: int, restored: int) -> KVReport:
        """Returns the report on an open cache, whose first ``restored`` tokens came from the store. ``window`` is the
        context window in tokens, and ``chunk`` the maximum number of tokens prefilled in one step.
        """

    @abstractmethod
    def max_tokens_at_once(self, cache: Any) -> int:
        """Returns the greatest number of tokens that one pass may compute with the same results as one pass for each
        token. All tokens of such a pass but the first can be trimmed from the cache again, as drafting requires.
        """
