"""A model whose arithmetic happens in this process: what all of them share, whoever computes the layers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from copy import copy
from typing import Any, Self

import torch
from torch import Tensor

from localctx.errors import Cancelled
from localctx.kv.cache import Cache
from localctx.kv.decode_batch import MAX_DECODE_TOKENS
from localctx.models.base import ForwardRequest, Tokenizer
from localctx.models.chat_tokenizer import ChatTokenizer
from localctx.models.fingerprint import fingerprint
from localctx.models.forward_batch import ForwardBatch
from localctx.models.geometry import geometry_of, shape_of
from localctx.models.rope import ModelRope, Positions, said_of, stretched

_NAMES = ("_name_or_path", "transformers_version", "architectures")  # of a config: they decide nothing


class LocalModel(ABC):
    """See ``localctx.models.base.Model``. ``config`` has the attributes of transformers' configs; ``hashes`` those
    of its weight files; ``rope`` as in ``stretch``; ``stored``: the weights are full, int8 or nf4.
    """

    computed_by: str  # whose arithmetic it is: another's last digits are others
    device: torch.device
    dtype: torch.dtype
    precision: torch.dtype  # of the products, where that is not the ``dtype`` of keys, values and activations
    sums_depend_on_rows = False  # whether many rows are multiplied otherwise than a few
    nbytes: int
    parameters: int

    def __init__(
        self,
        config: Any,
        tokenizer: ChatTokenizer,
        *,
        name: str = "",
        hashes: Mapping[str, str] | None = None,
        rope: str = "auto",
        stored: str = "full",
    ) -> None:
        self.name, self._config, self._hashes = name, config, hashes or {}
        self._chat, self._stored = tokenizer, stored
        self.tokenizer: Tokenizer = tokenizer
        self._trained = said_of(config)
        self.trained: int = config.max_position_embeddings
        self.geometry = geometry_of(config)
        self._ropes: dict[str, ModelRope | None] = {}
        self.stretch(rope)
        self.shape = shape_of(config)

    @property
    def context(self) -> int:
        """See ``Model``."""
        return self._said["max_position_embeddings"]

    @property
    def rope(self) -> ModelRope | None:
        """See ``Model``."""
        if self._stretch not in self._ropes:
            self._ropes[self._stretch] = self._rope_of(self._said) if self._said.get("rope_parameters") else None
        return self._ropes[self._stretch]

    @property
    def vocabulary(self) -> int:
        """How many tokens it knows."""
        return self._config.vocab_size

    def stretch(self, rope: str) -> None:
        """See ``Model``."""
        self._said, self._stretch = stretched(self._trained, rope), rope

    def view(self) -> Self:
        """See ``Model``."""
        return copy(self)

    def fingerprint(self, codec: str) -> bytes:
        """See ``Model``."""
        tokenizer, template = self._chat.identity
        return fingerprint(
            codec,
            self.shape,
            config={k: v for k, v in {**self._config.to_dict(), **self._said}.items() if k not in _NAMES},
            computed_by=self.computed_by,
            weights=self._hashes,
            precision=str(self.precision) + ("" if self._stored == "full" else f" {self._stored}"),
            tokenizer=tokenizer,
            template=template,
        )

    def forward(
        self, tokens: Sequence[int], cache: Cache, num_logits: int = 1, cancelled: Callable[[], bool] = lambda: False
    ) -> Tensor:
        """See ``Model``."""
        return self.forward_each([ForwardRequest(tokens, cache, num_logits)], cancelled)[0]

    @torch.inference_mode()
    def forward_each(
        self, feeds: Sequence[ForwardRequest], cancelled: Callable[[], bool] = lambda: False
    ) -> list[Tensor]:
        """See ``Model``."""
        groups = self._groups(feeds)
        steps = [ForwardBatch([feeds[i] for i in group], cancelled) for group in groups]
        found: list[Tensor] = [torch.empty(0)] * len(feeds)
        with ExitStack() as begun:  # all sequences are committed, or none
            for step in steps:
                begun.enter_context(step.begun())
            for group, step in zip(groups, steps, strict=True):
                for i, logits in zip(group, step.split(self._run(step)), strict=True):
                    found[i] = logits
        return found

    @torch.inference_mode()
    def glance(self, tokens: Sequence[int], cache: Cache, layer: int) -> tuple[Tensor, Tensor]:
        """See ``Model``."""
        step = ForwardBatch([ForwardRequest(tokens, cache)], until=layer)
        with suppress(Cancelled), step.begun():
            self._run(step)
        assert step.seen, f"there is no layer {layer}"
        return step.seen

    def _groups(self, feeds: Sequence[ForwardRequest]) -> list[list[int]]:
        """Which ``feeds`` are computed in one step. Where sums depend on how many rows are multiplied, a chunk has a
        step of its own, so that what comes of it is the same beside others as alone.
        """
        chunks = (
            [[i] for i, feed in enumerate(feeds) if len(feed.tokens) > MAX_DECODE_TOKENS]
            if self.sums_depend_on_rows
            else []
        )
        apart = {i for chunk in chunks for i in chunk}
        rows = [i for i in range(len(feeds)) if i not in apart]
        return [*chunks, rows] if rows else chunks

    @abstractmethod
    def _run(self, step: ForwardBatch) -> Tensor:
        """Logits [kept, vocabulary] of what ``step`` keeps. Keys turn as its caches say, or else as this model does."""

    @abstractmethod
    def _rope_of(self, said: Positions) -> ModelRope:
        """How keys turn by ``said``."""
