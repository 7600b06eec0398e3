"""SequenceCache: the part of a sequence's KV cache that the engine and the workflows use, for any engine."""

from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np

from localctx.kv.eviction_log import EvictedRange
from localctx.kv.keepers.keeper import Keeper, Phase
from localctx.kv.pages import Activation


class SequenceMemory(Protocol):
    """The holder of sequence caches. Those with the same ``rope`` may be computed in one pass."""

    @property
    def codec(self) -> str:
        """The codec of keys and values."""

    @property
    def rope(self) -> object: ...

    @property
    def device_limit(self) -> int | None:
        """The bytes that the device may hold, or None if sequences move to other memory by themselves."""

    @property
    def bytes_of_page(self) -> int:
        """The bytes of one more page."""

    def nbytes(self) -> dict[str, int]:
        """Returns the bytes in use by tier."""

    def bytes_needed(self, requests: Sequence[tuple[Any, int]]) -> int:
        """Returns the bytes of (cache, more tokens) together. Shared bytes count once."""


class SequenceCache(Protocol):
    """The KV cache of one sequence. ``activation`` names the adapter that computes its tokens and its first token.
    ``joins_chunks``: nothing of it will be persisted, so its chunks may be computed together with those of others.
    """

    activation: Activation | None
    joins_chunks: bool

    @property
    def keeper(self) -> Keeper:
        """The eviction policy."""

    @property
    def pool(self) -> SequenceMemory:
        """The memory that holds it."""

    @property
    def length(self) -> int:
        """The number of committed tokens."""

    @property
    def exact(self) -> bool:
        """True if the sequence matches its tokens: nothing evicted, nothing lost."""

    @property
    def evicted(self) -> Sequence[EvictedRange]:
        """The evicted token ranges, in text order."""

    @property
    def dropped(self) -> int:
        """Number of tokens that attention no longer sees."""

    @property
    def attention_mass(self) -> np.ndarray | None:
        """Attention mass of each text page since ``record_attention``, or None if not recorded."""

    def record_attention(self) -> None:
        """Start to add up, in ``attention_mass``, the mass that the pages read so far receive. Forks add to it too."""

    def enter_phase(self, phase: Phase) -> None:
        """Set the phase of the tokens processed from now on. Keepers depend on it."""

    def finish_prefill(self) -> None:
        """End the prefill of a prompt. The keeper may compress a prompt that ends with a question. Raises
        OutOfKVMemory.
        """

    def trimmable(self, length: int) -> int:
        """Returns the longest length, up to ``length``, to which the sequence can be trimmed without loss."""

    def trim(self, length: int) -> None:
        """Keep the first ``length`` tokens."""

    def fork(self, keeper: Keeper | None = None, *, recording: bool = True) -> Self:
        """Returns a new sequence with the same shared past. It has this ``keeper`` (None: the same one). With
        ``recording`` it adds to the same ``attention_mass``.
        """

    def drop(self) -> None:
        """Release everything."""
