"""The attention function registered with transformers. It attends through an AttentionPass and rejects other uses."""

from typing import Any

from torch import Tensor

from localctx.kv.attention import Expand
from localctx.models.architecture.unsupported import UnsupportedModel
from localctx.models.decoder.attention_pass import current_pass

ATTENTION = "localctx"
_OTHERS = frozenset(
    (
        "dropout",
        "position_ids",
        "position_embeddings",
        "use_cache",
        "output_attentions",
        "cache_position",
        "is_causal",
        "past_key_values",
        "layer_idx",
        "output_router_logits",
        "logits_to_keep",
        "target_dtype",
        "deterministic",
        "head_mask",
        "output_hidden_states",
        "return_dict",
    )
)
"""Arguments of attention that are ignored: their content is known otherwise, or is for training."""


def use_our_attention(module: Any) -> None:
    """Make the transformers model ``module`` attend through the current AttentionPass. transformers then builds no
    masks and no KV cache.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, attention)
    module.set_attn_implementation(ATTENTION)


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attend with query [1, Hq, T, D], key and value [1, H, T, D] of the new tokens, through the current AttentionPass.
    Returns [1, T, Hq, Dv], and None in place of attention weights.

    Raises UnsupportedModel for options that an AttentionPass does not support.
    """
    batch, layer = current_pass(), getattr(module, "layer_idx", None)
    if batch is None or not isinstance(layer, int):
        raise UnsupportedModel("own attention")
    if attention_mask is not None:
        raise UnsupportedModel("mask")
    if not getattr(module, "is_causal", True) or others.get("is_causal") is False:
        raise UnsupportedModel("not a decoder")
    if unknown := sorted(name for name, value in others.items() if value is not None and name not in _OTHERS):
        raise UnsupportedModel("options", names=", ".join(unknown))
    expand = _expansion(module)
    shape = batch.shape_of_layer(layer)
    window = shape.window if shape else None
    if sliding_window not in (None, window):
        raise UnsupportedModel("window", told=f"{sliding_window}, not {window or 'all'}")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = batch.attend(layer, query[0], key[0], value[0], scale, expand, softcap=softcap or 0, sinks=s_aux)
    return out.transpose(0, 1)[None], None


def _expansion(module: Any) -> Expand | None:
    """Returns the function that expands latents to keys and values (MLA, arXiv 2405.04434), or None without latents."""
    if not hasattr(module, "expand_kv"):
        return None

    def expand(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = module.expand_kv(k[None], v[None])
        return keys[0], values[0]

    return expand
