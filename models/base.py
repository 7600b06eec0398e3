"""What the engine asks of a model: tokens to logits over a Cache, and text to tokens and back."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from localctx.kv.cache import Cache
from localctx.kv.rotary import Rope
from localctx.models.geometry import Geometry
from localctx.shape import KVShape

Messages = Sequence[dict[str, str]]


class Tokenizer(Protocol):
    """Text to tokens of one model, and back."""

    stop_ids: frozenset[int]

    def encode_chat(self, messages: Messages) -> list[int]:
        """A conversation in the form the model was trained on, ready for its answer.

        Control tokens spelled out in a message are text: a document cannot end its turn and speak as another.
        """

    def encode(self, text: str) -> list[int]:
        """Plain text, without any control token."""

    def stream(self) -> Callable[[int], str]:
        """A function from the next token to the text that is now certain (may be empty)."""


class ForwardRequest(NamedTuple):
    """New ``tokens`` of the sequence in ``cache``, of the last ``num_logits`` of which the logits are wanted."""

    tokens: Sequence[int]
    cache: Cache
    num_logits: int = 1


class Model(Protocol):
    """A decoder model. ``context`` is its window in tokens, ``trained`` what it is without any stretching; ``rope`` how
    its keys turn, None where they do not; ``geometry`` what a step takes in memory, ``nbytes`` what its weights do;
    ``parameters`` how many numbers these are, tied ones once.
    """

    name: str
    shape: KVShape
    device: torch.device
    dtype: torch.dtype
    tokenizer: Tokenizer

    geometry: Geometry
    trained: int
    nbytes: int
    parameters: int

    @property
    def context(self) -> int: ...

    @property
    def rope(self) -> Rope | None: ...

    def stretch(self, rope: str) -> None:
        """Take the window of ``rope``: ``yarn:2``, ``linear:2`` or ``llama3:8`` times the trained; ``auto`` its own.

        ``context``, ``rope`` and the fingerprint change: a cache of before is no longer this model's. Raises UsageError
        for another word, ModelError for a model whose positions are not rotary or stretched already.
        """

    def view(self) -> "Model":
        """The same weights, with a window of its own: ``stretch`` of one leaves the other alone.

        What a cache was made for decides how its keys turn, whichever view computes it.
        """

    def fingerprint(self, codec: str) -> bytes:
        """32 bytes that name everything a page's bytes depend on, tokens apart."""

    def forward(
        self, tokens: Sequence[int], cache: Cache, num_logits: int = 1, cancelled: Callable[[], bool] = lambda: False
    ) -> Tensor:
        """Append ``tokens`` to ``cache``; logits of the last ``num_logits`` of them, float32 [num_logits, vocabulary].

        Raises Cancelled within one layer of ``cancelled`` turning true, or one token where a GPU replays the layers. On
        any exception the cache is as before.
        """

    def forward_each(
        self, feeds: "Sequence[ForwardRequest]", cancelled: Callable[[], bool] = lambda: False
    ) -> list[Tensor]:
        """As ``forward``, of several sequences at once: weights are read once for all of them.

        On any exception every cache is as before. On a processor, in f32, what comes of a sequence does not depend on
        the others; elsewhere the last digits depend on how many tokens there are in all.
        """

    def glance(self, tokens: Sequence[int], cache: Cache, layer: int) -> tuple[Tensor, Tensor]:
        """The keys and values [kv_heads, T, dim] that ``layer`` would keep of ``tokens`` after ``cache``.

        Layers above are not computed, and ``cache`` is as before. Raises NoRoom.
        """
