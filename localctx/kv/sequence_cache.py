"""SequenceCache: what the engine and the workflows use of the KV cache of one sequence, whoever holds its bytes."""

from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np

from localctx.kv.eviction_log import EvictedRange
from localctx.kv.keepers.keeper import Keeper, Phase
from localctx.kv.pages import Activation


class SequenceMemory(Protocol):
    """What holds the caches of sequences that may be computed in one pass: those with the same ``rope``."""

    @property
    def codec(self) -> str:
        """The codec of keys and values."""

    @property
    def rope(self) -> object: ...

    @property
    def device_limit(self) -> int | None:
        """The bytes that the device may hold; None where sequences move elsewhere by themselves."""

    @property
    def bytes_of_page(self) -> int:
        """The bytes of one more page."""

    def nbytes(self) -> dict[str, int]:
        """The bytes in use by tier."""

    def bytes_needed(self, requests: Sequence[tuple[Any, int]]) -> int:
        """The bytes of these caches with so many more tokens each; what they share counts once."""


class SequenceCache(Protocol):
    """The KV cache of one sequence. ``activation`` says which adapter of the model computes its tokens, and from which
    on; ``joins_chunks``: nothing of it will be persisted, so that its chunks may be computed together with others'.
    """

    activation: Activation | None
    joins_chunks: bool

    @property
    def keeper(self) -> Keeper:
        """The eviction policy."""

    @property
    def pool(self) -> SequenceMemory:
        """What holds it."""

    @property
    def length(self) -> int:
        """The number of committed tokens."""

    @property
    def exact(self) -> bool:
        """True if the sequence is what its tokens say: nothing evicted, nothing lost."""

    @property
    def evicted(self) -> Sequence[EvictedRange]:
        """The ranges of tokens that were evicted, in the order of the text."""

    @property
    def dropped(self) -> int:
        """Tokens that attention no longer sees."""

    @property
    def attention_mass(self) -> np.ndarray | None:
        """The attention mass of each page of the text since ``record_attention``; None where it is not recorded."""

    def record_attention(self) -> None:
        """From here on, add up in ``attention_mass`` what the pages read so far receive. Forks add to it as well."""

    def enter_phase(self, phase: Phase) -> None:
        """Set the phase of what is processed from here on, which keepers depend on."""

    def finish_prefill(self) -> None:
        """End the prefill of a prompt: the keeper may compress it if it ends with a question. Raises NoRoom."""

    def trimmable(self, length: int) -> int:
        """Returns the longest length, up to ``length``, that the sequence can be cut to with nothing lost."""

    def trim(self, length: int) -> None:
        """Keep the first ``length`` tokens."""

    def fork(self, keeper: Keeper | None = None, *, recording: bool = True) -> Self:
        """Another sequence with the same past, which is shared. It has this ``keeper`` (None: the same), and adds to
        the same ``attention_mass`` unless not ``recording``.
        """

    def drop(self) -> None:
        """Release everything."""
