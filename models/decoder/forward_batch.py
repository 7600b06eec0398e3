"""ForwardBatch: computes the new tokens of one or more sequences, concatenated, in one pass through all layers."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from localctx.errors import Cancelled
from localctx.kernels.cpu.decode_layers import LayerPages
from localctx.kv.attention import Expand, attend_cache
from localctx.kv.batches.decode_batch import DecodeBatch
from localctx.kv.batches.graph_inputs import CapturableBatch
from localctx.kv.cache import Cache
from localctx.kv.dispatch import batch_key, joins_batch
from localctx.kv.sequence_states import SequenceStates
from localctx.models.architecture.geometry import LayerMap
from localctx.models.base import ForwardRequest
from localctx.models.decoder.attention_pass import AttentionPass
from localctx.models.decoder.rope import ModelRope


class AdaptedRows(NamedTuple):
    """The tokens of a forward pass that an adapter applies to: their ``indices``, and the ``fingerprint`` of the
    adapter.
    """

    fingerprint: bytes
    indices: list[int]


def adapter_of(request: ForwardRequest) -> bytes | None:
    """Returns the fingerprint of the LoRA adapter that applies to the last new token of the request; None if no adapter
    does.
    """
    active, cache = request.cache.activation, request.cache
    return active.fingerprint if active and active.start < cache.length + len(request.tokens) else None


class ForwardBatch(AttentionPass):
    """One forward pass over the new tokens of ``requests``. ``until`` is the index of a cached layer at which the pass
    ends early, by raising Cancelled. ``probed`` then holds the new keys and values of that layer. ``cancelled`` is
    asked at each layer.
    """

    def __init__(
        self,
        requests: Sequence[ForwardRequest],
        layers: LayerMap,
        cancelled: Callable[[], bool] = lambda: False,
        until: int | None = None,
    ) -> None:
        super().__init__(requests[0].cache.pool.shape, layers)
        self.requests, self.cancelled, self.until = requests, cancelled, until
        self.probed: tuple[Tensor, Tensor] | None = None
        self._alone = list[tuple[slice, Cache]]()  # sequences that attend alone, with the slice of their tokens
        self._batches = list[tuple[Tensor | None, DecodeBatch]]()  # with their token indices; None: all tokens

    @contextmanager
    def open_step(self) -> Iterator[None]:
        """Begin a step in every cache, and commit all caches at the end of the block. If the block raises an exception,
        all caches are rolled back. Beginning a step may move a cache to other positions.
        """
        with ExitStack() as caches:
            for request in self.requests:
                request.cache.begin(len(request.tokens))
                caches.callback(request.cache.rollback)
            self._arrange()
            yield
            caches.pop_all()
        for _, batch in self._batches:
            batch.report_attention()
        for request in self.requests:
            request.cache.commit()

    @property
    def states(self) -> SequenceStates:
        """The recurrent states of the only sequence. Sequences with recurrent states are never batched."""
        (request,) = self.requests
        return request.cache.states

    @property
    def span(self) -> tuple[int, int]:
        """Two numbers of tokens of the only sequence: before this pass, and new in this pass."""
        (request,) = self.requests
        return request.cache.length, len(request.tokens)

    @property
    def tokens(self) -> list[int]:
        """The new tokens of all requests, concatenated."""
        return [token for request in self.requests for token in request.tokens]

    def positions(self, start: int | None = None) -> list[int]:
        """Returns the positions of all new ``tokens`` for RoPE. The tokens of a request begin at the next position of
        its cache, or at ``start`` if given.
        """
        starts = [request.cache.position if start is None else start for request in self.requests]
        return [at + i for at, request in zip(starts, self.requests, strict=True) for i in range(len(request.tokens))]

    @property
    def rope(self) -> ModelRope | None:
        """The RoPE that all caches of this pass share; None if the model has none."""
        ropes = {request.cache.pool.rope for request in self.requests}
        assert len(ropes) == 1, "sequences in one forward pass have the same RoPE"
        rope = ropes.pop()
        return rope if isinstance(rope, ModelRope) else None

    @property
    def logit_indices(self) -> list[int]:
        """The indices, in ``tokens``, of the tokens whose logits the requests ask for."""
        ends = accumulate(len(request.tokens) for request in self.requests)
        return [i for end, request in zip(ends, self.requests, strict=True) for i in range(end)[-request.num_logits :]]

    @property
    def adapted_rows(self) -> AdaptedRows | None:
        """The new tokens that a LoRA adapter applies to; None if there are none. A pass has at most one adapter."""
        indices, fingerprints, end = list[int](), set[bytes](), 0
        for request in self.requests:
            start, end = end, end + len(request.tokens)
            if (fingerprint := adapter_of(request)) and request.cache.activation:
                fingerprints.add(fingerprint)
                indices += range(max(start, start + request.cache.activation.start - request.cache.length), end)
        assert len(fingerprints) < 2, "sequences with different adapters are in passes of their own"
        return AdaptedRows(fingerprints.pop(), indices) if fingerprints else None

    def split(self, logits: Tensor) -> list[Tensor]:
        """Split the logits of all requests, which are concatenated, into one tensor [num_logits, vocabulary] float32
        for each request.
        """
        return list(logits.float().split([request.num_logits for request in self.requests]))

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, expand: Expand | None = None, **how: Any
    ) -> Tensor:
        """Attend with the queries q [Hq, T, D] of each sequence over its cache and its new k and v [H, T, D]. Returns
        [Hq, T, Dv]. ``layer`` is the index in the model, and ``scale`` the factor of scores.

        The cache appends k and v, or the latents that a latent layer gave to ``update``, unless an earlier layer did.
        In a latent layer, ``expand`` turns latents into keys and values. ``how`` has the options ``softcap`` and
        ``sinks`` of ``attend_cache``. Raises Cancelled if the pass is cancelled or reaches ``until``, and
        UnsupportedModel.
        """
        cached, new, shared = self.enter_layer(layer, k, v, expand)
        how |= {"window": self.shape.layers[cached].window, "shared": shared}
        if cached == self.until:
            self.probed = new
        if cached == self.until or self.cancelled():
            raise Cancelled
        if whole := self._whole_batch:
            return whole.attend(cached, q, k, v, scale, **how)
        out = q.new_empty(q.shape[1], q.shape[0], v.shape[2]).transpose(0, 1)
        for tokens, cache in self._alone:
            own = [x[:, tokens] for x in (q, k, v)]
            out[:, tokens] = attend_cache(cache, cached, own[0], own[1], own[2], scale, expand=expand, **how)
            if not shared:
                cache.extend(cached, *(x[:, tokens] for x in new))
        for indices, batch in self._batches:
            batch_qkv = [x[:, indices] for x in (q, k, v)]
            out[:, indices] = batch.attend(cached, batch_qkv[0], batch_qkv[1], batch_qkv[2], scale, **how)
        return out

    def attend_arrays(self, layer: int, q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
        """Attend like ``attend``, but with arrays whose first axis is the token: q [T, Hq, D], k and v [T, H, D].
        ``layer`` is the index in the model, and ``scale`` the factor of scores. Returns [T, Hq * Dv] float32.
        """
        whole = self._whole_batch
        if not whole or self.until is not None:
            tensors = [torch.from_numpy(x).transpose(0, 1) for x in (q, k, v)]
            out = self.attend(layer, tensors[0], tensors[1], tensors[2], scale)
            return out.transpose(0, 1).flatten(1).contiguous().numpy()
        cached = self.enter_plain_layer(layer, k.shape[1:], v.shape[1:])
        if self.cancelled():
            raise Cancelled
        return whole.attend_arrays(cached, q, k, v, scale, self.shape.layers[cached].window).reshape(len(q), -1)

    @property
    def layer_pages(self) -> LayerPages | None:
        """The pages of all layers for the kernel ``decode_layers``, which computes all layers in one call; None if this
        pass cannot use that kernel.
        """
        whole = self._whole_batch
        return whole.layer_pages if whole and self.until is None else None

    def enter_layers(self, keys: np.ndarray, values: np.ndarray, chosen: np.ndarray, shares: np.ndarray) -> None:
        """Finish the pass after ``decode_layers`` has computed all layers over ``layer_pages``. The arguments are its
        results: ``keys`` [layers, T, H, D] and ``values`` of the new tokens, the indices of the ``chosen`` pages, and
        the ``shares`` of attention that pages got. Raises Cancelled and UnsupportedModel.
        """
        whole = self._whole_batch
        assert whole, "all tokens are in one batch"
        if self.cancelled():
            raise Cancelled
        for layer, (k, v) in enumerate(zip(keys, values, strict=True)):
            self.enter_plain_layer(layer, k.shape[1:], v.shape[1:])
        whole.finish_layers(keys, values, chosen, shares)

    @property
    def capturable(self) -> CapturableBatch | None:
        """The decode batch of this pass, if it has all new tokens and can run as a CUDA graph; else None."""
        whole = self._whole_batch
        return whole.capturable() if whole and self.until is None else None

    @property
    def _whole_batch(self) -> DecodeBatch | None:
        """Returns the decode batch if one batch has all tokens of this pass, else None."""
        return self._batches[0][1] if not self._alone and self._batches[0][0] is None else None

    def _arrange(self) -> None:
        """Group the sequences that attend in one call, and list the indices of their tokens."""
        end, together = 0, defaultdict[tuple[str, int], list[tuple[list[int], Cache]]](list)
        for tokens, cache, _ in self.requests:
            start, end = end, end + len(tokens)
            if joins_batch(cache, len(tokens), latent=self.latent):
                together[batch_key(cache)].append((list(range(start, end)), cache))
            else:
                self._alone.append((slice(start, end), cache))
        for sequences in together.values():
            indices = [i for own, _ in sequences for i in own]
            batch = make_decode_batch([(cache, len(own)) for own, cache in sequences])
            self._batches.append((None if len(indices) == end else torch.tensor(indices), batch))


def make_decode_batch(sequences: Sequence[tuple[Cache, int]]) -> DecodeBatch:
    """Returns a decode batch of ``sequences``, which are pairs of a cache and the number of its new tokens. All caches
    belong to one pool, or to pools with the same page format.
    """
    if sequences[0][0].pool.backend.name == "triton":
        from localctx.kv.batches.triton_decode_batch import TritonDecodeBatch  # imports Triton

        return TritonDecodeBatch(sequences)
    return DecodeBatch(sequences)
