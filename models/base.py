"""Model and Tokenizer protocols that the engine calls: tokens to logits over a cache, and text to tokens and back."""

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
"""Chat messages: role and content as text. Messages about tools have more keys, as chat templates expect."""

AnyCache = TypeVar("AnyCache", bound=SequenceCache)


class Tokenizer(Protocol):
    """Converts text to the tokens of one model and back."""

    @property
    def stop_ids(self) -> frozenset[int]:
        """The tokens that end an answer."""

    @property
    def calls_tools(self) -> bool:
        """True if the chat template supports tools and its call format is one that ``tool_calls`` parses."""

    def encode_chat(self, messages: Messages, tools: Sequence[Any] = ()) -> list[int]:
        """Returns the conversation in the model's chat format, ready for an answer that may call ``tools``.

        Control tokens spelled out in a message are encoded as text, so a document cannot end its message and start one
        with another role.
        """

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of ``text``, without control tokens."""

    def encode_text(self, text: str) -> list[int]:
        """Returns the tokens of a standalone text, with the special tokens that the model adds around it."""

    def stream(self) -> Callable[[int], str]:
        """Returns a function that takes the next token and returns the text completed by it (may be empty)."""


class ForwardRequest(NamedTuple, Generic[AnyCache]):
    """New ``tokens`` for the sequence in ``cache``, with logits for the last ``num_logits`` of them.

    Tokens from the start of the cache's ``activation`` on use its adapter, which must have been added to the model.
    """

    tokens: Sequence[int]
    cache: AnyCache
    num_logits: int = 1


class Model(Protocol):
    """A decoder model. ``context`` is its window in tokens, and ``trained`` the window without RoPE scaling. ``nbytes``
    is the size of the weights and ``parameters`` their number; tied weights count once. ``kv_nbytes`` is the bytes of
    keys and values by tier, if the engine holds them itself.
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

    def scale_rope(self, rope: str) -> None:
        """Scale RoPE by ``rope``: ``yarn:2``, ``linear:2`` or ``llama3:8`` times the trained window. ``auto`` keeps the
        trained window.

        This changes ``context``, ``rope`` and the fingerprint, so earlier caches no longer match this model. Raises
        UsageError for an invalid value, ModelError if positions are not rotary, or are scaled already.
        """

    def view(self) -> Any:
        """Returns a model that shares the weights but has its own window: scaling one does not affect the other.

        Any view computes a cache with the RoPE that the cache was made with.
        """

    def add_adapter(self, adapter: Adapter) -> None:
        """Add ``adapter``, so that caches can activate it. Raises ModelError for an adapter of another model."""

    def fingerprint(self, codec: str) -> bytes:
        """Returns 32 bytes that identify everything a page's bytes depend on, except its tokens."""

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
        """Run ``forward`` for several sequences in one pass, which reads the weights once.

        On any exception every cache is as before. On a CPU in f32, a sequence's result does not depend on the others.
        Elsewhere its last digits depend on the total number of tokens.
        """


class PagedModel(Model, Protocol):
    """A torch model whose keys and values are in our pages, with KVShape ``shape``. ``rope`` is None for a model
    without rotary positions. ``geometry`` gives the working memory of a forward pass. ``prefill_loss`` is the share of
    attention that a prompt's query may lose by skipping pages, in caches opened for it; 0 skips nothing. Each view has
    its own ``prefill_loss``, and the fingerprint includes it.
    """

    shape: KVShape
    dtype: torch.dtype
    geometry: Geometry
    prefill_loss: float

    @property
    def rope(self) -> Rope | None: ...

    def with_prefill_loss(self, loss: float) -> Any:
        """Returns a view whose ``prefill_loss`` is ``loss``."""

    def probe_layer(self, tokens: Sequence[int], cache: Cache, layer: int) -> tuple[Tensor, Tensor]:
        """Returns the keys and values [kv_heads, T, dim] that ``layer`` would cache for ``tokens`` after ``cache``.

        Layers above ``layer`` are not computed, and ``cache`` does not change. Raises OutOfKVMemory.
        """
