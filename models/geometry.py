"""Derives from a transformers config the KVShape of a model and the working memory of one forward pass."""

from dataclasses import dataclass
from typing import Any

from localctx.kv.attention import MAX_PARTS
from localctx.kv.block_table import RUN
from localctx.shape import PAGE, KVShape, LayerKind, LayerShape

KINDS: dict[str, LayerKind] = {"full_attention": "full", "sliding_attention": "sliding"}
FIXED = 16 << 20  # bytes that threads and matrix kernels use for any model
SLACK = 1.5  # for heap fragmentation, which grows with the cache


def shape_of(config: Any) -> KVShape:
    """Returns the cache shape of a transformers (text) config: MHA, GQA, MQA, sliding windows, or MLA latents."""
    if rank := getattr(config, "kv_lora_rank", None):  # DeepSeek-V2: one latent and one rotated key a token
        return KVShape((LayerShape(1, rank, config.qk_rope_head_dim, "latent"),) * config.num_hidden_layers)
    heads, dim = _kv_heads(config), _head_dim(config)
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if not kinds:
        kinds = ["sliding_attention" if window else "full_attention"] * config.num_hidden_layers
    return KVShape(
        tuple(LayerShape(heads, dim, dim, KINDS[k], window if k == "sliding_attention" else None) for k in kinds)
    )


def multihead_shape_of(config: Any) -> KVShape:
    """Returns the cache shape the model would have with plain multi-head attention: keys and values for every head."""
    k_dim, v_dim = _widths(config)
    return KVShape((LayerShape(config.num_attention_heads, k_dim, v_dim),) * config.num_hidden_layers)


@dataclass(frozen=True)
class Geometry:
    """The elements that one token takes in each part of a layer.

    ``queries`` and ``outputs`` are those of all ``heads``; ``fresh`` is the token's own key and value, expanded in a
    latent layer; ``history`` is the decoded (and expanded) key and value of a cached token; ``inner`` is the most that
    the MLP, or the token's experts, hold at once. ``eager``: attention materializes its scores, even on a CPU.
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

    def activation_bytes(self, chunk: int, context: int, itemsize: int, device: str = "cpu") -> int:
        """Estimates the peak working memory, in bytes, of the step that reads the last ``chunk`` of ``context`` tokens.

        ``itemsize`` is the bytes of an element of the model's precision. The parts are summed although they do not all
        exist at once; with ``SLACK`` the estimate is between the measured peak and 1.5 times that.
        """
        run = min(RUN * PAGE, max(context, chunk))
        per_token = self._token_bytes(context, itemsize)
        decoded = run * self.history * (4 + itemsize)
        if self.eager or not device.startswith("cpu"):
            per_token += self.heads * run * 5 * 4  # scores, capped and masked, and their exponentials, in float32
            decoded += run * self.heads * self.fresh_width * itemsize  # keys and values once for every query head
        logits = self.vocabulary * (itemsize + 4)
        return FIXED + int(SLACK * (chunk * per_token + decoded + logits))

    @property
    def fresh_width(self) -> int:
        """The elements of one head's key and value."""
        return (self.queries + self.outputs) // self.heads

    def _token_bytes(self, context: int, itemsize: int) -> int:
        parts = min(
            -(-context // (RUN * PAGE)) + 2, MAX_PARTS
        )  # attention outputs of runs, the tail and the new tokens
        residual = self.hidden * (2 * itemsize + 2 * 4)  # norms compute in float32
        projected = 3 * (self.queries + self.fresh) * itemsize  # before and after RoPE, and on the way
        attended = parts * (self.outputs * itemsize + self.heads * 4) + self.outputs * (2 * 4 + itemsize)
        encoded = self.fresh * 3 * 4
        return residual + projected + attended + encoded + self.inner * itemsize


def geometry_of(config: Any) -> Geometry:
    """Returns the geometry of the model that a transformers (text) config describes."""
    heads = config.num_attention_heads
    k_dim, v_dim = _widths(config)
    latent = getattr(config, "kv_lora_rank", None)
    fresh = (heads if latent else _kv_heads(config)) * (k_dim + v_dim)
    return Geometry(
        hidden=config.hidden_size,
        heads=heads,
        queries=heads * k_dim,
        outputs=heads * v_dim,
        fresh=fresh,
        history=fresh + latent + config.qk_rope_head_dim if latent else fresh,
        inner=_inner(config),
        vocabulary=config.vocab_size,
        eager=k_dim != v_dim or bool(getattr(config, "attn_logit_softcapping", None)),
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
    """Returns the largest prefill chunk, in whole pages up to ``wanted`` tokens, that fits into ``free`` bytes; at
    least a page.

    ``context`` is the length of the whole prompt, ``itemsize`` the bytes of an element of the model's precision.
    """
    base, step = (geometry.activation_bytes(n, context, itemsize, device) for n in (0, PAGE))
    chunk = PAGE * max(1, min(int((free - base) // (step - base)), wanted // PAGE))
    while chunk > max(PAGE, context) and geometry.activation_bytes(chunk, chunk, itemsize, device) > free:
        chunk -= PAGE  # a chunk longer than the prompt attends to more than ``context``
    return chunk


def _kv_heads(config: Any) -> int:
    if getattr(config, "multi_query", False) and not getattr(config, "new_decoder_architecture", False):
        return 1  # Falcon
    names = ("num_key_value_heads", "num_kv_heads")
    return next((n for name in names if (n := getattr(config, name, None))), config.num_attention_heads)


def _head_dim(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def _widths(config: Any) -> tuple[int, int]:
    """Returns the widths of a head's key and value in attention."""
    if getattr(config, "kv_lora_rank", None):
        return config.qk_nope_head_dim + config.qk_rope_head_dim, config.v_head_dim
    return _head_dim(config), _head_dim(config)


def _inner(config: Any) -> int:
    hidden = config.hidden_size
    dense = _largest(config, "intermediate_size", "ffn_hidden_size", "n_inner") or 4 * hidden
    expert = _largest(config, "moe_intermediate_size") or dense
    shared = _largest(config, "shared_expert_intermediate_size") or expert * _largest(config, "n_shared_experts")
    chosen = _largest(config, "num_experts_per_tok", "moe_topk", "top_k_experts")
    routed = chosen * (3 * hidden + 4 * expert) + 3 * shared  # input, gate and up, product, output and its share
    return max(3 * dense, routed)


def _largest(config: Any, *names: str) -> int:
    """Returns the first of these values in the config, the largest if it is a list for layers; 0 if there is none."""
    value = next((value for name in names if (value := getattr(config, name, None))), 0)
    return max(value) if isinstance(value, list | tuple) else value
