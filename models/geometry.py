"""A model's geometry, read from its transformers config alone: the KVShape, and what else it takes in memory."""

from typing import Any

from localctx.shape import KVShape, LayerShape

KINDS = {"full_attention": "full", "sliding_attention": "sliding"}


def shape_of(config: Any) -> KVShape:
    """The cache geometry a transformers (text) config describes: MHA, GQA, MQA, sliding windows, or MLA latents."""
    if rank := getattr(config, "kv_lora_rank", None):  # DeepSeek-V2: one latent and one rotated key a token
        return KVShape((LayerShape(1, rank, config.qk_rope_head_dim, "latent"),) * config.num_hidden_layers)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if not kinds:
        kinds = ["sliding_attention" if window else "full_attention"] * config.num_hidden_layers
    return KVShape(
        tuple(LayerShape(heads, dim, dim, KINDS[k], window if k == "sliding_attention" else None) for k in kinds)  # type: ignore[arg-type]
    )
