"""LocalModel: base class of models computed by torch in this process, with or without transformers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from copy import copy
from typing import Any, Self

import torch
from torch import Tensor

from localctx.errors import Cancelled, UsageError
from localctx.idle import LoadMonitor
from localctx.kernels.cpu.threads import torch_threads, use_free_cores
from localctx.kv.backends.backend import MAX_DECODE_TOKENS
from localctx.kv.cache import Cache
from localctx.models.adapter import Adapter
from localctx.models.architecture.geometry import geometry_of, layer_map
from localctx.models.base import ForwardRequest, Tokenizer
from localctx.models.decoder.forward_batch import ForwardBatch, adapter_of
from localctx.models.decoder.rope import ModelRope, Positions, positions_of, scale_positions
from localctx.models.decoder.trial import model_shape
from localctx.models.fingerprint import fingerprint
from localctx.models.quantized.weight_formats import arithmetic_of
from localctx.models.tokenizer.chat_tokenizer import ChatTokenizer
from localctx.settings import EngineName

_LOAD = LoadMonitor(sample=0.5, unknown=1.0)
_NAMES = ("_name_or_path", "transformers_version", "architectures")  # of a config: no result depends on them


class LocalModel(ABC):
    """Base class of the models that torch or our kernels compute in this process. It has the methods of ``PagedModel``.
    ``config`` has the attributes of transformers' configs. ``hashes`` are the content hashes of the weight files.
    ``rope`` is the RoPE scaling: a method and a factor, such as ``yarn:2``, or ``auto`` for none. ``stored`` is the
    format of the weights: full, int8, int4 or nf4.
    """

    engine: EngineName = "torch"
    computed_by: str  # library and version; with others, the last digits of results differ
    device: torch.device
    dtype: torch.dtype
    precision: torch.dtype  # of matrix products; keys, values and activations have ``dtype``
    batch_invariant = True  # False if many rows are multiplied differently from a few
    torch_products = True  # whether torch multiplies by weights: its products depend on its number of threads
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
        self._trained = positions_of(config)
        self.trained: int = config.max_position_embeddings
        self.geometry = geometry_of(config)
        self._ropes: dict[str, ModelRope | None] = {}
        self.prefill_loss = 0.0
        self._adapters: dict[bytes, Any] = {}  # by fingerprint; views share them
        self.shape, self.layers = model_shape(config), layer_map(config)
        self.scale_rope(rope)

    @property
    def context(self) -> int:
        return self._positions["max_position_embeddings"]

    @property
    def rope(self) -> ModelRope | None:
        if self._rope_scaling not in self._ropes:
            rotary = self._positions.get("rope_parameters")
            self._ropes[self._rope_scaling] = self._rope_of(self._positions) if rotary else None
        return self._ropes[self._rope_scaling]

    @property
    def kv_nbytes(self) -> Mapping[str, int]:
        """Empty, because keys and values are in our pages, whose size the pools report."""
        return {}

    @property
    def vocabulary(self) -> int:
        return self._config.vocab_size

    def scale_rope(self, rope: str) -> None:
        """Scale the window by RoPE scaling. ``rope`` is a method and a factor, such as ``yarn:2``, or ``auto`` for
        none. Raises UsageError for an invalid value, and for a model with recurrent states, which have no positions.
        Raises ModelError if positions are not rotary, or are scaled already.
        """
        if self.shape.states and rope != "auto":
            what = f"{self.name} has layers that remember in states, which a longer window does not change"
            raise UsageError(what, "use --rope auto")
        self._positions, self._rope_scaling = scale_positions(self._trained, rope), rope

    def view(self) -> Self:
        return copy(self)

    def with_prefill_loss(self, loss: float) -> Self:
        view = self.view()
        view.prefill_loss = loss
        return view

    def add_adapter(self, adapter: Adapter) -> None:
        if adapter.fingerprint not in self._adapters:
            self._adapters[adapter.fingerprint] = self._fit(adapter)

    def fingerprint(self, codec: str) -> bytes:
        tokenizer, template = self._chat.identity
        return fingerprint(
            codec,
            self.shape,
            config={k: v for k, v in {**self._config.to_dict(), **self._positions}.items() if k not in _NAMES},
            computed_by=self.computed_by,
            weights=self._hashes,
            precision=f"{self.precision} {arithmetic_of(self._stored, self.device)}".rstrip(),
            tokenizer=tokenizer,
            template=template,
            **({"skipped_attention": self.prefill_loss} if self.prefill_loss else {}),  # other names stay valid
        )

    def forward(
        self, tokens: Sequence[int], cache: Cache, num_logits: int = 1, cancelled: Callable[[], bool] = lambda: False
    ) -> Tensor:
        return self.forward_each([ForwardRequest(tokens, cache, num_logits)], cancelled)[0]

    @torch.inference_mode()
    def forward_each(
        self, requests: Sequence[ForwardRequest], cancelled: Callable[[], bool] = lambda: False
    ) -> list[Tensor]:
        threads = use_free_cores(_LOAD.free) if self.device.type == "cpu" else 0
        with torch_threads(threads) if threads and not self.torch_products else nullcontext():
            return self._forward_each(requests, cancelled)

    def _forward_each(self, requests: Sequence[ForwardRequest], cancelled: Callable[[], bool]) -> list[Tensor]:
        groups = self._groups(requests)
        batches = [ForwardBatch([requests[i] for i in group], self.layers, cancelled) for group in groups]
        logits: list[Tensor] = [torch.empty(0)] * len(requests)
        with ExitStack() as steps:  # commits all sequences or none
            for batch in batches:
                steps.enter_context(batch.open_step())
            for group, batch in zip(groups, batches, strict=True):
                for i, own in zip(group, batch.split(self._run(batch)), strict=True):
                    logits[i] = own
        return logits

    @torch.inference_mode()
    def probe_layer(self, tokens: Sequence[int], cache: Cache, layer: int) -> tuple[Tensor, Tensor]:
        batch = ForwardBatch([ForwardRequest(tokens, cache)], self.layers, until=layer)
        with suppress(Cancelled), batch.open_step():
            self._run(batch)
        assert batch.probed, f"there is no layer {layer}"
        return batch.probed

    def _groups(self, requests: Sequence[ForwardRequest]) -> list[list[int]]:
        """Returns the forward passes for ``requests``: a list of indices of requests for each pass.

        Each adapter has its own pass, and requests without an adapter join the first one. If sums depend on the number
        of rows, each prefill chunk has its own pass, so that batching does not change its result; chunks whose caches
        allow joining are an exception. With recurrent states, every request has its own pass, because modules compute
        states along the token axis.
        """
        if self.shape.states:
            return [[i] for i in range(len(requests))]
        chunk = [not self.batch_invariant and len(request.tokens) > MAX_DECODE_TOKENS for request in requests]
        joins = [i for i, request in enumerate(requests) if chunk[i] and request.cache.joins_chunks]
        chunks = [[i] for i, alone in enumerate(chunk) if alone and i not in joins]
        chunks += _by_adapter(requests, joins)
        few = [(i, adapter_of(request)) for i, request in enumerate(requests) if not chunk[i]]
        adapters = list(dict.fromkeys(adapter for _, adapter in few if adapter))
        groups = [[i for i, adapter in few if adapter in (None, *adapters[:1])]]
        groups += [[i for i, adapter in few if adapter == other] for other in adapters[1:]]
        return chunks + [group for group in groups if group]

    @abstractmethod
    def _run(self, batch: ForwardBatch) -> Tensor:
        """Returns the logits [wanted, vocabulary] of ``batch``. The RoPE of the batch's caches applies if they have
        one, else that of this model.
        """

    @abstractmethod
    def _fit(self, adapter: Adapter) -> Any:
        """Returns ``adapter`` in the form that ``_run`` needs. Raises ModelError for an adapter of another model."""

    @abstractmethod
    def _rope_of(self, positions: Positions) -> ModelRope:
        """Returns the ModelRope for ``positions``, a config's RoPE parameters and window lengths."""


def _by_adapter(requests: Sequence[ForwardRequest], indices: Sequence[int]) -> list[list[int]]:
    """Returns the ``indices`` of requests grouped by adapter."""
    groups = dict[bytes | None, list[int]]()
    for i in indices:
        groups.setdefault(adapter_of(requests[i]), []).append(i)
    return list(groups.values())
