"""Tiny random models of every family, made on the spot."""

import torch
import transformers as tf

SIZE = {
    "vocab_size": 199,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


HEAD = {"head_dim": 16}


LATENT = {
    "kv_lora_rank": 24,
    "q_lora_rank": None,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
}


GROUPS = {"n_group": 2, "topk_group": 1}


def rope(kind, factor=4.0, theta=1e4, **said):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, "factor": factor, **said}}


TRAINED = {"original_max_position_embeddings": 128}


LLAMA3 = {**TRAINED, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


LONG = {"short_factor": [1.0] * 8, "long_factor": [1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0]}


GEMMA3 = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]


MIXED = {**HEAD, "sliding_window": 70, "layer_types": ["sliding_attention", "full_attention"] * 2}


PER_LAYER = {"hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 199}


GEMMA4 = {**MIXED, "global_head_dim": 32, "hidden_size_per_layer_input": 0}


ONE_PROJECTION = {"attention_k_eq_v": True, "num_global_key_value_heads": 1}


EXPERTS = {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32}


SHARED = {"num_kv_shared_layers": 2, **PER_LAYER}


FAMILIES = {
    "llama": (tf.LlamaConfig, HEAD),
    "llama-mqa": (tf.LlamaConfig, {**HEAD, "num_key_value_heads": 1}),
    "llama-mha": (tf.LlamaConfig, {**HEAD, "num_key_value_heads": 4}),
    "qwen2": (tf.Qwen2Config, {}),
    "qwen3": (tf.Qwen3Config, HEAD),
    "mistral-window": (tf.MistralConfig, {**HEAD, "sliding_window": 100}),
    "gemma2": (tf.Gemma2Config, {**HEAD, "sliding_window": 70}),
    "gemma3": (tf.Gemma3TextConfig, {**HEAD, "sliding_window": 70, "layer_types": GEMMA3}),
    "gemma3n": (tf.Gemma3nTextConfig, {**MIXED, **SHARED, "laurel_rank": 8}),
    "gemma4": (tf.Gemma4TextConfig, {**GEMMA4, **ONE_PROJECTION, "final_logit_softcapping": 30.0}),
    "gemma4-experts": (tf.Gemma4TextConfig, {**GEMMA4, **ONE_PROJECTION, **EXPERTS}),
    "gemma4-shared": (tf.Gemma4TextConfig, {**GEMMA4, **SHARED, "use_double_wide_mlp": True}),
    "phi3": (tf.Phi3Config, {}),
    "phi3-longrope": (tf.Phi3Config, {**rope("longrope", **LONG, **TRAINED), **TRAINED}),
    "llama-yarn": (tf.LlamaConfig, {**HEAD, **rope("yarn", **TRAINED)}),
    "llama-llama3": (tf.LlamaConfig, {**HEAD, **rope("llama3", **LLAMA3)}),
    "llama-linear": (tf.LlamaConfig, {**HEAD, **rope("linear")}),
    "glm4": (tf.Glm4Config, HEAD),
    "cohere2": (tf.Cohere2Config, {"sliding_window": 70}),
    "youtu": (tf.YoutuConfig, {**LATENT, "q_lora_rank": 20}),
    "deepseek-v2": (tf.DeepseekV2Config, LATENT),
    "deepseek-v3": (
        tf.DeepseekV3Config,
        {**LATENT, **GROUPS, "q_lora_rank": 20, **rope("yarn", mscale_all_dim=1.0, mscale=1.0, **TRAINED)},
    ),
    "smollm3": (tf.SmolLM3Config, HEAD),
    "granite": (tf.GraniteConfig, {}),
    "gpt-oss": (tf.GptOssConfig, {**HEAD, "sliding_window": 70, "num_local_experts": 4, "num_experts_per_tok": 2}),
}


def build(name, **more):
    kind, extra = FAMILIES[name]
    torch.manual_seed(0)
    module = tf.AutoModelForCausalLM.from_config(kind(**{**SIZE, **extra, **more}), attn_implementation="eager")
    return module.eval().float()
