"""Model and Tokenizer: what the engine calls. Tokens to logits over a cache, and text to tokens and back."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from localctx.kv.cache import Cache
from localctx.kv.rotary import Rope
from localctx.kv.sequence_cache import SequenceCache
from localctx.models.adapter import Adapter
from localctx.models.architecture.geometry import Geometry
from localctx.settings import EngineName
from localctx.shape import KVShape

Messages = Sequence[dict[str, Any]]
"""Messages of a conversation: role and content as text; those about tools have more, as chat templates want it."""

AnyCache = TypeVar("AnyCache", bound=SequenceCache)


class Tokenizer(Protocol):
    """Text to tokens of one model, and back."""

    @property
    def stop_ids(self) -> frozenset[int]:
        """The tokens that end an answer."""

    @property
    def calls_tools(self) -> bool:
        """True if the chat template describes tools, and has answers call them as ``tool_calls`` reads it."""

    def encode_chat(self, messages: Messages, tools: Sequence[Any] = ()) -> list[int]:
        """A conversation in the form the model was trained on, ready for its answer, which may call ``tools``.

        Control tokens spelled out in a message are encoded as text: a document cannot end its message and begin one of
        another role.
        """

    def encode(self, text: str) -> list[int]:
        """Plain text, without any control token."""

    def encode_text(self, text: str) -> list[int]:
        """Plain text that stands alone, with the tokens that the model puts around it."""

    def stream(self) -> Callable[[int], str]:
        """A function from the next token to the text that is now complete (may be empty)."""


class ForwardRequest(NamedTuple, Generic[AnyCache]):
    """New ``tokens`` of the sequence in ``cache``. The logits of the last ``num_logits`` of them are wanted.

    Tokens from the start of the cache's ``activation`` on are computed with its adapter, which the model has.
    """

    tokens: Sequence[int]
    cache: AnyCache
    num_logits: int = 1


class Model(Protocol):
    """A decoder model. ``context`` is its window in tokens, ``trained`` that window without any RoPE scaling;
    ``nbytes`` are the bytes of the weights, ``parameters`` their number, tied ones once; ``kv_nbytes`` the bytes of
    keys and values by tier where the engine holds them itself.
    """

    name: str
    device: torch.device
    trained: int
    nbytes: int
    parameters: int

    @property
    def engine(self) -> EngineName: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def context(self) -> int: ...

    @property
    def vocabulary(self) -> int:
        """The number of tokens in the vocabulary."""

    @property
    def kv_nbytes(self) -> Mapping[str, int]: ...

    def stretch(self, rope: str) -> None:
        """Scale RoPE as ``rope`` says: ``yarn:2``, ``linear:2`` or ``llama3:8`` times the trained window; ``auto`` its
        own.

        ``context``, ``rope`` and the fingerprint change: caches made before are no longer this model's. Raises
        UsageError for another word, ModelError for a model whose positions are not rotary or scaled already.
        """

    def view(self) -> Any:
        """A model with the same weights and a window of its own: ``stretch`` of one leaves the other alone.

        The RoPE that a cache was made with applies, whichever view computes it.
        """

    def add_adapter(self, adapter: Adapter) -> None:
        """Let caches activate ``adapter``. Raises ModelError for an adapter of another model."""

    def fingerprint(self, codec: str) -> bytes:
        """32 bytes that identify everything a page's bytes depend on, but its tokens."""

    def forward(
        self, tokens: Sequence[int], cache: Any, num_logits: int = 1, cancelled: Callable[[], bool] = lambda: False
    ) -> Tensor:
        """Append ``tokens`` to ``cache``. Returns the logits of the last ``num_logits`` of them, float32
        [num_logits, vocabulary].

        Raises Cancelled within one layer of ``cancelled`` returning True, or one token where a GPU replays the layers.
        On any exception the cache is as before.
        """

    def forward_each(
        self, requests: "Sequence[ForwardRequest]", cancelled: Callable[[], bool] = lambda: False
    ) -> list[Tensor]:
        """As ``forward``, for several sequences in one pass: weights are read once for all of them.

        On any exception every cache is as before. On a processor, in f32, the result of a sequence does not depend on
        the others; elsewhere its last digits depend on how many tokens there are in all.
        """


class PagedModel(Model, Protocol):
    """A model whose keys and values are in our pages, of this ``shape``: torch computes it. ``rope`` are its rotary
    positions, None where it has none; ``geometry`` gives the working memory of a forward pass. ``prefill_loss`` is the
    share of attention weights that a query of a prompt may lose to pages that it skips, in caches that are opened for
    it; 0 skips nothing. Views have their own, and the fingerprint says it.
    """

    shape: KVShape
    dtype: torch.dtype
    geometry: Geometry
    prefill_loss: float

    @property
    def rope(self) -> Rope | None: ...

    def read_with(self, loss: float) -> Any:
        """A view whose ``prefill_loss`` is ``loss``."""

    def probe_layer(self, tokens: Sequence[int], cache: Cache, layer: int) -> tuple[Tensor, Tensor]:
        """The keys and values [kv_heads, T, dim] that ``layer`` would cache for ``tokens`` after ``cache``.

        Layers above are not computed, and ``cache`` stays as it is. Raises NoRoom.
        """
