"""The protocols of models and tokenizers, which the engine calls. A model maps tokens to logits, using a cache; a
tokenizer converts text to tokens and back.
"""

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
        """The ids of the tokens that end an answer."""

    @property
    def calls_tools(self) -> bool:
        """True if the chat template supports tools and the model writes tool calls in a format that
        ``models.tokenizer.tool_calls`` parses.
        """

    def encode_chat(self, messages: Messages, tools: Sequence[Any] = ()) -> list[int]:
        """Returns the tokens of the conversation in the model's chat format, up to where the answer begins. The answer
        may call ``tools``.

        Control tokens spelled out in a message are encoded as text, so a document cannot end its message and start one
        with another role.
        """

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of ``text``. No control tokens are added, and control tokens spelled out in ``text`` are
        encoded as plain text.
        """

    def encode_text(self, text: str) -> list[int]:
        """Returns the tokens of a standalone text, including the special tokens that the model adds around a text, such
        as BOS. Control tokens spelled out in ``text`` are encoded as plain text.
        """

    def stream(self) -> Callable[[int], str]:
        """Returns a function that decodes an answer token by token: it takes the next token and returns the text that
        this token completes. The text may be empty.
        """


class ForwardRequest(NamedTuple, Generic[AnyCache]):
    """A request to append ``tokens`` to the sequence in ``cache`` and to return the logits of the last ``num_logits``
    tokens.

    If the cache has an ``activation``, its LoRA adapter is applied to the tokens from the activation's start on. That
    adapter must have been added to the model.
    """

    tokens: Sequence[int]
    cache: AnyCache
    num_logits: int = 1


class Model(Protocol):
    """A decoder model. ``context`` is its window in tokens, and ``trained`` the window without RoPE scaling. ``nbytes``
    is the size of the weights in bytes, and ``parameters`` the number of parameters; tied weights count once.
    ``kv_nbytes`` is for llama.cpp, which holds keys and values itself: their size in bytes by tier. It is empty if keys
    and values are in our pages.
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
        """Change the window by RoPE scaling. ``rope`` is a method and a factor of the trained window: ``yarn:2``,
        ``linear:2`` or ``llama3:8``. ``auto`` keeps the trained window.

        This changes ``context``, ``rope`` and the fingerprint, so earlier caches no longer match this model. Raises
        UsageError for an invalid value, and ModelError if the model has no rotary positions or they are already scaled.
        """

    def view(self) -> Any:
        """Returns another model object that shares the weights but has its own window. Scaling the RoPE of one object
        does not affect the other.

        Any view can extend a cache that another view made, because the cache's own RoPE applies.
        """

    def add_adapter(self, adapter: Adapter) -> None:
        """Add ``adapter``, so that caches can activate it. Raises ModelError for an adapter of another model."""

    def fingerprint(self, codec: str) -> bytes:
        """Returns 32 bytes that identify everything on which a page's content depends besides its tokens: the weights,
        tokenizer, RoPE, shape, precision and ``codec``.
        """

    def forward(
        self, tokens: Sequence[int], cache: Any, num_logits: int = 1, cancelled: Callable[[], bool] = lambda: False
    ) -> Tensor:
        """Append ``tokens`` to ``cache``. Returns the logits after each of the last ``num_logits`` tokens, float32
        [num_logits, vocabulary].

        If ``cancelled`` returns True, raises Cancelled after at most one more layer (one more token where a GPU replays
        a captured graph). On any exception the cache is as before.
        """

    def forward_each(
        self, requests: "Sequence[ForwardRequest]", cancelled: Callable[[], bool] = lambda: False
    ) -> list[Tensor]:
        """Run ``forward`` for several sequences in one pass, so that the weights are read once. Returns the logits of
        each request.

        On any exception every cache is as before. On a CPU in f32, the result of a sequence does not depend on the
        other sequences. On a GPU or in bf16, its last digits depend on the total number of tokens.
        """


class PagedModel(Model, Protocol):
    """A torch model whose keys and values are in our own pages. ``shape`` is their KVShape. ``rope`` is None for a
    model without rotary positions. ``geometry`` gives the working memory of a forward pass.

    ``prefill_loss`` is for sparse prefill: the share of attention (0 to 1) that a query of a prompt may lose to skipped
    pages; 0 skips nothing. Each view has its own ``prefill_loss``, and the fingerprint includes it.
    """

    shape: KVShape
    dtype: torch.dtype
    geometry: Geometry
    prefill_loss: float

    @property
    def rope(self) -> Rope | None: ...

    def with_prefill_loss(self, loss: float) -> Any:
        """Returns a view of this model with sparse prefill, in which a query of a prompt may lose the share ``loss`` (0
        to 1) of its attention to skipped pages.
        """

    def probe_layer(self, tokens: Sequence[int], cache: Cache, layer: int) -> tuple[Tensor, Tensor]:
        """Returns the keys and values [kv_heads, T, dim] that ``layer`` would cache if ``tokens`` followed the sequence
        in ``cache``.

        Layers above ``layer`` are not computed, and ``cache`` does not change. Raises OutOfKVMemory.
        """
