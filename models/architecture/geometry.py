"""Derives a model's KVShape and the working memory of a forward pass from its transformers config."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from localctx.kernels.reference import FLASH_WIDTH
from localctx.kv.attention import MAX_PARTS
from localctx.kv.block_table import RUN, WIDE_RUN
from localctx.shape import PAGE, KVShape, LayerKind, LayerShape

KINDS: dict[str, LayerKind] = {
    "full_attention": "full",
    "sliding_attention": "sliding",
    "hybrid": "full",
    "hybrid_sliding": "sliding",
}
"""Transformers' names of layers with pages. Hybrid layers have states too."""
STATE_KINDS = frozenset(("linear_attention", "conv", "hybrid", "hybrid_sliding"))
"""Names of layers with recurrent states."""
OTHER_KINDS = frozenset(("moe", "mlp", "dummy"))
"""Names of layers that cache nothing."""
FIXED = 16 << 20  # bytes that threads and matrix kernels use, whatever the model
SLACK = 1.5  # for heap fragmentation, which grows with the cache
SLACK_GPU = 1.1  # torch's blocks are up to 1 MiB larger than asked; not measured on a GPU yet
FIXED_GPU = 32 << 20  # bytes of the cuBLAS workspace on Hopper; smaller on other GPUs


@dataclass(frozen=True)
class LayerMap:
    """Maps each model layer to a cached layer (a layer of the KVShape). Several model layers may share the keys and
    values of one cached layer.

    ``cached_layer`` maps the index of a model layer to the index of its cached layer, in the model's order. Model
    layers without pages are not in it. The first model layer of a cached layer computes the keys and values; the others
    compute only queries.
    """

    cached_layer: Mapping[int, int]

    @cached_property
    def makers(self) -> list[int]:
        """The indices of the model layers that compute keys and values, one for each cached layer, in the order of
        cached layers.
        """
        makers = dict[int, int]()
        for layer, cached in self.cached_layer.items():
            makers.setdefault(cached, layer)
        return list(makers.values())


def layer_map(config: Any) -> LayerMap:
    """Returns the LayerMap of a transformers (text) config. Layers without pages are left out.

    In Gemma 3n and 4, the last layers use the keys and values of the last earlier layer of the same type (sliding or
    full attention).
    """
    modes = getattr(config, "kv_sharing_modes", None) or [None] * config.num_hidden_layers
    kinds = getattr(config, "layer_types", None) or [None] * len(modes)
    cached, newest, count = dict[int, int](), dict[str | None, int](), 0
    for layer, (mode, kind) in enumerate(zip(modes, kinds, strict=True)):
        if kind in (STATE_KINDS | OTHER_KINDS) - set(KINDS):
            continue
        if mode != "reuse":
            newest[kind], count = count, count + 1
        cached[layer] = newest[kind]
    return LayerMap(cached)


def shape_of(config: Any) -> KVShape:
    """Returns the KVShape of a transformers (text) config: the KV heads, widths and window of each cached layer.
    Supports MHA, GQA, MQA, sliding windows and MLA latents.
    """
    layers, kinds = layer_configs(config), getattr(config, "layer_types", None) or [None] * config.num_hidden_layers
    return KVShape(tuple(_layer_shape(layers[i], kinds[i]) for i in layer_map(config).makers))


def has_states(config: Any) -> bool:
    """Returns True if some layers of a transformers (text) config have recurrent states."""
    return not STATE_KINDS.isdisjoint(getattr(config, "layer_types", None) or ())


def layer_configs(config: Any) -> Sequence[Any]:
    """Returns the config of each layer. The configs differ if heads differ between layers (Gemma 4)."""
    if getattr(config, "is_heterogeneous", False):
        return list(config.per_layer_config)
    return [config] * config.num_hidden_layers


def _layer_shape(config: Any, name: str | None) -> LayerShape:
    if rank := getattr(config, "kv_lora_rank", None):  # DeepSeek-V2: one latent and one rotated key per token
        return LayerShape(1, rank, config.qk_rope_head_dim, "latent")
    dim, window = _head_dim(config), getattr(config, "sliding_window", None)
    kind = KINDS[name or ("sliding_attention" if window else "full_attention")]
    return LayerShape(_kv_heads(config), dim, dim, kind, window if kind == "sliding" else None)


def multihead_shape_of(config: Any) -> KVShape:
    """Returns the KVShape that the model would have with plain multi-head attention, where every query head has its own
    keys and values. It shows what GQA or MLA saves.
    """
    layers = layer_configs(config)
    made = (layers[i] for i in layer_map(config).makers)
    return KVShape(tuple(LayerShape(own.num_attention_heads, *_widths(own)) for own in made))


@dataclass(frozen=True)
class Geometry:
    """The number of elements per token of each tensor in a layer. The working memory of a forward pass is computed from
    these.

    ``hidden`` counts all residual streams (Gemma 3n has several). ``queries`` and ``outputs`` count all ``heads``
    together. ``fresh`` counts the key and value of a new token; in a latent layer (MLA) they are expanded. ``history``
    counts the key and value of a cached token, decoded and expanded. ``inner`` is the peak in the MLP or in the
    experts, plus per-layer embeddings. ``eager`` is True if attention holds all scores in memory on any device.
    ``masked`` is True if it does so only on a GPU, because some layers have a sliding window.
    """

    hidden: int
    heads: int
    queries: int
    outputs: int
    fresh: int
    history: int
    inner: int
    vocabulary: int
    eager: bool
    masked: bool = False

    def activation_bytes(self, chunk: int, context: int, itemsize: int, device: str = "cpu") -> int:
        """Estimate the peak working memory, in bytes, of the forward pass that reads the last ``chunk`` of ``context``
        tokens.

        ``itemsize`` is the size in bytes of an element in the model's precision. The estimate adds up tensors that do
        not exist at the same time, so it is between the measured peak and 1.5 times that. On a GPU where attention does
        not hold scores in memory, the estimate is closer (tests/measure/measure_gpu_budget.py compares).
        """
        if not device.startswith("cpu") and self._in_kernels(itemsize):
            return self._kernel_bytes(chunk, context, itemsize)
        run = min(RUN * PAGE, max(context, chunk))
        per_token = self._token_bytes(context, itemsize)
        decoded = run * self.history * (4 + itemsize)
        if self.eager or not device.startswith("cpu"):
            per_token += self.heads * run * 5 * 4  # float32 scores (capped and masked) and their exponentials
            decoded += run * self.heads * self.fresh_width * itemsize  # keys and values repeated per query head
        logits = self.vocabulary * (itemsize + 4)
        return FIXED + int(SLACK * (chunk * per_token + decoded + logits))

    def _in_kernels(self, itemsize: int) -> bool:
        """Returns True if attention on a GPU does not hold scores in memory (see ``reference.flash_runs``). If no GPU
        is here, a recent one is assumed.
        """
        width = self.queries // self.heads
        old = torch.cuda.is_available() and torch.cuda.get_device_capability() < (8, 0)
        return not (self.eager or self.masked or old) and itemsize == 2 and width <= FLASH_WIDTH and width % 8 == 0

    def _kernel_bytes(self, chunk: int, context: int, itemsize: int) -> int:
        """Estimate the peak bytes of a layer's tensors in torch. The peak is in one of four steps, whichever is
        largest: decoding a run of pages, merging partial outputs, RoPE, or the MLP.

        Embeddings, the layer's input and the normed input exist in all steps. Only one run of pages is decoded at a
        time. Attention to the pages comes before attention to the open page and the new tokens. Merging holds float32
        outputs twice. RoPE holds q three times.
        """
        runs, parts = min(-(-context // (WIDE_RUN * PAGE)), MAX_PARTS), self._parts(context, WIDE_RUN)
        run = min(WIDE_RUN * PAGE, max(context, chunk)) * self.history * itemsize
        attended = (self.queries + self.fresh + self.outputs) * itemsize
        decoding = attended + runs * (self.outputs * itemsize + self.heads * 4)
        merging = attended + parts * (self.outputs * itemsize + 3 * self.heads * 4) + self.outputs * 2 * 4
        rotating = (3 * self.queries + self.fresh) * itemsize
        per_token = max(merging, rotating, self.inner * itemsize, self.hidden * 2 * 4)
        throughout = chunk * 3 * self.hidden * itemsize + self.vocabulary * (itemsize + 4)
        return FIXED_GPU + int(SLACK_GPU * (throughout + max(chunk * decoding + run, chunk * per_token)))

    @property
    def fresh_width(self) -> int:
        """The number of elements of one query head's key and value together, for one token."""
        return (self.queries + self.outputs) // self.heads

    def _token_bytes(self, context: int, itemsize: int) -> int:
        parts = self._parts(context, RUN)
        residual = self.hidden * (2 * itemsize + 2 * 4)  # norms compute in float32
        projected = 3 * (self.queries + self.fresh) * itemsize  # before, during and after RoPE
        attended = parts * (self.outputs * itemsize + self.heads * 4) + self.outputs * (2 * 4 + itemsize)
        encoded = self.fresh * 3 * 4
        return residual + projected + attended + encoded + self.inner * itemsize

    def _parts(self, context: int, run: int) -> int:
        """Returns the number of partial attention outputs before merging: runs of pages, the tail and new tokens."""
        return min(-(-context // (run * PAGE)) + 2, MAX_PARTS)


def geometry_of(config: Any) -> Geometry:
    """Returns the geometry of a transformers (text) config, with the maximum of each value over all layers."""
    layers = [_layer_geometry(own) for own in layer_configs(config)]
    largest = {name: max(getattr(own, name) for own in layers) for name in Geometry.__dataclass_fields__}
    return Geometry(**largest)


def _layer_geometry(config: Any) -> Geometry:
    heads = config.num_attention_heads
    k_dim, v_dim = _widths(config)
    latent = getattr(config, "kv_lora_rank", None)
    fresh = (heads if latent else _kv_heads(config)) * (k_dim + v_dim)
    return Geometry(
        hidden=config.hidden_size * _largest(config, "altup_num_inputs") or config.hidden_size,
        heads=heads,
        queries=heads * k_dim,
        outputs=heads * v_dim,
        fresh=fresh,
        history=fresh + latent + config.qk_rope_head_dim if latent else fresh,
        inner=_inner(config),
        vocabulary=config.vocab_size,
        eager=k_dim != v_dim or bool(getattr(config, "attn_logit_softcapping", None)),
        masked=bool(getattr(config, "sliding_window", None)),
    )


def largest_chunk(
    geometry: Geometry,
    free: int,
    wanted: int = 512,
    *,
    context: int = RUN * PAGE,
    itemsize: int = 4,
    device: str = "cpu",
) -> int:
    """Returns the largest prefill chunk, in tokens, whose working memory fits into ``free`` bytes. The chunk is whole
    pages, at least one page, and at most ``wanted`` tokens.

    ``context`` is the length of the whole prompt in tokens. ``itemsize`` is the size in bytes of an element in the
    model's precision.
    """
    base, step = (geometry.activation_bytes(n, context, itemsize, device) for n in (0, PAGE))
    chunk = PAGE * max(1, min(int((free - base) // (step - base)), wanted // PAGE))
    while chunk > PAGE and geometry.activation_bytes(chunk, max(chunk, context), itemsize, device) > free:
        chunk -= PAGE  # bytes per token rise in chunks longer than ``context`` and, on a GPU, in the MLP
    return chunk


def _kv_heads(config: Any) -> int:
    if getattr(config, "multi_query", False) and not getattr(config, "new_decoder_architecture", False):
        return 1  # Falcon
    names = ("num_key_value_heads", "num_kv_heads")
    return next((n for name in names if (n := getattr(config, name, None))), config.num_attention_heads)


def _head_dim(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def _widths(config: Any) -> tuple[int, int]:
    """Returns the width of a key and of a value of one head, as attention computes with them."""
    if getattr(config, "kv_lora_rank", None):
        return config.qk_nope_head_dim + config.qk_rope_head_dim, config.v_head_dim
    return _head_dim(config), _head_dim(config)


def _inner(config: Any) -> int:
    hidden = config.hidden_size
    dense = _largest(config, "intermediate_size", "ffn_hidden_size", "n_inner") or 4 * hidden
    expert = _largest(config, "moe_intermediate_size") or dense
    shared = _largest(config, "shared_expert_intermediate_size") or expert * _largest(config, "n_shared_experts")
    chosen = _largest(config, "num_experts_per_tok", "moe_topk", "top_k_experts")
    routed = chosen * (3 * hidden + 4 * expert) + 3 * shared  # input, gate and up, product, output, weighted output
    wide = 2 if getattr(config, "use_double_wide_mlp", False) else 1  # Gemma 4, in layers that share KV
    embedded = config.num_hidden_layers * _largest(config, "hidden_size_per_layer_input")
    return max(3 * dense * wide, routed) + 3 * embedded  # per layer: lookup, projection and their sum


def _largest(config: Any, *names: str) -> int:
    """Returns the first nonzero config value among ``names``, or 0 if there is none. For a list with a value per layer,
    returns the maximum.
    """
    value = next((value for name in names if (value := getattr(config, name, None))), 0)
    return max(value) if isinstance(value, list | tuple) else value
