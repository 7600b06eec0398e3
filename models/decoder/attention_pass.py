"""AttentionPass: one forward pass, through which a model's layers attend. It refuses layers that do not match the
KVShape.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from torch import Tensor

from localctx.kv.attention import Expand
from localctx.models.architecture.geometry import LayerMap
from localctx.models.architecture.unsupported import UnsupportedModel
from localctx.models.decoder.state_pass import StatePass
from localctx.shape import KVShape, LayerShape

_current: ContextVar["AttentionPass | None"] = ContextVar("pass", default=None)


def current_pass() -> "AttentionPass | None":
    """Returns the AttentionPass that runs in this thread, None if none does. It is a context variable, because not all
    transformers modules pass arguments on to attention.
    """
    return _current.get()


class EnteredLayer(NamedTuple):
    """A model layer that is about to attend. ``cached`` is the index of its cached layer, and ``new`` are the keys and
    values (or latents) of the new tokens, which the cache appends. ``shared`` is True if an earlier layer of this pass
    computed them, so that the cache has them already.
    """

    cached: int
    new: tuple[Tensor, Tensor]
    shared: bool


class AttentionPass(StatePass):
    """One forward pass, through which the layers of a model attend. It checks that each layer in the LayerMap
    ``layers`` attends once, in order, with the heads and widths of its cached layer in ``shape``. If some layers have
    latents (MLA) or recurrent states, transformers is given the pass as its KV cache.
    """

    def __init__(self, shape: KVShape, layers: LayerMap) -> None:
        super().__init__(shape)
        self.layers = layers
        self.latent = any(layer.kind == "latent" for layer in shape.layers)
        self.is_cache = self.latent or bool(shape.states)
        self._order = list(layers.cached_layer)
        self._shared = {cached for layer, cached in layers.cached_layer.items() if layer != layers.makers[cached]}
        self._latents: tuple[Tensor, Tensor] | None = None
        self._made = dict[int, tuple[Tensor, Tensor]]()  # keys and values for shared layers, by cached layer
        self._attended = 0  # number of layers so far

    def shape_of_layer(self, layer: int) -> LayerShape | None:
        """Returns the LayerShape of the cached layer that the model layer with index ``layer`` attends over; None for a
        layer without pages.
        """
        cached = self.layers.cached_layer.get(layer)
        return None if cached is None else self.shape.layers[cached]

    @contextmanager
    def complete(self) -> Iterator[None]:
        """Make this the current pass within the block. Raises UnsupportedModel if the block ends before every layer has
        attended. A pass that is captured as a CUDA graph begins several times.
        """
        self._attended, self._latents = 0, None
        self._made.clear()
        before = _current.set(self)
        try:
            yield
        finally:
            _current.reset(before)
            self._made.clear()
        if self._attended != len(self._order):
            if not self._attended:
                raise UnsupportedModel("own attention")
            raise UnsupportedModel("order", told=f"{self._attended} of {len(self._order)} did")
        self.check_states()

    def update(self, k: Tensor, v: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Called by transformers instead of ``Cache.update``: record the new latents ``k`` and ``v`` of a layer, and
        return only the new ones. (Earlier latents are expanded later, run by run.) Layers without latents also call
        this method; their keys and values are returned unchanged.
        """
        self._latents = k[0], v[0]
        return k, v

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, expand: Expand | None = None, **how: Any
    ) -> Tensor:
        raise NotImplementedError

    def enter_layer(self, layer: int, k: Tensor, v: Tensor, expand: Expand | None) -> EnteredLayer:
        """Begin the attention of the next model layer, with keys and values k and v [H, T, D] of the new tokens.
        ``expand`` turns the latents of a latent layer (MLA) into keys and values; it is None in other layers.

        The new latents of a latent layer are those given to ``update``: k [1, T, rank] and v [1, T, rope_dim]. Raises
        UnsupportedModel if the layer does not match the KVShape.
        """
        cached = self._next(layer)
        shared = layer != self.layers.makers[cached]
        expected = self.shape.layers[cached]
        if (expand is not None) != (expected.kind == "latent") or (expand and self._latents is None):
            raise UnsupportedModel("latents")
        new, self._latents = self._latents if expand and self._latents else (k, v), None
        found = new[0].shape[0], new[0].shape[2], new[1].shape[2]
        if found != (expected.kv_heads, expected.k_dim, expected.v_dim) or new[1].shape[:2] != new[0].shape[:2]:
            raise _wrong_widths(found, expected)
        if shared and not all(map(_same, new, self._made[cached])):
            raise UnsupportedModel("shared")
        if cached in self._shared:
            self._made[cached] = new
        return EnteredLayer(cached, new, shared)

    def enter_plain_layer(self, layer: int, k: tuple[int, ...], v: tuple[int, ...]) -> int:
        """Begin the attention of the next model layer, which has no latents and shares no keys and values with other
        layers. ``k`` and ``v`` are (heads, width) of the new keys and values. Returns the index of the cached layer.
        Raises UnsupportedModel if the layer does not match the KVShape.
        """
        cached = self._next(layer)
        expected = self.shape.layers[cached]
        assert expected.kind != "latent", "a layer with latents has no plain keys and values"
        assert cached not in self._shared, "a layer that others share enters with its tensors"
        if k != (expected.kv_heads, expected.k_dim) or v != (expected.kv_heads, expected.v_dim):
            raise _wrong_widths((*k, v[1]), expected)
        return cached

    def _next(self, layer: int) -> int:
        """Returns the index of the cached layer for the model layer ``layer``. Raises UnsupportedModel if the layer is
        out of order.
        """
        if self._attended == len(self._order) or layer != self._order[self._attended]:
            raise UnsupportedModel("order", told=f"layer {layer} at {self._attended} of {len(self._order)}")
        self._attended += 1
        return self.layers.cached_layer[layer]


def _same(x: Tensor, y: Tensor) -> bool:
    """Returns True if ``x`` and ``y`` are views of the same elements in memory."""
    return x.shape == y.shape and x.stride() == y.stride() and x.data_ptr() == y.data_ptr()


def _wrong_widths(found: tuple[int, ...], expected: LayerShape) -> UnsupportedModel:
    wanted = _widths(expected.kv_heads, expected.k_dim, expected.v_dim)
    return UnsupportedModel("widths", found=_widths(*found), expected=wanted)


def _widths(heads: int, k_dim: int, v_dim: int) -> str:
    return f"{heads} x {k_dim}" + ("" if v_dim == k_dim else f" and {v_dim}")
