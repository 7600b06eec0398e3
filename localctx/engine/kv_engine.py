"""KVEngine: what the builder of requests needs of an engine: plan and open caches, persist them, report on them.

Tokens to logits is ``Model.forward_each``; forking and trimming is the cache's own.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from localctx.engine.events import Planned
from localctx.engine.persistence.persister import CacheIdentity, Persister
from localctx.engine.persistence.prompt_sharing import Sharing
from localctx.engine.planning.cache_plan import MemoryRelief
from localctx.engine.prompt import Prompt
from localctx.engine.request_report import KVReport
from localctx.engine.runtime import Runtime
from localctx.kv.keepers.keeper import Keeper
from localctx.kv.sequence_cache import SequenceCache
from localctx.settings import Settings
from localctx.store.documents import StoredDocument


class PlannedCache(Protocol):
    """The plan for one cache: its ``codec`` and ``keeper``, and the tokens ``chunk`` that are prefilled in one step."""

    @property
    def codec(self) -> str: ...

    @property
    def keeper(self) -> Keeper: ...

    @property
    def chunk(self) -> int: ...


class KVEngine(ABC):
    """An engine for the model of ``runtime``, under its settings. ``rope`` is the RoPE scaling the model has now.

    ``always_cuts``: a prompt is cut where its documents end even if nothing is persisted there, so that it is computed
    to the bit as one that is.
    """

    always_cuts = True

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.rope = runtime.settings.rope
        self._fingerprints = dict[tuple[str, str], bytes]()  # by codec and RoPE scaling

    def stretch(self, rope: str) -> None:
        """Scale the model's RoPE, if it is not scaled so. Raises UsageError, ModelError."""
        if rope != self.rope:
            self.runtime.model.stretch(rope)
            self.rope = rope

    def fingerprint(self, codec: str) -> bytes:
        """The fingerprint of pages in ``codec``, which takes as long to compute as a hundred tokens to encode."""
        key = codec, self.rope
        if key not in self._fingerprints:
            self._fingerprints[key] = self.runtime.model.fingerprint(codec)
        return self._fingerprints[key]

    def cuts(self, prompt: Prompt) -> Sequence[int]:
        """Returns the tokens where the prefill of ``prompt`` is cut: where its documents end, and beyond. It is
        persisted up to the last of them.
        """
        return (prompt.shared,)

    @property
    @abstractmethod
    def codec(self) -> str:
        """The codec of new caches."""

    @abstractmethod
    def plan_cache(self, settings: Settings, tokens: int) -> PlannedCache:
        """Plan the cache of a prompt of ``tokens``, as memory is now. Raises UsageError for settings that it lacks."""

    @abstractmethod
    def open_cache(self, planned: Any) -> SequenceCache:
        """Open the empty cache that was planned."""

    @abstractmethod
    def plan(self, planned: Any, *, tokens: int, reused: int, answer: int, per_second: float | None) -> Planned:
        """Plan a prompt of ``tokens``, ``reused`` of them from the store, and an answer of at most ``answer`` tokens.

        ``per_second`` is the measured rate of prefill. Raises TooLong where there is no room.
        """

    @abstractmethod
    def relief(self, planned: Any) -> MemoryRelief:
        """What to try when memory runs out."""

    @abstractmethod
    def persister(
        self,
        documents: Sequence[StoredDocument],
        tokens: Sequence[int],
        identity: CacheIdentity,
        end: int,
        remote: bool,
    ) -> Persister:
        """What restores and persists a cache of ``tokens``, of which the documents end at token ``end``; ``remote``:
        with a remote store too, if there is one.
        """

    def sharing(self, planned: Any, tokens: Sequence[int]) -> Sharing | None:
        """What a prompt word for word of ``tokens`` shares with earlier ones in memory; None if nothing."""
        return None

    @abstractmethod
    def report(self, cache: Any, *, window: int, chunk: int, restored: int) -> KVReport:
        """Report on an open cache, whose first ``restored`` tokens came from the store."""

    @abstractmethod
    def max_tokens_at_once(self, cache: Any) -> int:
        """How many tokens may be computed in one step with the same results as one by one, and trimmed again."""
