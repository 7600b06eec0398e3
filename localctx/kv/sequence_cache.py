"""SequenceCache: the part of a sequence's KV cache that the engine and the workflows use, for any engine."""

from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np

from localctx.kv.eviction_log import EvictedRange
from localctx.kv.keepers.keeper import Keeper, Phase
from localctx.kv.pages import Activation


class SequenceMemory(Protocol):
    """The memory that holds the caches of sequences: a pool of pages, or llama.cpp's memory. Sequences whose memories
    have the same ``rope`` may be computed in one pass.
    """

    @property
    def codec(self) -> str:
        """The codec of keys and values."""

    @property
    def rope(self) -> object: ...

    @property
    def device_limit(self) -> int | None:
        """The maximum size in bytes of keys and values on the device; None if there is no limit."""

    @property
    def bytes_of_page(self) -> int:
        """Returns the size in bytes of one page of a sequence."""

    def nbytes(self) -> dict[str, int]:
        """Returns the size in bytes of keys and values in each tier, by the name of the tier: ``device`` and, for a
        pool of pages, ``host`` and ``disk``.
        """

    def bytes_needed(self, requests: Sequence[tuple[Any, int]]) -> int:
        """Returns the size in bytes that all ``requests`` need together. A request is (cache, number of more tokens).
        Memory that several caches share counts once.
        """


class SequenceCache(Protocol):
    """The KV cache of one sequence, in our pages or in llama.cpp.

    ``activation`` names the LoRA adapter of the sequence, and the first token that it applies to (None: no adapter). If
    ``joins_chunks``, prefill chunks of this sequence may be computed in one pass with chunks of other sequences, which
    can change the last digits. It is True only if the sequence will not be persisted.
    """

    activation: Activation | None
    joins_chunks: bool

    @property
    def keeper(self) -> Keeper:
        """The eviction policy."""

    @property
    def pool(self) -> SequenceMemory:
        """The memory that holds this cache."""

    @property
    def length(self) -> int:
        """The number of committed tokens."""

    @property
    def exact(self) -> bool:
        """True if the cache holds exactly the keys and values of its tokens: nothing was evicted or lost."""

    @property
    def evicted(self) -> Sequence[EvictedRange]:
        """The evicted token ranges, in text order."""

    @property
    def dropped(self) -> int:
        """The number of tokens that attention no longer sees."""

    @property
    def attention_mass(self) -> np.ndarray | None:
        """The attention mass of every 64 tokens of the text since ``record_attention`` was called; None if it was not
        called.
        """

    def record_attention(self) -> None:
        """Start to record the attention mass that the pages read so far will receive, for ``attention_mass``. Forks add
        to the same record.
        """

    def enter_phase(self, phase: Phase) -> None:
        """Set the phase of the tokens processed from now on: ``reading`` (the document), ``asking`` (the question) or
        ``answering``. Keepers evict and select differently in each phase.
        """

    def finish_prefill(self) -> None:
        """End the prefill of a prompt. A keeper that compresses prompts now does so, if the prompt ends with a
        question. Raises OutOfKVMemory.
        """

    def trimmable(self, length: int) -> int:
        """Returns the greatest length, up to ``length`` tokens, to which the sequence can be trimmed without loss."""

    def trim(self, length: int) -> None:
        """Keep only the first ``length`` tokens. ``trimmable`` says to which lengths this is possible without loss."""

    def fork(self, keeper: Keeper | None = None, *, recording: bool = True) -> Self:
        """Returns a new sequence with the same tokens, which shares memory with this one. It has this ``keeper`` (None:
        the same one). If ``recording``, the fork adds its attention to the same ``attention_mass``.
        """

    def drop(self) -> None:
        """Release all memory of the sequence, which must not be used afterwards."""
