"""Tiny configs of model types, made from the types' own defaults: all that transformers builds as causal LMs, and some
that have a text model inside.
"""

import dataclasses
import inspect
from typing import Any

from transformers import CONFIG_MAPPING, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

WRAPPERS = (
    *(
        "aria",
        "exaone4_5",
        "glm4v",
        "glm4v_moe",
        "glm_ocr",
        "idefics3",
        "internvl",
        "lfm2_vl",
        "llava",
        "llava_onevision",
    ),
    *(
        "mistral3",
        "muse_glimmer",
        "paligemma",
        "qwen2_5_vl",
        "qwen2_vl",
        "qwen3_vl",
        "qwen3_vl_moe",
        "step3p7",
        "voxtral",
    ),
)
CAUSAL = tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
TYPES = (*CAUSAL, *WRAPPERS)
VOCABULARY = 199
LAYERS, HEADS, KV_HEADS, HEAD, WIDTH, WINDOW = 4, 4, 2, 16, 64, 70

# The fields by which configs tell their sizes, and small values for them. A type takes those that it has.
_SIZES: dict[str, Any] = {
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input", "unpadded_vocab_size"), VOCABULARY),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embedding_size", "emb_dim", "embedding_dim"), WIDTH),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers"), LAYERS),
    **dict.fromkeys(("encoder_layers", "num_encoder_layers", "num_decoder_layers"), LAYERS),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"), HEADS),
    **dict.fromkeys(("swa_num_attention_heads", "decoder_attention_heads", "encoder_attention_heads"), HEADS),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "swa_num_key_value_heads"), KV_HEADS),
    **dict.fromkeys(("head_dim", "swa_head_dim", "kv_channels", "dim_head", "rotary_dim"), HEAD),
    **dict.fromkeys(("attention_head_dim", "attention_head_size"), HEAD),
    **dict.fromkeys(("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "dim_ff", "dff"), 96),
    **dict.fromkeys(("decoder_ffn_dim", "encoder_ffn_dim", "intermediate_size_mlp", "dense_intermediate_size"), 96),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "expert_ffn_hidden_size"), 32),
    **dict.fromkeys(("shared_intermediate_size", "moe_shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("shared_experts_intermediate_size", "prefix_dense_intermediate_size"), 32),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "context_length"), 4096),
    **dict.fromkeys(("sliding_window", "window_size", "sliding_window_size", "attention_window_size"), WINDOW),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts", "zero_expert_num"), 2),
    **dict.fromkeys(("n_group", "topk_group", "first_k_dense_replace", "num_dense_layers"), 1),
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads"), 8),
    **dict.fromkeys(("mamba_d_state", "ssm_state_size", "state_size", "mamba_d_head", "mamba_head_dim"), 16),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads", "linear_num_heads"), 2),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "linear_head_dim"), HEAD),
    **dict.fromkeys(("hidden_size_per_layer_input", "index_head_dim", "router_hidden_size"), HEAD),
    **dict.fromkeys(("index_n_heads", "num_attention_heads_per_layer_input"), 2),
    **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0),
    **dict.fromkeys(("word_embed_proj_dim", "lru_width", "backbone_hidden_size"), WIDTH),
    **dict.fromkeys(("embedding_initializer_range",), 0.02),
    "is_decoder": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    **dict.fromkeys(("adapter_in_dim", "adapter_input_size", "adapter_out_dim"), WIDTH),
    "kv_lora_rank": 24,
    "q_lora_rank": 20,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "original_max_position_embeddings": 128,
    "attention_chunk_size": WINDOW,
    "index_topk": 32,
    "depth": 1,
    "out_hidden_size": WIDTH,
    "embed_dim": WIDTH,
    "query_pre_attn_scalar": HEAD,
    "laurel_rank": 8,
    "mamba_d_ssm": 128,
    "chunk_size": 16,
    "mamba_chunk_size": 16,
    "num_experts_per_layer": 4,
    "ngram_vocab_size_base": 500,
}

_MIXED = ["conv", "full_attention"] * 2
_HYBRID = ["linear_attention", "full_attention"] * 2
_SHARED = {"layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2}
_THREE_AXES = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}}
_LATENT = {"head_dim": 8, "num_key_value_heads": HEADS}

# What a type needs beside, or other than that.
_MORE: dict[str, dict[str, Any]] = {
    "axk1": _LATENT,
    "axk2": _LATENT,
    "bailing_hybrid": {**_LATENT, "layer_types": _HYBRID},
    "bamba": {"attn_layer_indices": [1, 3]},
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}}},
    "dbrx": {"attn_config": {"kv_n_heads": KV_HEADS, "rope_theta": 1e4, "clip_qkv": 8.0}},
    "deepseek_v2": _LATENT,
    "deepseek_v3": _LATENT,
    "deepseek_v32": _LATENT,
    "dots1": {"n_shared_experts": 1},
    "dots3_note_vision_encoder": {"num_hidden_layers": 42},
    "dots3_note_text": {"num_key_value_heads": HEADS, "num_hidden_layers": 46},
    "gemma4_assistant": {"text_config": {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}},
    "gemma3n_text": _SHARED,
    "gemma4_text": _SHARED,
    "glm4_moe_lite": _LATENT,
    "glm_moe_dsa": _LATENT,
    "glm4v_moe_text": {**_THREE_AXES, "partial_rotary_factor": 1.0},
    "glm4v_text": _THREE_AXES,
    "glm_ocr_text": _THREE_AXES,
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "granitemoehybrid": {"layer_types": _HYBRID},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": {**_LATENT, "layer_types": _HYBRID},
    "lfm2": {"layer_types": _MIXED},
    "lfm2_moe": {"layer_types": _MIXED},
    "longcat_flash": _LATENT,
    "mamba2": {"num_heads": 8},
    "minicpm3": _LATENT,
    "qwen2_5_vl_text": _THREE_AXES,
    "qwen2_vl_text": _THREE_AXES,
    "qwen3_vl_moe_text": _THREE_AXES,
    "qwen3_vl_text": _THREE_AXES,
    "reformer": {"axial_pos_embds_dim": (32, 32)},
    "roc_bert": {"pronunciation_vocab_size": 50, "shape_vocab_size": 50},
    "xmod": {"default_language": "en_XX"},
    "youtu": _LATENT,
    "zamba2": {"layers_block_type": ["linear_attention", "hybrid"] * 2},
    "zaya": {"num_experts_per_tok": 1},
}


def tiny_config(kind: str) -> PreTrainedConfig:
    """The config of a tiny model of the type ``kind``, as a decoder."""
    return _small(CONFIG_MAPPING[kind])


def _small(kind: type[PreTrainedConfig]) -> PreTrainedConfig:
    fields = {field.name for field in dataclasses.fields(kind)} | {*inspect.signature(kind.__init__).parameters}
    chosen = {field: value for field, value in _SIZES.items() if field in fields}
    inner = {field: _small(sub) for field, sub in _inner(kind).items()}
    return kind(**{**chosen, **inner, **_MORE.get(kind.model_type, {})})


def _inner(kind: type[PreTrainedConfig]) -> dict[str, type[PreTrainedConfig]]:
    """The types of the configs inside a config, by field."""
    if not kind.sub_configs:
        return {}
    if kind.model_type in _MORE and "text_config" in _MORE[kind.model_type]:
        return {}
    own = kind()
    made = {field: getattr(own, field, None) for field in kind.sub_configs}
    return {field: type(config) for field, config in made.items() if isinstance(config, PreTrainedConfig)}
